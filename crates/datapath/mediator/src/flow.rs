//! Into a queue, out of it, and on to the next.

use crate::config::FailPolicy;
use crate::counters::Runs;
use crate::mediator::{Burst, Mediator};
use crate::packet::{Disposition, Packet, Reason, ReleasedPacket};
use crate::queue::{Flight, Owner, State};
use p4shield_abi::Direction;

impl<P: Packet> Mediator<P> {
    /// Puts a packet into a queue, or decides it at once. What comes out is it, or the one that makes room for it.
    ///
    /// Only an egress queue leads on, and only into an ingress queue, so this comes back to itself twice at most. Part of its
    /// two callers, since what is known of a packet is better kept in registers than in a structure that is passed on.
    #[inline(always)]
    pub(crate) fn enter(
        &mut self,
        now: u64,
        direction: Direction,
        mut flight: Flight,
        packet: P,
        runs: &mut Runs,
    ) -> Option<ReleasedPacket<P>> {
        let t = flight.vm.tenant();
        runs.came(&self.counters, flight.vm, direction, (1, packet.len() as u64));
        let tenant = &mut self.tenants[t];
        if tenant.queue(direction).is_full() {
            return self.enter_full(now, direction, flight, packet, runs);
        }
        flight.deadline = tenant.deadline_from(now);
        if let Err(reason) = tenant.hold(now, direction, flight, packet, &self.ports) {
            return self.enter_unasked(now, t, direction, reason, runs);
        }
        // A P4 VM need not wait for the end of a long burst.
        if tenant.has_batch() {
            tenant.publish(now, &self.counters.tenants[t]);
        }
        self.expect_answers(t);
        None
    }

    /// Puts packets about which the same was decided into their queue and asks their P4 VM about them: `packet`, and those
    /// that follow in `rest` as long as they are `same` and there is room. Returns the packet after them, or gives `packet`
    /// back if there is no room or no P4 VM to ask.
    ///
    /// What [`Self::enter`] looks up for each packet is looked up once here.
    #[inline(always)]
    pub(crate) fn enter_together(
        &mut self,
        now: u64,
        direction: Direction,
        mut flight: Flight,
        (packet, rest): (P, &mut impl Iterator<Item = P>),
        same: impl Fn(&P) -> bool,
        runs: &mut Runs,
    ) -> Result<Option<P>, P> {
        let t = flight.vm.tenant();
        let tenant = &mut self.tenants[t];
        flight.deadline = tenant.deadline_from(now);
        let Some(mut asking) = tenant.asking(now, direction, self.ports.get(flight.port).number) else {
            return Err(packet);
        };
        let (mut count, mut bytes, mut next) = (0, 0, packet);
        let after = loop {
            count += 1;
            bytes += next.len() as u64;
            asking.ask(flight, next);
            match rest.next() {
                Some(packet) if asking.has_room() && same(&packet) => next = packet,
                after => break after,
            }
        };
        runs.came(&self.counters, flight.vm, direction, (count, bytes));
        // A P4 VM need not wait for the end of a long burst.
        if tenant.has_batch() {
            tenant.publish(now, &self.counters.tenants[t]);
        }
        self.expect_answers(t);
        Ok(after)
    }

    /// Puts a packet into a queue that is full: it goes, or the oldest goes in its place.
    #[cold]
    #[inline(never)]
    fn enter_full(
        &mut self,
        now: u64,
        direction: Direction,
        mut flight: Flight,
        packet: P,
        runs: &mut Runs,
    ) -> Option<ReleasedPacket<P>> {
        let t = flight.vm.tenant();
        if self.tenants[t].fail() == FailPolicy::Drop {
            flight.decide((State::Dropped, Reason::Full));
            return self.leave(now, direction, flight, packet, runs);
        }
        let ejected = self.eject(now, t, direction, runs);
        let tenant = &mut self.tenants[t];
        flight.deadline = tenant.deadline_from(now);
        if let Err(reason) = tenant.hold(now, direction, flight, packet, &self.ports) {
            // It is let through and stays held: another must not come out besides the one that was ejected.
            tenant.decide_newest(direction, reason);
        }
        self.expect_answers(t);
        ejected
    }

