//! Into a queue, out of it, and on to the next.

use crate::config::FailPolicy;
use crate::counters::Runs;
use crate::mediator::{Burst, Mediator};
use crate::packet::{Outcome, Packet, Reason, Released};
use crate::queue::{Flight, State};
use p4shield_abi::Direction;

impl<P: Packet> Mediator<P> {
    /// Puts a packet into a queue, or decides it at once. What comes out is it, or the one that makes room for it.
    ///
    /// Only an egress queue leads on, and only into an ingress queue, so this comes back to itself twice at most.
    #[inline]
    pub(crate) fn enter(
        &mut self,
        now: u64,
        direction: Direction,
        mut flight: Flight,
        packet: P,
        runs: &mut Runs,
    ) -> Option<Released<P>> {
        let t = usize::from(flight.vm.tenant);
        runs.came(&self.counters, flight.vm, direction, packet.len());
        let tenant = &mut self.tenants[t];
        if tenant.queue(direction).is_full() {
            return self.enter_full(now, direction, flight, packet, runs);
        }
        flight.deadline = tenant.deadline_from(now);
        if let Err(reason) = tenant.ask(now, direction, &flight, &packet) {
            flight.state = tenant.policy(reason);
            return self.enter_unasked(now, direction, flight, packet, runs);
        }
        tenant.queue(direction).push(flight, packet);
        // A P4 VM need not wait for the end of a long burst.
        if tenant.has_batch() {
            tenant.publish(now, &self.counters.tenants[t]);
        }
        self.expect_answers(t);
        None
    }

    /// Puts a packet into a queue that is full: it goes, or the oldest goes in its place.
    #[cold]
    fn enter_full(
        &mut self,
        now: u64,
        direction: Direction,
        mut flight: Flight,
        packet: P,
        runs: &mut Runs,
    ) -> Option<Released<P>> {
        let t = usize::from(flight.vm.tenant);
        if self.tenants[t].fail() == FailPolicy::Drop {
            flight.state = State::Dropped(Reason::Full);
            return self.leave(now, direction, flight, packet, runs);
        }
        let ejected = self.eject(now, t, direction, runs);
        let tenant = &mut self.tenants[t];
        flight.deadline = tenant.deadline_from(now);
        if let Err(reason) = tenant.ask(now, direction, &flight, &packet) {
            flight.state = tenant.policy(reason);
        }
        // Even one that is let through: another must not come out besides the one that was ejected.
        tenant.queue(direction).push(flight, packet);
        self.expect_answers(t);
        ejected
    }

    /// A packet that its P4 VM could not be asked about. If it is dropped it overtakes nobody, nor does it if it is let
    /// through with nobody before it.
    #[cold]
    fn enter_unasked(
        &mut self,
        now: u64,
        direction: Direction,
        flight: Flight,
        packet: P,
        runs: &mut Runs,
    ) -> Option<Released<P>> {
        let t = usize::from(flight.vm.tenant);
        let queue = self.tenants[t].queue(direction);
        if matches!(flight.state, State::Dropped(_)) || queue.is_empty() {
            return self.leave(now, direction, flight, packet, runs);
        }
        queue.push(flight, packet);
        self.activate(t);
        None
    }

    /// Notes that a tenant has something to publish and to wait for.
    #[inline]
    fn expect_answers(&mut self, t: usize) {
        let tenant = &mut self.tenants[t];
        if !tenant.dirty {
            tenant.dirty = true;
            // There are no more tenants than a u16 numbers.
            self.dirty.push(t as u16);
        }
        self.activate(t);
    }

    /// Lets the oldest packet of a full queue go, so that a new one can come.
    fn eject(&mut self, now: u64, t: usize, direction: Direction, runs: &mut Runs) -> Option<Released<P>> {
        let tenant = &mut self.tenants[t];
        let policy = tenant.policy(Reason::Full);
        let (flight, packet) = tenant.queue(direction).pop()?;
        let mut flight = *flight;
        if flight.state == State::Waiting {
            flight.state = policy;
        }
        self.leave(now, direction, flight, packet, runs)
    }

    /// Gives out the packets at the front of a queue that are decided: by verdict, or by the clock if they may
    /// `expire`. They came in the order of their deadlines, so one look at the clock ends it.
    #[inline]
    pub(crate) fn drain(
        &mut self,
        now: u64,
        t: usize,
        direction: Direction,
        expire: bool,
        burst: &mut Burst<impl FnMut(Released<P>)>,
    ) {
        loop {
            let tenant = &mut self.tenants[t];
            let Some(front) = tenant.queue(direction).front() else { return };
            match front.state {
                State::Passed if burst.room != 0 => {}
                State::Waiting if expire && front.deadline <= now => {
                    tenant.expire(direction);
                    continue;
                }
                State::LetThrough(_) if burst.room != 0 => {}
                State::Dropped(_) => {}
                State::Waiting | State::Passed | State::LetThrough(_) => return,
            }
            let Some((flight, packet)) = tenant.queue(direction).pop() else { return };
            let flight = *flight;
            if let Some(released) = self.leave(now, direction, flight, packet, &mut burst.runs) {
                burst.room -= usize::from(released.outcome == Outcome::Pass);
                (burst.sink)(released);
            }
        }
    }

    /// Counts a packet that leaves a queue, and sends it where it goes: on to the receiver's ingress, or out.
    #[inline]
    fn leave(
        &mut self,
        now: u64,
        direction: Direction,
        flight: Flight,
        packet: P,
        runs: &mut Runs,
    ) -> Option<Released<P>> {
        if flight.state == State::Passed {
            runs.passed(&self.counters, flight.vm, direction, packet.len());
        } else {
            runs.unjudged(&self.counters, &flight, packet.len(), direction);
            if let State::Dropped(reason) = flight.state {
                return Some(Released { packet, outcome: Outcome::Drop(reason) });
            }
        }
        match flight.next {
            Some(vm) => self.lead_on(now, Flight { vm, next: None, state: State::Waiting, ..flight }, packet, runs),
            None => Some(Released { packet, outcome: Outcome::Pass }),
        }
    }

    /// Puts a packet that has left its sender's egress into its receiver's ingress.
    #[inline(never)]
    fn lead_on(&mut self, now: u64, flight: Flight, packet: P, runs: &mut Runs) -> Option<Released<P>> {
        self.enter(now, Direction::Ingress, flight, packet, runs)
    }
}
