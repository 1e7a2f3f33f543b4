//! Where a VM's ingress is asked: where its packets come in, or where they are handed to it.
//!
//! The receive side of the port that a packet comes in at is one place, and the only one where a
//! switch's library has lanes for receiving alone. The transmit side of the VM's own port is the
//! other. It misses nothing: packets that the host itself sends, that come in at a port without a
//! lane, or that have no one receiver are asked about, too. Hence the rule: **as long as a port of
//! the VM's own has lanes that face what is sent there, its ingress is asked by them and by no
//! other lane**; else by the lanes that packets come in at. So no packet is asked about twice.
//!
//! When that changes, the new lane judges before the others are told to leave the VM alone, and the
//! others judge before the old lane ends, as far as a mailbox makes an order: a packet in between
//! may be asked about twice.

use crate::message::QueueSide;
use p4shield_config::{Config, Role, Sides};
use p4shield_mediator::{self as mediator, AllowedSources, Network, PortSpec, Stages, UnownedPolicy, VmRef};
use std::collections::BTreeSet;

/// What the configuration says of it.
#[derive(Debug, Default)]
pub(crate) struct Rule {
    /// Names of tenant and VM, since numbers are the daemon's, of VMs whose ingress is asked where
    /// packets come in.
    receive_only: BTreeSet<(String, String)>,
}

impl Rule {
    pub(crate) fn of(config: &Config) -> Self {
        let name = |vm: VmRef| {
            let tenant = config.tenants.get(usize::from(vm.tenant))?;
            Some((tenant.name.clone(), tenant.vms.get(usize::from(vm.vm))?.name.clone()))
        };
        let vm = |role| if let Role::Vm(vm) = role { name(vm) } else { None };
        let ports = config.ports.iter().filter(|p| p.sides == Sides::Receive);
        Self { receive_only: ports.filter_map(|p| vm(p.role)).collect() }
    }

    /// The VM whose ingress is to be asked at the transmit side of a port with this role.
    pub(crate) fn handed_over(&self, tenants: &mediator::Config, role: Role) -> Option<VmRef> {
        let Role::Vm(vm) = role else { return None };
        let tenant = tenants.tenants.get(usize::from(vm.tenant))?;
        let name = (tenant.name.clone(), tenant.vms.get(usize::from(vm.vm))?.name.clone());
        (!self.receive_only.contains(&name)).then_some(vm)
    }

    /// What a lane of a port with this role and number is told of it.
    pub(crate) fn spec(
        &self,
        tenants: &mediator::Config,
        side: QueueSide,
        role: Role,
        number: u32,
    ) -> PortSpec {
        match side {
            QueueSide::Receive => {
                let network = if let Role::Vm(vm) = role { tenants.network(vm) } else { Network::Unknown };
                PortSpec { network, ..receive_spec(role, number) }
            }
            QueueSide::Transmit => transmit_spec(self.handed_over(tenants, role), number),
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
