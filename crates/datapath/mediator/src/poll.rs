//! Poll: requests are published, answers taken ([`crate::verdict`]) and decided packets released
//! ([`crate::release`]).

use crate::counters::CounterBatch;
use crate::mediator::Mediator;
use crate::output::PollOutput;
use crate::packet::{Packet, ReleasedPacket};
use crate::rewrite_check::Switch;
use p4shield_abi::Direction;

impl<P: Packet> Mediator<P> {
    /// Publishes requests, takes answers, and releases decided packets: all that are dropped, and at
    /// most `max` that pass (the room in the caller's burst). The attachment calls it continuously,
    /// also without a submission. Returns how many packets passed.
    pub fn poll(&mut self, now: u64, max: usize, sink: impl FnMut(ReleasedPacket<P>)) -> usize {
        if self.active.is_empty() && self.dirty.is_empty() {
            return 0;
        }
        self.flush(now);
        let mut output = PollOutput { room: max, sink, counts: CounterBatch::default() };
        self.poll_tenants(now, &mut output);
        // A packet that one inline engine judged may go on to another one, and need not wait for the
        // next poll.
        if self.active.iter().any(|t| self.tenants[usize::from(*t)].has_inline_work()) {
            self.poll_tenants(now, &mut output);
        }
        output.counts.store(&self.counters);
        self.flush(now);
        self.turn = self.turn.wrapping_add(1);
        let tenants = &mut self.tenants;
        self.active.retain(|t| {
            let tenant = &mut tenants[usize::from(*t)];
            tenant.active = tenant.is_busy();
            tenant.active
        });
        max - output.room
    }

    /// Takes the answers of each active tenant and releases its decided packets.
    fn poll_tenants(&mut self, now: u64, output: &mut PollOutput<impl FnMut(ReleasedPacket<P>)>) {
        let count = self.active.len();
        for i in 0..count {
            let t = usize::from(self.active[self.turn.wrapping_add(i) % count]);
            let tenant = &mut self.tenants[t];
            let room = output.room;
            let check = self.rewrite_check.as_deref();
            let switch = Switch { lookup: &self.lookup, ports: &self.ports, check };
            // A packet whose answer is still in the ring, behind as many as one poll takes, is not late.
            let expire = tenant.collect(now, switch, (&self.counters, t), output);
            for direction in Direction::ALL {
                self.release_decided(now, t, direction, expire, output);
            }
            if output.room != room {
                self.last_passed = Some(t);
            }
        }
    }

    /// Publishes the requests of submitted packets. [`Self::submit_burst`] and [`Self::poll`] do it, too.
    #[inline]
    pub fn flush(&mut self, now: u64) {
        while let Some(t) = self.dirty.pop() {
            let t = usize::from(t);
            self.tenants[t].dirty = false;
            self.tenants[t].publish(now, &self.counters.tenants[t]);
        }
    }

    /// Reports that the packets which [`Self::poll`] released have been sent. The P4 VM of the last
    /// packet that passed is notified once, and no other one. Optional: without it, a P4 VM that
    /// shares a core with the packets' receiver yields the core later.
    #[inline]
    pub fn notify_sent(&mut self) {
        if let Some(t) = self.last_passed.take()
            && let Some(channel) = self.tenants[t].channel_mut()
        {
            channel.requester.notify_sent();
        }
    }
}
