//! Requests for the verdict of held packets, and the numbering that relates answers to packets.
//!
//! A request enters the tenant's channel ([`p4shield_channel::Requester`]); [`crate::wakeup`]
//! publishes it. The P4 VM fetches it with [`p4shield_channel::Responder`].

use crate::flight::Flight;
use crate::packet::{Packet, Reason};
use crate::ports::Ports;
use crate::queue::Queue;
use p4shield_abi::Direction;
use p4shield_abi::channel::Request;
use p4shield_channel::{PushRefused, Requester};

/// Returns the id of a request: the packet's number in its queue, and in bit 0 the direction, which
/// selects the queue.
const fn id_of(number: u64, direction: Direction) -> u64 {
    number << 1 | direction as u64
}

/// Returns number and direction of a request id.
pub(crate) const fn parse_id(id: u64) -> (u64, Direction) {
    (id >> 1, if id & 1 == 0 { Direction::Ingress } else { Direction::Egress })
}

/// Returns the request for the verdict of a held packet.
#[inline(always)]
pub(crate) fn of_flight<P: Packet>(
    number: u64,
    direction: Direction,
    (flight, packet): (&Flight, &P),
    input_port: u32,
) -> Request {
    Request {
        id: id_of(number, direction),
        timestamp_ns: flight.received,
        packet_len: u32::try_from(packet.len()).unwrap_or(u32::MAX),
        input_port,
        copy_len: 0,
        vm: flight.vm.vm().vm,
        direction: direction as u8,
        reserved: [0; 3],
    }
}

/// Pushes the request for a held packet into a channel.
///
/// # Errors
/// Reason why the channel refuses it.
#[inline(always)]
pub(crate) fn push<P: Packet>(
    requester: &mut Requester,
    number: u64,
    direction: Direction,
    (flight, packet): (&Flight, &P),
    ports: &Ports,
) -> Result<(), Reason> {
    let request = of_flight(number, direction, (flight, packet), ports.get(flight.port).number);
    requester.push(&request, packet.bytes()).map_err(|refused| match refused {
        PushRefused::Full => Reason::Full,
        PushRefused::Faulted(_) => Reason::Fault,
    })
}

/// Puts several packets of one VM, direction and port into their queue, and their requests into the
/// channel. What is the same for all of them is looked up once.
pub(crate) struct FlowSubmission<'a, P> {
    pub(crate) queue: &'a mut Queue<P>,
    /// The tenant's channel; none for an inline engine, which reads the queue.
    pub(crate) requester: Option<&'a mut Requester>,
    pub(crate) direction: Direction,
    /// Number of the input port, as programs read it.
    pub(crate) input_port: u32,
    /// Packets for which queue, channel and batch have room.
    pub(crate) room: usize,
}

impl<P: Packet> FlowSubmission<'_, P> {
    /// Whether there is room for another packet.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.room != 0
    }

    /// Puts a packet into the queue and pushes its request. The caller has checked that there is room.
    #[inline(always)]
    pub(crate) fn push(&mut self, flight: Flight, packet: P) {
        self.room -= 1;
        let number = self.queue.next_number();
        let (flight, packet) = self.queue.push(flight, packet);
        if let Some(requester) = &mut self.requester {
            let request = of_flight(number, self.direction, (flight, packet), self.input_port);
            let pushed = requester.push(&request, packet.bytes());
            debug_assert_eq!(pushed, Ok(()), "there is room");
        }
    }
}
