//! Ports of a switch that a library is preloaded into: what the configuration knows of them by name.

use super::Attachment;
use super::check::Checker;
use super::file::{self, Text};
use p4shield_mediator::{Others, PortSpec, Source, Stages, VmRef};

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

impl Role {
    /// What the mediator is told of a port with this role and number.
    #[must_use]
    pub const fn spec(self, number: u32) -> PortSpec {
        let source = match self {
            Self::Vm(vm) => Source::Only(vm),
            Self::Uplink => Source::Foreign,
            Self::Shared => Source::Any,
        };
        PortSpec { number, stages: Stages::Both, others: Others::Pass, source }
    }
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
        file.port.iter().filter_map(|p| self.port(p, &file.tenant)).collect()
    }

    fn port(&mut self, p: &file::Port, tenants: &[file::Tenant]) -> Option<Port> {
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
        Some(Port { name, role })
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
