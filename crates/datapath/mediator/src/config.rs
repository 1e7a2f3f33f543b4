//! Configuration of a mediator: tenants, their VMs, and the ports that packets come from.

pub use p4shield_abi::{FailPolicy, UnownedPolicy, VmRef};

use std::net::IpAddr;
use std::time::Duration;

/// Configuration of a mediator. [`Mediator::inherit`](crate::Mediator::inherit) changes it while packets
/// are held.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The tenants; [`VmRef::tenant`] is an index into this list.
    pub tenants: Vec<TenantConfig>,
}

/// One tenant.
#[derive(Clone, Debug)]
pub struct TenantConfig {
    /// Its name, for metrics and messages; empty: this number is vacant.
    pub name: String,
    /// Policy for packets that the tenant's P4 VM does not judge.
    pub fail: FailPolicy,
    /// Longest time that a packet is held, in each direction.
    pub deadline: Duration,
    /// Longest time that a P4 VM may owe answers without giving any; then it is detached. None: for ever.
    pub stall: Option<Duration>,
    /// Most packets that are held in each direction; at least 1. The attachment needs that much
    /// packet memory for this tenant, twice, whatever the tenant does.
    pub max_held: usize,
    /// Its VMs; [`VmRef::vm`] is an index into this list.
    pub vms: Vec<VmConfig>,
}

impl Config {
    /// Returns the network of a VM.
    #[must_use]
    pub fn network(&self, vm: VmRef) -> Network {
        let vm = self.tenants.get(usize::from(vm.tenant)).and_then(|t| t.vms.get(usize::from(vm.vm)));
        vm.and_then(|vm| vm.network).map_or(Network::Unknown, Network::Number)
    }

    /// Returns whether a tenant is the same as in `before`: its number and name are.
    #[must_use]
    pub fn keeps_tenant(&self, before: &Self, tenant: u16) -> bool {
        let name = |c: &'_ Self| c.tenants.get(usize::from(tenant)).map(|t| t.name.clone());
        name(self).is_some_and(|n| !n.is_empty() && name(before) == Some(n))
    }

    /// Returns whether a VM is the same as in `before`: its tenant, its number and its name are.
    #[must_use]
    pub fn keeps_vm(&self, before: &Self, vm: VmRef) -> bool {
        let name = |c: &Self| {
            let tenant = c.tenants.get(usize::from(vm.tenant))?;
            tenant.vms.get(usize::from(vm.vm)).map(|vm| vm.name.clone())
        };
        self.keeps_tenant(before, vm.tenant)
            && name(self).is_some_and(|n| !n.is_empty() && name(before) == Some(n))
    }

    /// Checks the limits. [`crate::lookup`] checks the addresses.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let most = usize::from(u16::MAX);
        if self.tenants.len() > most {
            return Err(ConfigError::TooMany("tenants"));
        }
        for tenant in &self.tenants {
            if tenant.vms.len() > most {
                return Err(ConfigError::TooMany("VMs of one tenant"));
            }
            if tenant.max_held == 0 {
                return Err(ConfigError::HoldsNothing(tenant.name.clone()));
            }
        }
        Ok(())
    }
}

impl TenantConfig {
    /// A tenant for tests and measurements: packets without a verdict after a millisecond are dropped, and
    /// 1024 packets are held in each direction. The product's defaults are the configuration's.
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
    /// Its name, for metrics and messages; empty: this number is vacant.
    pub name: String,
    /// Its addresses, by which the mediator recognises its packets.
    pub addresses: Vec<IpAddr>,
    /// The network (VNI) of the addresses; VMs of other networks may have the same ones. None: the
    /// addresses belong to this VM in every network.
    pub network: Option<u32>,
    /// By [`p4shield_abi::Direction`]: whether its packets bypass the P4 VM because the direction has
    /// no program.
    pub skipped: [bool; 2],
}

impl VmConfig {
    /// A VM without a network, whose packets are judged in both directions.
    #[must_use]
    pub fn new(name: impl Into<String>, addresses: Vec<IpAddr>) -> Self {
        Self { name: name.into(), addresses, network: None, skipped: [false; 2] }
    }
}

/// The network that a packet's addresses belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Network {
    /// Not known. The mediator drops the packet if VMs of several networks have one of its addresses.
    #[default]
    Unknown,
    /// The network with this VNI: from a tunnel header, or because the port belongs to a VM of that network.
    Number(u32),
    /// A network without configured VMs.
    Foreign,
}

/// A port of the switch. The attachment passes it with each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// Its number, which programs read as `input_port`.
    pub number: u32,
    /// Programs that judge its packets.
    pub stages: Stages,
    /// Policy for its unowned packets.
    pub unowned: UnownedPolicy,
    /// Source addresses that its packets may have.
    pub source: AllowedSources,
    /// Network of its packets' addresses.
    pub network: Network,
}

/// Programs that judge a port's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stages {
    /// The sender's egress program if the source address is a VM's, then the receiver's ingress
    /// program if the destination address is a VM's. For switches that are mediated at the receive
    /// side of every port.
    Both,
    /// This VM's egress program, for every packet but [exempt](crate::Kind::is_exempt) ones. For the VM's
    /// side of a wire.
    EgressOnly(VmRef),
    /// This VM's ingress program, for every packet but [exempt](crate::Kind::is_exempt) ones. For the
    /// switch's side of a wire, and for the transmit side of a VM's port.
    IngressOnly(VmRef),
    /// No program. For the transmit side of a port whose packets are judged where they come in.
    None,
}

/// Source addresses that a port's packets may have; module `source_check` checks them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllowedSources {
    /// Any address; with [`Stages::Both`] none of a VM that sends from ports of its own
    /// ([`Mediator::bind`](crate::Mediator::bind)).
    #[default]
    Any,
    /// Those of this VM; also the unspecified address (`0.0.0.0`, `::`, which a machine uses to
    /// request an address) and IPv6 link-local addresses that no other VM has. ARP and neighbour discovery
    /// may announce these addresses only, at the link-layer address of their frame.
    Only(VmRef),
    /// Any address but those of the VMs: for an uplink, behind which there are no VMs.
    Foreign,
}

/// An invalid configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// More entries than a 16-bit index can address.
    #[error("more than 65535 {0}")]
    TooMany(&'static str),
    /// Two VMs have one address.
    #[error(
        "address {address} belongs to both {first} and {second}; an address identifies one VM of a network"
    )]
    Ambiguous {
        /// The address.
        address: IpAddr,
        /// Tenant and VM that have it.
        first: String,
        /// The other tenant and VM that have it.
        second: String,
    },
    /// A tenant of which no packet may be held, hence none judged.
    #[error(
        "tenant {0}: max_held is 0; a packet is held while its verdict is pending, so set it to at least 1"
    )]
    HoldsNothing(String),
    /// A tenant that is not configured.
    #[error("there is no tenant number {0}")]
    NoTenant(usize),
}
