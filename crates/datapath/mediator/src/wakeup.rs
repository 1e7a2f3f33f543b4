//! Publishing requests, and waking the P4 VM that has to answer them.
//!
//! A wake-up costs up to two system calls, so each tenant has a budget: one in [`WAKE_INTERVAL`] on
//! average. A P4 VM that claims to sleep all the time cannot make the mediator exceed it.
//!
//! A polling thread has a budget, too, for all tenants of all its mediators: one in [`THREAD_INTERVAL`]. A
//! P4 VM that has to be woken gets the thread's next slot and waits for it, so P4 VMs are woken in the order
//! in which they became due. Colluding tenants cost the thread no more than its budget, and each other
//! tenant no more than one slot for each of them.

use crate::counters::TenantCounters;
use crate::p4vm::P4VmFault;
use crate::packet::Packet;
use crate::tenant::{TenantState, VerdictSource};
use p4shield_abi::channel::BATCH;
use std::cell::Cell;

/// Nanoseconds between two wake-ups of one P4 VM, on average.
const WAKE_INTERVAL: u64 = 20_000;
/// Nanoseconds by which wake-ups may be ahead of that average, so that an honest P4 VM, which sleeps
/// between a packet and its answer, is woken at once.
const WAKE_ADVANCE: u64 = 8 * WAKE_INTERVAL;
/// Nanoseconds between two wake-ups of one thread, on average: two tenants never wait for each other.
const THREAD_INTERVAL: u64 = WAKE_INTERVAL / 2;
/// Nanoseconds that the clock goes back only if another clock replaced it.
const ANOTHER_CLOCK: u64 = 1_000_000;

/// The slots of a thread.
#[derive(Clone, Copy)]
struct Slots {
    /// The next one that is free.
    next: u64,
    /// Latest time at which one was requested.
    seen: u64,
}

thread_local! {
    static SLOTS: Cell<Slots> = const { Cell::new(Slots { next: 0, seen: 0 }) };
}

impl Slots {
    /// Follows the clock, of which at most [`WAKE_ADVANCE`] is saved up.
    fn at(self, now: u64) -> Self {
        if now.saturating_add(ANOTHER_CLOCK) < self.seen {
            return Self { next: now, seen: now };
        }
        Self { next: self.next.max(now.saturating_sub(WAKE_ADVANCE)), seen: self.seen.max(now) }
    }

    /// Returns the next slot of this thread, which may lie in the past, and takes it.
    fn take(now: u64) -> u64 {
        let slots = SLOTS.get().at(now);
        SLOTS.set(Self { next: slots.next.saturating_add(THREAD_INTERVAL), ..slots });
        slots.next
    }

    /// Whether a slot is free now. Takes it then.
    fn take_free(now: u64) -> bool {
        let free = SLOTS.get().at(now).next <= now;
        if free {
            Self::take(now);
        }
        free
    }
}

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
            if channel.requester.publish() {
                self.wake_becomes_due(now);
            }
            if self.wake_due && now >= self.wake_at {
                self.wake_within_budget(now, counters);
            }
        }
    }

    /// Wakes a P4 VM that owes answers and sleeps, within its budget.
    #[inline]
    pub(crate) fn wake_if_asleep(&mut self, now: u64, counters: &TenantCounters) {
        if self.channel_mut().is_some_and(|c| c.requester.must_wake()) {
            self.wake_becomes_due(now);
        }
        if self.wake_due && now >= self.wake_at {
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
            && Slots::take_free(now)
        {
            // Its flag stays set until it runs; without the interval every packet until then would
            // wake it again.
            self.next_early_wake = now.saturating_add(WAKE_INTERVAL);
            self.wake(counters);
        }
    }

    /// Takes a slot of the thread for the next wake-up.
    #[cold]
    fn wake_becomes_due(&mut self, now: u64) {
        if !self.wake_due {
            self.wake_due = true;
            self.wake_at = self.next_wake.max(Slots::take(now));
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
