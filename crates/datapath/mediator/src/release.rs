//! Release: a decided packet leaves its queue, for the receiver's ingress queue ([`crate::enqueue`])
//! or out of the mediator to the attachment.

use crate::counters::CounterBatch;
use crate::flight::{Flight, FlightState, Owner};
use crate::mediator::Mediator;
use crate::output::PollOutput;
use crate::packet::{Disposition, Packet, ReleasedPacket};
use p4shield_abi::Direction;

impl<P: Packet> Mediator<P> {
    /// Releases the decided packets at the front of a queue: decided by verdict or, if they may
    /// `expire`, by their deadline ([`crate::deadline`]).
    #[inline]
    pub(crate) fn release_decided(
        &mut self,
        now: u64,
        t: usize,
        direction: Direction,
        expire: bool,
        output: &mut PollOutput<impl FnMut(ReleasedPacket<P>)>,
    ) {
        loop {
            let tenant = &mut self.tenants[t];
            if output.room != 0
                && let Some((owner, packet)) = tenant.queue(direction).pop_passed()
            {
                output.pass(&self.counters, owner, direction, packet);
                continue;
            }
            let Some(front) = tenant.queue(direction).front() else { return };
            if front.state == FlightState::Waiting {
                if !expire || front.deadline > now {
                    return;
                }
                tenant.expire(direction);
                continue;
            }
            if output.room == 0 && front.state != FlightState::Dropped {
                return;
            }
            let Some((flight, packet)) = tenant.queue(direction).pop() else { return };
            let flight = *flight;
            if let Some(released) = self.release(now, direction, flight, packet, &mut output.counts) {
                output.room -= usize::from(released.disposition == Disposition::Pass);
                (output.sink)(released);
            }
        }
    }

    /// Counts a packet that leaves a queue, and moves it on to the receiver's ingress queue or out.
    pub(crate) fn release(
        &mut self,
        now: u64,
        direction: Direction,
        flight: Flight,
        packet: P,
        counts: &mut CounterBatch,
    ) -> Option<ReleasedPacket<P>> {
        if flight.state == FlightState::Passed {
            counts.passed(&self.counters, flight.vm, direction, packet.len());
        } else {
            counts.not_passed(&self.counters, &flight, packet.len(), direction);
            if flight.state == FlightState::Dropped {
                return Some(ReleasedPacket { packet, disposition: Disposition::Drop(flight.reason) });
            }
        }
        if flight.next == Owner::NONE {
            return Some(ReleasedPacket { packet, disposition: Disposition::Pass });
        }
        let flight = Flight { vm: flight.next, next: Owner::NONE, state: FlightState::Waiting, ..flight };
        self.enqueue_outlined(now, Direction::Ingress, flight, packet, counts)
    }
}
