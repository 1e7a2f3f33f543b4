//! Change of the configuration while packets are held.
//!
//! Another thread makes the mediator of the new configuration, with all its memory; the polling thread
//! lets it inherit from the old one and uses it from then on. A tenant that both know by number and name
//! keeps its channel, its held packets, its order and its counters, and so do its VMs. What remains in the
//! old mediator belongs to tenants that are gone; their policy decides it.
//!
//! This moves a few words for each tenant and copies the counters, between two bursts. A queue that grows
//! moves its packets.

use crate::config::VmRef;
use crate::counters::{Counters, DirectionCounters, TenantCounters, UnownedCounters};
use crate::flight::Owner;
use crate::mediator::Mediator;
use crate::packet::Packet;
use crate::tenant::TenantState;
use p4shield_abi::FailPolicy;

impl<P: Packet> Mediator<P> {
    /// Takes over the tenants that `old` knows by the same number and name, with everything that they
    /// hold, and the attachment's check of rewritten packets. `self` is new; `old` keeps the other tenants:
    /// the caller detaches their channels and polls it until it holds no packet.
    ///
    /// VMs are the same if their tenant is and they have the same number and name. A held packet whose
    /// next program belonged to a VM that is gone continues without it.
    pub fn inherit(&mut self, old: &mut Self) {
        self.rewrite_check = old.rewrite_check.take();
        self.ports.copy_from(&old.ports);
        let (new_counters, old_counters) = (&self.counters, &old.counters);
        let is_kept = |vm: VmRef| new_counters.is_same_vm(old_counters, vm);
        self.lookup.inherit(&old.lookup, is_kept);
        new_counters.unowned.copy_from(&old_counters.unowned);
        for (t, (tenant, before)) in self.tenants.iter_mut().zip(&mut old.tenants).enumerate() {
            if !is_same(&tenant.name, &before.name) {
                continue;
            }
            tenant.inherit(before, is_kept);
            new_counters.tenants[t].copy_from(&old_counters.tenants[t]);
            // What a tenant that is gone sent to this one is not judged any more, hence not delivered.
            before.fail = FailPolicy::Drop;
            let number = t as u16;
            old.dirty.retain(|d| *d != number);
            old.active.retain(|a| *a != number);
            self.dirty.extend(tenant.dirty.then_some(number));
            self.active.extend(tenant.active.then_some(number));
            if old.last_passed == Some(t) {
                self.last_passed = old.last_passed.take();
            }
        }
    }
}

impl<P: Packet> TenantState<P> {
    /// Takes over channel and queues; the settings stay.
    fn inherit(&mut self, old: &mut Self, is_kept: impl Fn(VmRef) -> bool) {
        std::mem::swap(self, old);
        std::mem::swap(&mut self.fail, &mut old.fail);
        std::mem::swap(&mut self.deadline, &mut old.deadline);
        std::mem::swap(&mut self.stall, &mut old.stall);
        for (queue, fresh) in self.queues.iter_mut().zip(&mut old.queues) {
            queue.take_capacity(fresh);
            queue.for_each(|flight| {
                if flight.next != Owner::NONE && !is_kept(flight.next.vm()) {
                    flight.next = Owner::NONE;
                }
            });
        }
    }
}

/// Whether two entries of the same number are the same. An entry without a name is vacant.
fn is_same(name: &str, other: &str) -> bool {
    !name.is_empty() && name == other
}

impl Counters {
    fn is_same_vm(&self, other: &Self, vm: VmRef) -> bool {
        let tenants = (self.tenants.get(usize::from(vm.tenant)), other.tenants.get(usize::from(vm.tenant)));
        let (Some(tenant), Some(other)) = tenants else { return false };
        let vms = (tenant.vms.get(usize::from(vm.vm)), other.vms.get(usize::from(vm.vm)));
        let (Some(vm), Some(other_vm)) = vms else { return false };
        is_same(&tenant.name, &other.name) && is_same(&vm.name, &other_vm.name)
    }
}

impl UnownedCounters {
    fn copy_from(&self, old: &Self) {
        self.passed.add(old.passed.get());
        self.dropped.add(old.dropped.get());
        self.spoofed.add(old.spoofed.get());
    }
}

impl TenantCounters {
    fn copy_from(&self, old: &Self) {
        self.late.add(old.late.get());
        self.faults.add(old.faults.get());
        self.wakeups.add(old.wakeups.get());
        for (vm, before) in self.vms.iter().zip(&old.vms) {
            if is_same(&vm.name, &before.name) {
                vm.directions.iter().zip(&before.directions).for_each(|(new, old)| new.copy_from(old));
            }
        }
    }
}

impl DirectionCounters {
    /// Adds the counts to counters that are zero. Packets that entered come first, so that no reader sees
    /// more packets leave than enter.
    fn copy_from(&self, old: &Self) {
        let one = [
            (&self.packets_in, &old.packets_in),
            (&self.bytes_in, &old.bytes_in),
            (&self.passed, &old.passed),
            (&self.bytes_out, &old.bytes_out),
            (&self.rewritten, &old.rewritten),
        ];
        let dropped = self.dropped.iter().zip(&old.dropped);
        let let_through = self.let_through.iter().zip(&old.let_through);
        one.into_iter().chain(dropped).chain(let_through).for_each(|(new, old)| new.add(old.get()));
    }
}