    /// The newest packet could not be judged. If it is dropped it overtakes nobody, nor does it if it is let through with
    /// nobody before it.
    #[cold]
    #[inline(never)]
    fn enter_unasked(
        &mut self,
        now: u64,
        t: usize,
        direction: Direction,
        reason: Reason,
        runs: &mut Runs,
    ) -> Option<ReleasedPacket<P>> {
        let tenant = &mut self.tenants[t];
        tenant.decide_newest(direction, reason);
        if tenant.fail() == FailPolicy::Drop || tenant.queue(direction).len() == 1 {
            let (flight, packet) = tenant.queue(direction).pop_back()?;
            return self.leave(now, direction, flight, packet, runs);
        }
        self.activate(t);
        None
    }

    /// Notes that a tenant has something to publish and to wait for.
    #[inline]
    fn expect_answers(&mut self, t: usize) {
        let tenant = &mut self.tenants[t];
        if !(tenant.dirty & tenant.active) {
            self.enlist(t);
        }
    }

    #[cold]
    #[inline(never)]
    fn enlist(&mut self, t: usize) {
        let tenant = &mut self.tenants[t];
        if !tenant.dirty {
            tenant.dirty = true;
            // There are no more tenants than a u16 numbers.
            self.dirty.push(t as u16);
        }
        self.activate(t);
    }

    /// Lets the oldest packet of a full queue go, so that a new one can come.
    fn eject(
        &mut self,
        now: u64,
        t: usize,
        direction: Direction,
        runs: &mut Runs,
    ) -> Option<ReleasedPacket<P>> {
        let tenant = &mut self.tenants[t];
        let policy = tenant.policy(Reason::Full);
        let (flight, packet) = tenant.queue(direction).pop()?;
        let mut flight = *flight;
        if flight.state == State::Waiting {
            flight.decide(policy);
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
        burst: &mut Burst<impl FnMut(ReleasedPacket<P>)>,
    ) {
        loop {
            let tenant = &mut self.tenants[t];
            if burst.room != 0
                && let Some((owner, packet)) = tenant.queue(direction).pop_passed()
            {
                burst.pass(&self.counters, owner, direction, packet);
                continue;
            }
            let Some(front) = tenant.queue(direction).front() else { return };
            if front.state == State::Waiting {
                if !expire || front.deadline > now {
                    return;
                }
                tenant.expire(direction);
                continue;
            }
            if burst.room == 0 && front.state != State::Dropped {
                return;
            }
            let Some((flight, packet)) = tenant.queue(direction).pop() else { return };
            let flight = *flight;
            if let Some(released) = self.leave(now, direction, flight, packet, &mut burst.runs) {
                burst.room -= usize::from(released.disposition == Disposition::Pass);
                (burst.sink)(released);
            }
        }
    }

    /// Counts a packet that leaves a queue, and sends it where it goes: on to the receiver's ingress, or out.
    fn leave(
        &mut self,
        now: u64,
        direction: Direction,
        flight: Flight,
        packet: P,
        runs: &mut Runs,
    ) -> Option<ReleasedPacket<P>> {
        if flight.state == State::Passed {
            runs.passed(&self.counters, flight.vm, direction, packet.len());
        } else {
            runs.unjudged(&self.counters, &flight, packet.len(), direction);
            if flight.state == State::Dropped {
                return Some(ReleasedPacket { packet, disposition: Disposition::Drop(flight.reason) });
            }
        }
        if flight.next == Owner::NOBODY {
            return Some(ReleasedPacket { packet, disposition: Disposition::Pass });
        }
        // Into its receiver's ingress.
        let flight = Flight { vm: flight.next, next: Owner::NOBODY, state: State::Waiting, ..flight };
        self.enter_alone(now, Direction::Ingress, flight, packet, runs)
    }

    /// As [`Self::enter`], as a function of its own.
    #[inline(never)]
    pub(crate) fn enter_alone(
        &mut self,
        now: u64,
        direction: Direction,
        flight: Flight,
        packet: P,
        runs: &mut Runs,
    ) -> Option<ReleasedPacket<P>> {
        self.enter(now, direction, flight, packet, runs)
    }
}
