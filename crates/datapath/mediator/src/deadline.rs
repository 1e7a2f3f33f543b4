//! Deadlines of held packets, and the tenant's policy for packets without a verdict.
//!
//! `enqueue` sets the deadline, and `release` enforces it when `poll` finds it expired. The product's default
//! is the configuration's.
//!
//! A packet that has no verdict by its deadline is dropped or let through, as the tenant configured
//! (`fail`). A P4 VM that gives no answer for the configured time (`stall`) is detached. Packets
//! enter a queue in the order of their deadlines, so the oldest one decides.

use crate::config::FailPolicy;
use crate::flight::{FlightDecision, FlightState};
use crate::packet::{Packet, Reason};
use crate::tenant::TenantState;
use p4shield_abi::Direction;

impl<P: Packet> TenantState<P> {
    /// Returns what happens to a packet that is not judged.
    pub(crate) fn policy(&self, reason: Reason) -> FlightDecision {
        match self.fail {
            FailPolicy::Drop => (FlightState::Dropped, reason),
            FailPolicy::Pass => (FlightState::LetThrough, reason),
        }
    }

    /// Returns the deadline of a packet that enters a queue now.
    #[inline]
    pub(crate) fn deadline_from(&self, now: u64) -> u64 {
        now.saturating_add(self.deadline)
    }

    /// Applies the policy to the oldest packet of a direction, whose deadline has passed.
    #[cold]
    pub(crate) fn expire(&mut self, direction: Direction) {
        let decision = self.policy(Reason::Deadline);
        if let Some(flight) = self.queue(direction).front() {
            flight.decide(decision);
        }
    }

    /// Applies the policy to the newest packet of a direction, for which there is no request.
    #[cold]
    pub(crate) fn decide_newest(&mut self, direction: Direction, reason: Reason) {
        let decision = self.policy(reason);
        let queue = self.queue(direction);
        if let Some((flight, _)) = queue.waiting(queue.next_number().wrapping_sub(1)) {
            flight.decide(decision);
        }
    }

    /// Whether the P4 VM, which owes answers, has given none for too long.
    #[inline]
    pub(crate) fn is_stalled(&self, now: u64) -> bool {
        self.stall.is_some_and(|s| now.saturating_sub(self.progress) >= s)
    }

    /// Returns when `poll` has to be called next even if no packet arrives; `now` if it has work at once.
    pub(crate) fn next_deadline(&self, now: u64) -> Option<u64> {
        let fronts = self.queues.iter().filter_map(|queue| {
            queue.peek().map(|f| if f.state == FlightState::Waiting { f.deadline } else { now })
        });
        let stall = self.stall.filter(|_| self.owed() != 0).map(|s| self.progress.saturating_add(s));
        let wake = self.wake_due.then_some(self.wake_at);
        let inline = self.has_inline_work().then_some(now);
        fronts.chain(stall).chain(wake).chain(inline).min()
    }
}
