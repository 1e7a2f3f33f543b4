//! Sleep of the attachment's thread while packets are held: how long it may sleep, and what wakes it.

use crate::mediator::Mediator;
use crate::p4vm::P4VmFault;
use crate::packet::Packet;
use crate::tenant::TenantState;
use p4shield_channel::Sleeper;
use std::os::fd::BorrowedFd;

impl<P: Packet> Mediator<P> {
    /// Returns when [`Self::poll`] has to be called next even if no packet arrives: how long an
    /// attachment may sleep. None if no packet is held; not in the future if there is work at once.
    #[must_use]
    pub fn next_deadline(&self, now: u64) -> Option<u64> {
        self.active.iter().filter_map(|t| self.tenants[usize::from(*t)].next_deadline(now)).min()
    }

    /// Returns the doorbells of P4 VMs that owe answers, by tenant. An attachment polls them for
    /// input while it sleeps, at most until [`Self::next_deadline`], after [`Sleeper::announce`].
    pub fn awaited_doorbells(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let tenants = self.active.iter().map(|t| usize::from(*t));
        tenants.filter_map(|t| Some((t, self.tenants[t].channel()?.doorbell.fd())))
    }

    /// Returns the doorbells of all attached P4 VMs, by tenant, for attachments that poll them while
    /// they sleep.
    pub fn doorbells(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        self.tenants.iter().enumerate().filter_map(|(t, tenant)| Some((t, tenant.channel()?.doorbell.fd())))
    }

    /// Drains the doorbells of [`Self::awaited_doorbells`]. Detaches P4 VMs that closed their ends.
    pub fn drain_doorbells(&mut self) {
        for i in 0..self.active.len() {
            self.drain_doorbell(usize::from(self.active[i]));
        }
    }

    /// Drains a tenant's doorbell, after `poll` showed it to be ready. Detaches a P4 VM that closed its end.
    pub fn drain_doorbell(&mut self, tenant: usize) {
        let Some(state) = self.tenants.get_mut(tenant) else { return };
        if state.channel().is_some_and(|c| !c.doorbell.drain()) {
            state.detach(P4VmFault::Gone, &self.counters.tenants[tenant]);
        }
    }
}

impl<P: Packet> Sleeper for Mediator<P> {
    fn announce(&mut self) -> bool {
        for i in 0..self.active.len() {
            let tenant = &mut self.tenants[usize::from(self.active[i])];
            if tenant.channel_mut().is_some_and(|c| !c.requester.announce()) {
                for t in &self.active[..i] {
                    retract(&mut self.tenants[usize::from(*t)]);
                }
                return false;
            }
        }
        true
    }

    fn retract(&mut self) {
        for t in &self.active {
            retract(&mut self.tenants[usize::from(*t)]);
        }
    }
}

fn retract<P: Packet>(tenant: &mut TenantState<P>) {
    if let Some(channel) = tenant.channel_mut() {
        channel.requester.retract();
    }
}
