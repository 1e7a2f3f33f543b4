//! Ports of a switch that are configured by name.

use super::Attachment;
use super::check::Checker;
use super::file::{self, Text};
use p4shield_abi::VmRef;
use serde::{Deserialize, Serialize};

/// Longest name of a port, which may be the path of a socket: `sun_path` has 108 bytes with the terminating
/// zero.
const MAX_PORT_NAME: usize = 107;

/// A port that is configured by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Its name: the interface in Open vSwitch's database, the DPDK device (`net_af_packet0`), the path
    /// of a vhost-user socket, or the network interface.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// The sides at which packets are judged.
    pub sides: Sides,
    /// Whether the tenant's P4 VM may read the switch's packet memory.
    pub zero_copy: ZeroCopy,
}

/// Whether a P4 VM receives copies of headers or reads the switch's packet memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ZeroCopy {
    /// Copies.
    #[default]
    Off,
    /// The memory, if it holds packets of this port's tenant only; otherwise copies.
    Auto,
}

/// The sides of a VM's port at which its programs judge packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sides {
    /// Egress where the switch receives at the port, ingress where it sends there, for all packets. The same
    /// as [`Self::Receive`] for a port whose transmit side the attachment does not see.
    #[default]
    Both,
    /// Egress where the switch receives at the port; ingress where packets for the VM enter at other ports.
    Receive,
}

/// The role of a switch's port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Only one VM is behind it.
    Vm(#[serde(with = "VmFields")] VmRef),
    /// The external network is behind it, and no VM.
    Uplink,
    /// Any VM or network may be behind it. The default for ports that are not configured.
    #[default]
    Shared,
}

/// The fields of a [`VmRef`], for messages with a role.
#[derive(Serialize, Deserialize)]
#[serde(remote = "VmRef")]
struct VmFields {
    tenant: u16,
    vm: u16,
}

impl Checker<'_> {
    pub(super) fn ports(&mut self, file: &file::File, attachment: Attachment) -> Vec<Port> {
        if let Some(port) = file.port.first().filter(|_| attachment == Attachment::Wire) {
            let message =
                "[[port]] needs attachment = \"dpdk\" or \"xsk\"; write one of these, or [[wire]] tables";
            self.problem(port.name.span(), message.to_owned());
        }
        self.unique("port", file.port.iter().map(|p| &p.name));
        let vms = file.tenant.iter().flat_map(|t| &t.vm);
        self.unique("iface_id", vms.filter_map(|v| v.iface_id.as_ref()));
        let ports: Vec<_> = file.port.iter().filter_map(|p| self.port(p, &file.tenant, attachment)).collect();
        self.sides_agree(file, &ports);
        ports
    }

    /// Checks that all ports of a VM have the same sides, so that ingress packets are judged once.
    fn sides_agree(&mut self, file: &file::File, ports: &[Port]) {
        for (at, port) in ports.iter().enumerate() {
            let same =
                |p: &&Port| matches!(p.role, Role::Vm(_)) && p.role == port.role && p.sides != port.sides;
            let source = file.port.iter().find(|p| *p.name.as_ref() == port.name);
            if let (Some(other), Some(p)) = (ports[..at].iter().find(same), source) {
                let message = format!(
                    "port {:?}: its sides differ from those of {:?}, which belongs to the same VM; write \
                     the same sides \
                     for both",
                    port.name, other.name
                );
                self.problem(p.name.span(), message);
            }
        }
    }

    fn sides(&mut self, p: &file::Port, role: Role, attachment: Attachment) -> Sides {
        if let Some(sides) = &p.sides
            && !(attachment != Attachment::Wire && matches!(role, Role::Vm(_)))
        {
            let message = "sides: only a VM's port of a switch has two sides; remove the key";
            self.problem(sides.span(), message.to_owned());
        }
        self.word("sides", p.sides.as_ref(), &[("both", Sides::Both), ("receive", Sides::Receive)])
    }

    fn zero_copy(&mut self, p: &file::Port, role: Role, attachment: Attachment) -> ZeroCopy {
        if let Some(zero_copy) = &p.zero_copy
            && !(attachment == Attachment::Xsk && matches!(role, Role::Vm(_)))
        {
            let message = "zero_copy: only a VM's port with attachment = \"xsk\" has packet memory of one \
                           tenant; remove the \
                           key";

            self.problem(zero_copy.span(), message.to_owned());
        }
        self.word("zero_copy", p.zero_copy.as_ref(), &[("off", ZeroCopy::Off), ("auto", ZeroCopy::Auto)])
    }

    fn port(&mut self, p: &file::Port, tenants: &[file::Tenant], attachment: Attachment) -> Option<Port> {
        let name = self.port_name("name", &p.name);
        let role = match (&p.tenant, &p.vm, &p.role) {
            (Some(tenant), Some(vm), None) => Role::Vm(self.vm_ref(tenant, vm, tenants)?),
            (None, None, Some(role)) => {
                self.word("role", Some(role), &[("uplink", Role::Uplink), ("shared", Role::Shared)])
            }
            _ => {
                let message = format!(
                    "port {name:?} has no role: write either tenant and vm, or role = \"uplink\" or \
                     \"shared\""
                );
                self.problem(p.name.span(), message);
                return None;
            }
        };
        let sides = self.sides(p, role, attachment);
        let zero_copy = self.zero_copy(p, role, attachment);
        Some(Port { name, role, sides, zero_copy })
    }

    /// Checks a name that a switch or its database uses.
    pub(super) fn port_name(&mut self, key: &str, name: &Text) -> String {
        let text = name.as_ref();
        if !(1..=MAX_PORT_NAME).contains(&text.len())
            || text.chars().any(|c| c.is_whitespace() || c.is_control())
        {
            let message =
                format!("{key}: {text:?} is not a valid name; write 1 to {MAX_PORT_NAME} visible characters");
            self.problem(name.span(), message);
        }
        text.clone()
    }
}
