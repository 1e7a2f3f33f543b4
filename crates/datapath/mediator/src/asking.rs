//! Packets on their way to whoever judges them, several in a row: what is the same for all of them is looked up once.

use crate::packet::Packet;
use crate::queue::{Flight, Queue};
use crate::tenant::request;
use p4shield_abi::Direction;
use p4shield_channel::Requester;

/// A tenant's queue and, unless it is judged in place, its channel, with room for some packets of one direction from one
/// port.
pub(crate) struct Asking<'a, P> {
    pub(crate) queue: &'a mut Queue<P>,
    pub(crate) requester: Option<&'a mut Requester>,
    pub(crate) direction: Direction,
    /// Number of the port that the packets came from, as programs see it.
    pub(crate) input_port: u32,
    /// Packets that both have room for, and that are published together.
    pub(crate) room: usize,
}

impl<P: Packet> Asking<'_, P> {
    /// Whether there is room for another packet.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.room != 0
    }

    /// Puts a packet into the queue and asks about it. There is room.
    #[inline(always)]
    pub(crate) fn ask(&mut self, flight: Flight, packet: P) {
        self.room -= 1;
        let number = self.queue.next_number();
        let (flight, packet) = self.queue.push(flight, packet);
        if let Some(requester) = &mut self.requester {
            let request = request(number, self.direction, (flight, packet), self.input_port);
            let pushed = requester.push(&request, packet.bytes());
            debug_assert_eq!(pushed, Ok(()), "there is room");
        }
    }
}
