//! Publishing requests, and waking the P4 VM that has to answer them.
//!
//! A wake-up costs up to two system calls, so each tenant has a budget: one in [`WAKE_INTERVAL`] on
//! average. A P4 VM that claims to sleep all the time cannot make the mediator exceed it.

use crate::counters::TenantCounters;
use crate::p4vm::P4VmFault;
use crate::packet::Packet;
use crate::tenant::{TenantState, VerdictSource};
use p4shield_abi::channel::BATCH;

/// Nanoseconds between two wake-ups of one P4 VM, on average.
const WAKE_INTERVAL: u64 = 20_000;
/// Nanoseconds by which wake-ups may be ahead of that average, so that an honest P4 VM, which sleeps
/// between a packet and its answer, is woken at once.
const WAKE_ADVANCE: u64 = 8 * WAKE_INTERVAL;

impl<P: Packet> TenantState<P> {
    /// Whether a whole batch of requests is unpublished.
    #[inline]
    pub(crate) fn has_batch(&self) -> bool {
        self.channel().is_some_and(|c| c.requester.unpublished() >= BATCH)
    }

    /// Publishes the requests, and wakes a P4 VM that sleeps, within its budget.
    #[inline]
    pub(crate) fn publish(&mut self, now: u64, counters: &TenantCounters) {
        if let VerdictSource::P4Vm(channel) = &mut self.source {
            self.wake_due |= channel.requester.publish();
            if self.wake_due && now >= self.next_wake {
                self.wake_within_budget(now, counters);
            }
        }
    }

    /// Wakes a P4 VM that owes answers and sleeps, within its budget.
    #[inline]
    pub(crate) fn wake_if_asleep(&mut self, now: u64, counters: &TenantCounters) {
        self.wake_due |= self.channel_mut().is_some_and(|c| c.requester.must_wake());
        if self.wake_due && now >= self.next_wake {
            self.wake_within_budget(now, counters);
        }
    }

    /// Wakes a P4 VM that sleeps and to which another mediator is about to submit a packet, at most
    /// once an interval.
    #[inline]
    pub(crate) fn wake_early(&mut self, now: u64, counters: &TenantCounters) {
        if let VerdictSource::P4Vm(channel) = &mut self.source
            && now >= self.next_early_wake
            && channel.requester.is_asleep()
        {
            // Its flag stays set until it runs; without the interval every packet until then would
            // wake it again.
            self.next_early_wake = now.saturating_add(WAKE_INTERVAL);
            self.wake(counters);
        }
    }

    #[cold]
    fn wake_within_budget(&mut self, now: u64, counters: &TenantCounters) {
        self.wake_due = false;
        self.next_wake = self.next_wake.max(now.saturating_sub(WAKE_ADVANCE)).saturating_add(WAKE_INTERVAL);
        self.wake(counters);
    }

    #[cold]
    fn wake(&mut self, counters: &TenantCounters) {
        counters.wakeups.add(1);
        if self.channel_mut().is_some_and(|c| !c.requester.wake(&c.doorbell)) {
            self.detach(P4VmFault::Gone, counters);
        }
    }
}
