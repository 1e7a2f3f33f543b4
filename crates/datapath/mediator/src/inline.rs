//! Placement `inline`: programs that run in the switch's own thread, without a P4 VM.

use crate::counters::Counters;
use crate::output::PollOutput;
use crate::packet::{Packet, ReleasedPacket};
use crate::queue::Queue;
use crate::rewrite_check::Switch;
use crate::{request, verdict};
use p4shield_abi::channel::Request;
use p4shield_abi::{Direction, Verdict};
use p4shield_channel::{CheckedAnswer, HeaderRewrite, Response};

/// A tenant's programs in the mediator's process.
///
/// All threads of the switch share one set of a tenant's maps, so one mediator at a time uses the
/// programs. A mediator that finds the engine in use does not wait: a later poll judges its packets,
/// within their deadline or not, like those of a busy P4 VM.
pub trait InlineEngine: Send {
    /// Acquires the programs and calls `work` with them. Returns false, without a call, if another
    /// thread uses them.
    fn run(&mut self, work: &mut dyn FnMut(&mut dyn InlineBatch)) -> bool;
}

/// The programs of a tenant while [`InlineEngine::run`] has acquired them.
pub trait InlineBatch {
    /// Returns the most header bytes of a packet that a program reads or replaces, as over a channel.
    fn header_bytes(&self) -> usize;

    /// Judges a packet that begins with `header`; `request.copy_len` is its length, at most
    /// [`Self::header_bytes`].
    ///
    /// A rewritten header may be longer. If its `packet_len` is outside the limits of
    /// [`Response::Rewritten`], the mediator drops the packet.
    fn judge(&mut self, request: &Request, header: &[u8]) -> Response<'_>;
}

/// Judges the packets of a tenant's queues from number `next` on, unless another thread uses the
/// engine. A mediator that acquires the engine drains both queues, so each packet is judged once.
pub(crate) fn judge_queues<P: Packet>(
    engine: &mut dyn InlineEngine,
    queues: &mut [Queue<P>; 2],
    next: &mut [u64; 2],
    switch: Switch<'_>,
    counters: (&Counters, usize),
    output: &mut PollOutput<impl FnMut(ReleasedPacket<P>)>,
) {
    let ends = queues.each_ref().map(Queue::next_number);
    if *next == ends {
        return;
    }
    let acquired = engine.run(&mut |batch| {
        for direction in Direction::ALL {
            let d = direction as usize;
            // Packets may have left at their deadline, or to make room.
            let mut number = next[d].max(queues[d].front_number());
            while number < ends[d] {
                judge_packet(batch, queues, (number, direction), switch, counters, output);
                number += 1;
            }
        }
    });
    if acquired {
        *next = ends;
    }
}

#[inline]
fn judge_packet<P: Packet>(
    batch: &mut dyn InlineBatch,
    queues: &mut [Queue<P>; 2],
    (number, direction): (u64, Direction),
    switch: Switch<'_>,
    counters: (&Counters, usize),
    output: &mut PollOutput<impl FnMut(ReleasedPacket<P>)>,
) {
    let Some((flight, packet)) = queues[direction as usize].waiting(number) else { return };
    let header = packet.bytes();
    let header = &header[..header.len().min(batch.header_bytes()).min(usize::from(u16::MAX))];
    let replaced = header.len();
    let input_port = switch.ports.get(flight.port).number;
    let request = Request {
        copy_len: replaced as u16,
        ..request::of_flight(number, direction, (flight, packet), input_port)
    };
    let (verdict, rewrite) = match batch.judge(&request, header) {
        Response::Drop => (Verdict::Drop, None),
        Response::Pass => (Verdict::Pass, None),
        Response::Rewritten { header, packet_len } => {
            let longest = (request.packet_len as usize).saturating_sub(replaced).saturating_add(header.len());
            if (header.len()..=longest).contains(&(packet_len as usize)) {
                (Verdict::Pass, Some(HeaderRewrite { replaced, header, packet_len }))
            } else {
                (Verdict::Drop, None)
            }
        }
    };
    let answer = CheckedAnswer { id: request.id, verdict, rewrite };
    verdict::apply(queues, answer, switch, counters, output);
}
