//! Ports of a switch that a library is preloaded into: what the configuration knows of them by name.

use super::Attachment;
use super::check::Checker;
use super::file::{self, Text};
use p4shield_abi::VmRef;

/// Longest name of a port: a path of a socket is one, and `sun_path` has 108 bytes with the terminating zero.
const MAX_PORT_NAME: usize = 107;

/// A port that is known by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// What the switch calls it: the interface in Open vSwitch's database, the DPDK device (`net_af_packet0`), the path
    /// of a vhost-user socket, or the network interface.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// Which of its sides are asked at.
    pub sides: Sides,
    /// Whether its tenant's P4 VM may read packets where the switch has them.
    pub zero_copy: ZeroCopy,
}

/// Whether a P4 VM is handed copies of headers, or the switch's packet memory to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// Copies.
    #[default]
    Off,
    /// The memory, where nobody but this port's tenant has packets in it; else copies.
    Auto,
}

/// At which sides of its port a VM's programs are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sides {
    /// Its egress where the switch receives from it, its ingress where the switch sends to it, for whatever packet. What an
    /// attachment that sees no transmit side takes for [`Self::Receive`].
    #[default]
    Both,
    /// Its egress where the switch receives from it; its ingress where packets for it come in at other ports.
    Receive,
}

/// What a port of a switch is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// One VM is behind it, and nobody else.
    Vm(VmRef),
    /// The world is behind it, and no VM.
    Uplink,
    /// Anybody may be behind it. What nobody said anything about is this, too.
    #[default]
    Shared,
}

impl Checker<'_> {
    pub(super) fn ports(&mut self, file: &file::File, attachment: Attachment) -> Vec<Port> {
        if let Some(port) = file.port.first().filter(|_| attachment == Attachment::Wire) {
            let message = "[[port]] belongs to attachment = \"dpdk\" or \"xsk\"; write one of these, or [[wire]] tables";
            self.problem(port.name.span(), message.to_owned());
        }
        self.unique("port", file.port.iter().map(|p| &p.name));
        let vms = file.tenant.iter().flat_map(|t| &t.vm);
        self.unique("iface_id", vms.filter_map(|v| v.iface_id.as_ref()));
        let ports: Vec<_> = file.port.iter().filter_map(|p| self.port(p, &file.tenant, attachment)).collect();
        self.sides_agree(file, &ports);
        ports
    }

    /// A VM's ingress is asked at one side.
    fn sides_agree(&mut self, file: &file::File, ports: &[Port]) {
        for (at, port) in ports.iter().enumerate() {
            let same =
                |p: &&Port| matches!(p.role, Role::Vm(_)) && p.role == port.role && p.sides != port.sides;
            let written = file.port.iter().find(|p| *p.name.as_ref() == port.name);
            if let (Some(other), Some(p)) = (ports[..at].iter().find(same), written) {
                let message = format!(
                    "port {:?}: it has other sides than {:?}, which is the same VM's; write sides for both, and the same",
                    port.name, other.name
                );
                self.problem(p.name.span(), message);
            }
        }
    }

    fn sides(&mut self, p: &file::Port, role: Role, attachment: Attachment) -> Sides {
        if let Some(sides) = &p.sides
            && !(attachment == Attachment::Xsk && matches!(role, Role::Vm(_)))
        {
            let message = "sides: only a VM's port of attachment = \"xsk\" has two; leave it out";
            self.problem(sides.span(), message.to_owned());
        }
        self.word("sides", p.sides.as_ref(), &[("both", Sides::Both), ("receive", Sides::Receive)])
    }

    fn zero_copy(&mut self, p: &file::Port, role: Role, attachment: Attachment) -> ZeroCopy {
        if let Some(zero_copy) = &p.zero_copy
            && !(attachment == Attachment::Xsk && matches!(role, Role::Vm(_)))
        {
            let message = "zero_copy: only a VM's port of attachment = \"xsk\" has packet memory that is one tenant's; \
                           leave it out";
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
                    "port {name:?}: whose is it? write either tenant and vm, or role = \"uplink\" or \"shared\""
                );
                self.problem(p.name.span(), message);
                return None;
            }
        };
        let sides = self.sides(p, role, attachment);
        let zero_copy = self.zero_copy(p, role, attachment);
        Some(Port { name, role, sides, zero_copy })
    }

    /// What a switch or its database calls something.
    pub(super) fn port_name(&mut self, key: &str, name: &Text) -> String {
        let text = name.as_ref();
        if !(1..=MAX_PORT_NAME).contains(&text.len())
            || text.chars().any(|c| c.is_whitespace() || c.is_control())
        {
            let message =
                format!("{key}: {text:?} cannot be a port's; write 1 to {MAX_PORT_NAME} visible characters");
            self.problem(name.span(), message);
        }
        text.clone()
    }
}
