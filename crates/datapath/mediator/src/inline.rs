//! Judging in the switch's own thread: placement `inline`.

use crate::counters::Counters;
use crate::lookup::Lookup;
use crate::mediator::Burst;
use crate::packet::{Packet, ReleasedPacket};
use crate::ports::Ports;
use crate::queue::Queue;
use crate::tenant::{request, settle};
use p4shield_abi::channel::Request;
use p4shield_abi::{Direction, Verdict};
use p4shield_channel::{CheckedAnswer, HeaderRewrite, Response};

/// A tenant's programs, in the process of the mediator.
///
/// One tenant's programs have one set of maps, whichever thread of the switch a packet comes to, so they are used by one
/// mediator at a time. A mediator that finds another at it does not wait: its packets are judged at a later poll,
/// within their deadline or not, like those of a P4 VM that is busy.
pub trait InlineEngine: Send {
    /// Has `work` judge packets. False, and nothing happened, if another thread is at it.
    fn run(&mut self, work: &mut dyn FnMut(&mut dyn InlineBatch)) -> bool;
}

/// What judges packets, for the time of [`InlineEngine::run`].
pub trait InlineBatch {
    /// Header bytes of a packet that are looked at and replaced at most, as over a channel.
    fn header_bytes(&self) -> usize;

    /// Judges a packet that begins with `header`; `request.copy_len` is its length, at most [`Self::header_bytes`].
    ///
    /// A rewritten header may be longer. Its `packet_len` lies within what [`Response::Rewritten`] allows; a reply that
    /// does not drops the packet.
    fn judge(&mut self, request: &Request, header: &[u8]) -> Response<'_>;
}

/// Judges what waits in a tenant's queues from `next` on, unless another thread judges for this tenant. Every packet is
/// offered once, and there is nothing to judge twice: who engages with the engine gets to the end of the queues.
pub(crate) fn judge<P: Packet>(
    here: &mut dyn InlineEngine,
    queues: &mut [Queue<P>; 2],
    next: &mut [u64; 2],
    switch: (&Lookup, &Ports),
    counters: (&Counters, usize),
    burst: &mut Burst<impl FnMut(ReleasedPacket<P>)>,
) {
    let ends = queues.each_ref().map(Queue::next_number);
    if *next == ends {
        return;
    }
    let judged = here.run(&mut |engine| {
        for direction in Direction::ALL {
            let d = direction as usize;
            // Some may have left by their deadline, or to make room.
            let mut number = next[d].max(queues[d].front_number());
            while number < ends[d] {
                judge_one(engine, queues, (number, direction), switch, counters, burst);
                number += 1;
            }
        }
    });
    if judged {
        *next = ends;
    }
}

#[inline]
fn judge_one<P: Packet>(
    engine: &mut dyn InlineBatch,
    queues: &mut [Queue<P>; 2],
    (number, direction): (u64, Direction),
    switch: (&Lookup, &Ports),
    counters: (&Counters, usize),
    burst: &mut Burst<impl FnMut(ReleasedPacket<P>)>,
) {
    let Some((flight, packet)) = queues[direction as usize].waiting(number) else { return };
    let header = packet.bytes();
    let header = &header[..header.len().min(engine.header_bytes()).min(usize::from(u16::MAX))];
    let replaced = header.len();
    let input_port = switch.1.get(flight.port).number;
    let asked =
        Request { copy_len: replaced as u16, ..request(number, direction, (flight, packet), input_port) };
    let (verdict, rewrite) = match engine.judge(&asked, header) {
        Response::Drop => (Verdict::Drop, None),
        Response::Pass => (Verdict::Pass, None),
        Response::Rewritten { header, packet_len } => {
            let longest = (asked.packet_len as usize).saturating_sub(replaced).saturating_add(header.len());
            if (header.len()..=longest).contains(&(packet_len as usize)) {
                (Verdict::Pass, Some(HeaderRewrite { replaced, header, packet_len }))
            } else {
                (Verdict::Drop, None)
            }
        }
    };
    settle(queues, CheckedAnswer { id: asked.id, verdict, rewrite }, switch, counters, burst);
}
