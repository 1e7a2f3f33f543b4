//! What a mediator is told: tenants, their VMs, and what a port is.

use std::net::IpAddr;
use std::time::Duration;

/// Everything that is fixed for a mediator's life.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The tenants; [`VmRef::tenant`] is an index into it.
    pub tenants: Vec<TenantConfig>,
}

/// One tenant.
#[derive(Clone, Debug)]
pub struct TenantConfig {
    /// Its name, for metrics and messages.
    pub name: String,
    /// What becomes of packets that its P4 VM does not judge.
    pub fail: FailPolicy,
    /// How long a packet is held at most, in each direction.
    pub deadline: Duration,
    /// How long a P4 VM may owe answers without giving any before it is taken for dead and detached. None: for ever.
    pub stall: Option<Duration>,
    /// Packets that are held at most, in each direction; at least 1. The attachment needs that much packet memory
    /// for this tenant, twice, whatever the tenant does.
    pub max_held: usize,
    /// Its VMs; [`VmRef::vm`] is an index into it.
    pub vms: Vec<VmConfig>,
}

impl Config {
    /// The network of a VM.
    #[must_use]
    pub fn network(&self, vm: VmRef) -> Network {
        let vm = self.tenants.get(usize::from(vm.tenant)).and_then(|t| t.vms.get(usize::from(vm.vm)));
        vm.and_then(|vm| vm.network).map_or(Network::Unknown, Network::Number)
    }
}

impl TenantConfig {
    /// A tenant with the defaults: drop what is not judged within a millisecond, hold 1024 packets a direction.
    #[must_use]
    pub fn new(name: impl Into<String>, vms: Vec<VmConfig>) -> Self {
        Self {
            name: name.into(),
            fail: FailPolicy::Drop,
            deadline: Duration::from_millis(1),
            stall: Some(Duration::from_secs(5)),
            max_held: 1024,
            vms,
        }
    }
}

/// One user VM.
#[derive(Clone, Debug)]
pub struct VmConfig {
    /// Its name, for metrics and messages.
    pub name: String,
    /// Its addresses, by which its packets are found.
    pub addresses: Vec<IpAddr>,
    /// The network that they are of (VNI), where other VMs may have the same in other networks. None: in whatever network,
    /// they are this VM's.
    pub network: Option<u32>,
    /// By [`p4shield_abi::Direction`]: whether its packets pass without anybody being asked, because there is no program.
    pub skipped: [bool; 2],
}

impl VmConfig {
    /// A VM in no particular network, asked in both directions.
    #[must_use]
    pub fn new(name: impl Into<String>, addresses: Vec<IpAddr>) -> Self {
        Self { name: name.into(), addresses, network: None, skipped: [false; 2] }
    }
}

/// Which network a packet's addresses are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Network {
    /// Nothing tells: it came as it is. An address that VMs of several networks have then finds none of them, and the packet
    /// is dropped.
    #[default]
    Unknown,
    /// The one of this number: from a tunnel, or because the port is a VM's that is in it.
    Number(u32),
    /// One that no VM is said to be in.
    Foreign,
}

/// What becomes of a tenant's packets that its P4 VM does not judge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailPolicy {
    /// They are dropped: nothing gets past the program.
    #[default]
    Drop,
    /// They are let through: the network works without the program.
    Pass,
}

/// A VM of a tenant, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VmRef {
    /// Index of the tenant in [`Config::tenants`].
    pub tenant: u16,
    /// Index of the VM in [`TenantConfig::vms`].
    pub vm: u16,
}

/// A port of the switch, as far as the mediator has to know. Passed with each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// Its number; programs see it as `input_port`.
    pub number: u32,
    /// Whose programs are asked.
    pub stages: Stages,
    /// What becomes of packets of nobody.
    pub unowned: UnownedPolicy,
    /// Which source addresses may come from it.
    pub source: AllowedSources,
    /// Which network's addresses they are.
    pub network: Network,
}

/// Whose programs are asked about a port's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stages {
    /// The sender's egress, if the source address is a VM's; then the receiver's ingress, if the destination address
    /// is one. For ports of a switch that is mediated at the receive side of every port.
    Both,
    /// This VM's egress, for every IP packet. For the VM's side of a wire.
    EgressOnly(VmRef),
    /// This VM's ingress, for every IP packet. For the switch's side of a wire, and for the transmit side of a VM's port.
    IngressOnly(VmRef),
    /// No program. For the transmit side of a port whose packets are judged where they come in.
    None,
}

/// What becomes of packets of nobody: not IP (ARP above all), IPv6 neighbour discovery, and on a port with
/// [`Stages::Both`] packets from and to no VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnownedPolicy {
    /// They pass unjudged.
    #[default]
    Pass,
    /// They are dropped.
    Drop,
}

/// Which source addresses may come from a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllowedSources {
    /// Any.
    #[default]
    Any,
    /// Those of this VM; and none (`0.0.0.0`, `::`: a machine that asks for an address), and IPv6 link-local ones that
    /// are no other VM's.
    Only(VmRef),
    /// Any but those of the VMs: for an uplink, from which no VM sends.
    Foreign,
}

/// A configuration that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// More than can be numbered.
    #[error("more than 65535 {0}")]
    TooMany(&'static str),
    /// Two VMs have one address.
    #[error("address {address} belongs to both {first} and {second}; an address finds one VM of a network")]
    Ambiguous {
        /// The address.
        address: IpAddr,
        /// Tenant and VM that have it.
        first: String,
        /// Tenant and VM that have it, too.
        second: String,
    },
    /// A tenant that may hold nothing can have nothing judged.
    #[error("tenant {0}: max_held is 0; at least one packet has to be held to be judged")]
    HoldsNothing(String),
    /// A tenant that is not configured.
    #[error("there is no tenant number {0}")]
    NoTenant(usize),
}
