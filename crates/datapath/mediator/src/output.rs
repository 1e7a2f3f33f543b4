//! Output of one poll: where released packets go, and how many may still pass.

use crate::counters::{CounterBatch, Counters};
use crate::flight::Owner;
use crate::packet::{Disposition, Packet, ReleasedPacket};
use p4shield_abi::Direction;

/// Receives the packets that one poll releases.
pub(crate) struct PollOutput<F> {
    /// Packets that may still pass: the room in the caller's burst.
    pub(crate) room: usize,
    pub(crate) sink: F,
    pub(crate) counts: CounterBatch,
}

impl<F> PollOutput<F> {
    /// Releases a packet that its last program passed. The caller has checked that there is room.
    #[inline(always)]
    pub(crate) fn pass<P: Packet>(
        &mut self,
        counters: &Counters,
        owner: Owner,
        direction: Direction,
        packet: P,
    ) where
        F: FnMut(ReleasedPacket<P>),
    {
        self.counts.passed(counters, owner, direction, packet.len());
        self.room -= 1;
        (self.sink)(ReleasedPacket { packet, disposition: Disposition::Pass });
    }
}
