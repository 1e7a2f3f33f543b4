//! The rule where a VM's ingress program judges: where packets arrive, or where they leave for the
//! VM.
//!
//! The receive side of the port where a packet arrives is one place, and the only one for a library
//! that has receive lanes alone. The transmit side of the VM's own port is the other. It sees all
//! packets, including those that the host itself sends, that arrive at a port without a lane, or that
//! have several receivers. Hence the rule: **as long as all ports of the VM's own have transmit lanes,
//! they judge its ingress and no other lane does**; else the lanes where packets arrive do. So no
//! packet is judged twice, and none reaches the VM at a port that nothing judges.
//!
//! If every configured VM has such ports, and sends from them only, the receive lanes of all other ports have
//! nothing to do: they pass whole bursts on, and a neighbour without programs pays for no lookup. Only DPDK's
//! do so: those of AF_XDP also wake the P4 VM of a packet that it will judge at the VM's port.
//!
//! During a change, the new lane starts to judge before the others stop, and the others start before
//! the old lane ends, as far as a mailbox keeps the order: a packet in between may be judged twice.

use crate::message::QueueSide;
use crate::setup::Setup;
use p4shield_config::{Attachment, Role, Sides};
use p4shield_mediator::{self as mediator, AllowedSources, Network, PortSpec, Stages, UnownedPolicy, VmRef};
use std::collections::BTreeSet;

/// The configured exceptions.
#[derive(Debug, Default)]
pub(crate) struct Rule {
    /// VMs whose ingress is judged where packets arrive.
    receive_only: BTreeSet<VmRef>,
    /// Whether receive lanes of ports that are no VM's may pass everything.
    others_may_rest: bool,
}

impl Rule {
    pub(crate) fn of(setup: &Setup, attachment: Attachment) -> Self {
        let vm = |role| if let Role::Vm(vm) = role { Some(vm) } else { None };
        let ports = setup.ports.iter().filter(|p| p.sides == Sides::Receive);
        Self {
            receive_only: ports.filter_map(|p| vm(p.role)).collect(),
            others_may_rest: attachment == Attachment::Dpdk,
        }
    }

    /// Returns whether receive lanes of ports that are no VM's may rest.
    pub(crate) const fn others_may_rest(&self) -> bool {
        self.others_may_rest
    }

    /// Returns the VM whose ingress may be judged at the transmit side of a port with this role.
    pub(crate) fn handed_over(&self, tenants: &mediator::Config, role: Role) -> Option<VmRef> {
        let Role::Vm(vm) = role else { return None };
        tenants.tenants.get(usize::from(vm.tenant))?.vms.get(usize::from(vm.vm))?;
        (!self.receive_only.contains(&vm)).then_some(vm)
    }

    /// Returns the description of a port with this role and number for a lane; `at_transmit` are the VMs
    /// whose ingress transmit lanes judge.
    pub(crate) fn spec(
        &self,
        tenants: &mediator::Config,
        side: QueueSide,
        (role, number): (Role, u32),
        at_transmit: impl Fn(&VmRef) -> bool,
    ) -> PortSpec {
        match side {
            QueueSide::Receive => {
                let network = if let Role::Vm(vm) = role { tenants.network(vm) } else { Network::Unknown };
                PortSpec { network, ..receive_spec(role, number) }
            }
            QueueSide::Transmit => {
                transmit_spec(self.handed_over(tenants, role).filter(|vm| at_transmit(vm)), number)
            }
        }
    }
}

/// Returns what a mediator of the receive side of a port with this role and number knows of the
/// port; the caller adds the network that a VM is in.
pub(crate) const fn receive_spec(role: Role, number: u32) -> PortSpec {
    let source = match role {
        Role::Vm(vm) => AllowedSources::Only(vm),
        Role::Uplink => AllowedSources::Foreign,
        Role::Shared => AllowedSources::Any,
    };
    PortSpec { number, stages: Stages::Both, unowned: UnownedPolicy::Pass, source, network: Network::Unknown }
}

/// Returns what a mediator of a transmit side knows of the port: this VM's program judges all
/// packets, or none does.
const fn transmit_spec(vm: Option<VmRef>, number: u32) -> PortSpec {
    let stages = match vm {
        Some(vm) => Stages::IngressOnly(vm),
        None => Stages::None,
    };
    let source = AllowedSources::Any;
    PortSpec { number, stages, unowned: UnownedPolicy::Pass, source, network: Network::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ports_role_limits_its_source_addresses() {
        let vm = VmRef { tenant: 1, vm: 2 };
        let expected = [
            (Role::Vm(vm), AllowedSources::Only(vm)),
            (Role::Uplink, AllowedSources::Foreign),
            (Role::default(), AllowedSources::Any),
        ];
        for (role, source) in expected {
            let spec = receive_spec(role, 7);
            assert_eq!(
                (spec.number, spec.stages, spec.unowned, spec.source),
                (7, Stages::Both, UnownedPolicy::Pass, source)
            );
        }
    }
}
