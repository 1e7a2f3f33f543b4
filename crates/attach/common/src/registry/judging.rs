//! Which lanes judge, as ports and lanes come and go: [`crate::sides`] has the rule.

use super::{Port, Registry};
use crate::message::{PortId, QueueSide};
use p4shield_config::Role;
use p4shield_mediator::{TenantConfig, VmRef};
use std::collections::{BTreeMap, BTreeSet};

impl Registry {
    /// Returns the VM behind a port, if the configuration lets transmit lanes judge its ingress.
    fn may_be_asked_at_transmit(&self, port: PortId) -> Option<VmRef> {
        self.rule.handed_over(&self.mediator, self.ports.get(&port)?.role)
    }

    /// Returns the VMs whose ingress lanes of transmit sides judge: those with such lanes at all their ports.
    pub(super) fn asked_at_transmit(&self) -> Vec<VmRef> {
        let mut ports = BTreeMap::new();
        for lane in self.lanes.values() {
            *ports.entry(lane.port).or_insert(false) |= lane.facing == QueueSide::Transmit;
        }
        let mut vms = BTreeMap::new();
        for (port, has_transmit) in ports {
            if let Some(vm) = self.may_be_asked_at_transmit(port) {
                *vms.entry(vm).or_insert(true) &= has_transmit;
            }
        }
        vms.into_iter().filter_map(|(vm, all)| all.then_some(vm)).collect()
    }

    /// Notifies the lanes if the VMs change whose ingress transmit lanes judge. Transmit lanes begin before
    /// receive lanes stop, and stop after receive lanes have begun.
    pub(super) fn defer_ingress_elsewhere(&mut self, vms: Vec<VmRef>) {
        if vms == self.elsewhere {
            return;
        }
        let before = std::mem::replace(&mut self.elsewhere, vms);
        let now = &self.elsewhere;
        self.describe_transmit(|vm| now.contains(vm) && !before.contains(vm));
        let receive = self.lanes.values().filter(|s| s.facing == QueueSide::Receive);
        receive.for_each(|s| s.control.defer_ingress(now));
        self.rest();
        let now = &self.elsewhere;
        self.describe_transmit(|vm| before.contains(vm) && !now.contains(vm));
    }

    /// Notifies the receive lanes if the VMs change that have receive lanes at ports of their own.
    pub(super) fn bind(&mut self) {
        let receive = || self.lanes.values().filter(|lane| lane.facing == QueueSide::Receive);
        let role = |port| self.ports.get(port).map(|port: &Port| port.role);
        let vm = |role| if let Role::Vm(vm) = role { Some(vm) } else { None };
        let vms = BTreeSet::from_iter(receive().filter_map(|lane| role(&lane.port).and_then(vm)));
        let vms: Vec<_> = vms.into_iter().collect();
        if vms != self.bound {
            receive().for_each(|lane| lane.control.bind(&vms));
            self.bound = vms;
            self.rest();
        }
    }

    /// Notifies the receive lanes of ports that are no VM's if they may rest now, or no longer may.
    pub(super) fn rest(&mut self) {
        let tenants = (0..).zip(&self.mediator.tenants);
        let named = |(tenant, t): (u16, &TenantConfig)| {
            let vms = (0..).zip(&t.vms).filter(|(_, vm)| !vm.name.is_empty());
            vms.map(|(vm, _)| VmRef { tenant, vm }).collect::<Vec<_>>()
        };
        let mut vms = tenants.flat_map(named);
        let is_at_own_port = |vm| self.elsewhere.contains(&vm) && self.bound.contains(&vm);
        let resting = self.rule.others_may_rest() && vms.all(is_at_own_port);
        if resting != self.resting {
            self.resting = resting;
            let receive = self.lanes.values().filter(|lane| lane.facing == QueueSide::Receive);
            receive.for_each(|lane| lane.control.port(self.spec(lane.port, lane.facing)));
        }
    }

    /// Sends transmit lanes of these VMs the description of their port.
    pub(super) fn describe_transmit(&self, of: impl Fn(&VmRef) -> bool) {
        for lane in self.lanes.values().filter(|lane| lane.facing == QueueSide::Transmit) {
            if self.may_be_asked_at_transmit(lane.port).is_some_and(|vm| of(&vm)) {
                lane.control.port(self.spec(lane.port, lane.facing));
            }
        }
    }
}
