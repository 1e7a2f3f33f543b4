//! Entry into a queue: a packet is held, and its verdict requested ([`crate::request`]).
//!
//! [`crate::poll`] takes the answers.

use crate::config::FailPolicy;
use crate::counters::CounterBatch;
use crate::flight::{Flight, FlightState};
use crate::mediator::Mediator;
use crate::packet::{Packet, Reason, ReleasedPacket};
use p4shield_abi::Direction;

impl<P: Packet> Mediator<P> {
    /// Puts a packet into a queue, or decides it at once. Returns the packet, or the one that makes
    /// room for it.
    ///
    /// Packets move on from an egress queue to an ingress queue only, so the recursion through
    /// [`Self::release`] is at most two deep. Inlined into both callers, to keep the flight in
    /// registers.
    #[inline(always)]
    pub(crate) fn enqueue(
        &mut self,
        now: u64,
        direction: Direction,
        mut flight: Flight,
        packet: P,
        counts: &mut CounterBatch,
    ) -> Option<ReleasedPacket<P>> {
        let t = flight.vm.tenant();
        counts.entered(&self.counters, flight.vm, direction, (1, packet.len() as u64));
        let tenant = &mut self.tenants[t];
        if tenant.queue(direction).is_full() {
            return self.enqueue_full(now, direction, flight, packet, counts);
        }
        flight.deadline = tenant.deadline_from(now);
        if let Err(reason) = tenant.hold(now, direction, flight, packet, &self.ports) {
            return self.decide_unrequested(now, t, direction, reason, counts);
        }
        // A P4 VM need not wait for the end of a long burst.
        if tenant.has_batch() {
            tenant.publish(now, &self.counters.tenants[t]);
        }
        self.mark_pending(t);
        None
    }

    /// Puts packets with the same admission into their queue: `packet`, and the next ones of `rest`
    /// while they are `same` and there is room. Returns the packet after them, or `packet` if there
    /// is no room, P4 VM or inline engine.
    ///
    /// What [`Self::enqueue`] looks up for each packet is looked up once here.
    #[inline(always)]
    pub(crate) fn enqueue_flow(
        &mut self,
        now: u64,
        direction: Direction,
        mut flight: Flight,
        (packet, rest): (P, &mut impl Iterator<Item = P>),
        same: impl Fn(&P) -> bool,
        counts: &mut CounterBatch,
    ) -> Result<Option<P>, P> {
        let t = flight.vm.tenant();
        let tenant = &mut self.tenants[t];
        flight.deadline = tenant.deadline_from(now);
        let input_port = self.ports.get(flight.port).number;
        let Some(mut submission) = tenant.submission(now, direction, input_port) else {
            return Err(packet);
        };
        let (mut count, mut bytes, mut next) = (0, 0, packet);
        let after = loop {
            count += 1;
            bytes += next.len() as u64;
            submission.push(flight, next);
            match rest.next() {
                Some(packet) if submission.has_room() && same(&packet) => next = packet,
                after => break after,
            }
        };
        counts.entered(&self.counters, flight.vm, direction, (count, bytes));
        // A P4 VM need not wait for the end of a long burst.
        if tenant.has_batch() {
            tenant.publish(now, &self.counters.tenants[t]);
        }
        self.mark_pending(t);
        Ok(after)
    }

    /// Decides about a packet whose queue is full: the policy drops it, or lets the oldest packet
    /// through in its place.
    #[cold]
    #[inline(never)]
    fn enqueue_full(
        &mut self,
        now: u64,
        direction: Direction,
        mut flight: Flight,
        packet: P,
        counts: &mut CounterBatch,
    ) -> Option<ReleasedPacket<P>> {
        let t = flight.vm.tenant();
        if self.tenants[t].fail == FailPolicy::Drop {
            flight.decide((FlightState::Dropped, Reason::Full));
            return self.release(now, direction, flight, packet, counts);
        }
        let evicted = self.evict_oldest(now, t, direction, counts);
        let tenant = &mut self.tenants[t];
        flight.deadline = tenant.deadline_from(now);
        if let Err(reason) = tenant.hold(now, direction, flight, packet, &self.ports) {
            // It is let through but stays held, since only one packet may come out, and that is the
            // evicted one.
            tenant.decide_newest(direction, reason);
        }
        self.mark_pending(t);
        evicted
    }

    /// Decides about the newest packet, for which no verdict can be requested. It comes out at once
    /// if that keeps the order: if it is dropped, or no packet is before it.
    #[cold]
    #[inline(never)]
    fn decide_unrequested(
        &mut self,
        now: u64,
        t: usize,
        direction: Direction,
        reason: Reason,
        counts: &mut CounterBatch,
    ) -> Option<ReleasedPacket<P>> {
        let tenant = &mut self.tenants[t];
        tenant.decide_newest(direction, reason);
        if tenant.fail == FailPolicy::Drop || tenant.queue(direction).len() == 1 {
            let (flight, packet) = tenant.queue(direction).pop_back()?;
            return self.release(now, direction, flight, packet, counts);
        }
        self.activate(t);
        None
    }

    /// Notes that a tenant has requests to publish and answers to await.
    #[inline]
    fn mark_pending(&mut self, t: usize) {
        let tenant = &mut self.tenants[t];
        if !(tenant.dirty & tenant.active) {
            self.add_pending(t);
        }
    }

    #[cold]
    #[inline(never)]
    fn add_pending(&mut self, t: usize) {
        let tenant = &mut self.tenants[t];
        if !tenant.dirty {
            tenant.dirty = true;
            // `Config::check` limits the tenants to what a u16 can index.
            self.dirty.push(t as u16);
        }
        self.activate(t);
    }

    /// Takes the oldest packet out of a full queue.
    fn evict_oldest(
        &mut self,
        now: u64,
        t: usize,
        direction: Direction,
        counts: &mut CounterBatch,
    ) -> Option<ReleasedPacket<P>> {
        let tenant = &mut self.tenants[t];
        let policy = tenant.policy(Reason::Full);
        let (flight, packet) = tenant.queue(direction).pop()?;
        let mut flight = *flight;
        if flight.state == FlightState::Waiting {
            flight.decide(policy);
        }
        self.release(now, direction, flight, packet, counts)
    }

    /// [`Self::enqueue`] as a function of its own.
    #[inline(never)]
    pub(crate) fn enqueue_outlined(
        &mut self,
        now: u64,
        direction: Direction,
        flight: Flight,
        packet: P,
        counts: &mut CounterBatch,
    ) -> Option<ReleasedPacket<P>> {
        self.enqueue(now, direction, flight, packet, counts)
    }
}
