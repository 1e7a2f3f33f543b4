//! Queues: packets that wait for a port with a rate.
//!
//! In a program that reads how long packets waited, they wait between ingress and egress; in any other,
//! behind egress, which makes no difference to it. Packets of a greater priority leave first; those of one
//! priority in the order in which they came. A packet that finds its queue full takes the place of the last
//! one of the least priority, if its own is greater, and is dropped otherwise. Buffers are allocated when a
//! queue is made.

use crate::record::RecordId;
use p4shield_abi::channel::MAX_HEADER_BYTES;
use p4shield_abi::division::{MAX_BLOCK_SIZE, PRIORITIES};
use p4shield_bpf::{Entry, Meta};
use std::collections::VecDeque;

/// Most packets of a queue.
pub const MAX_DEPTH: u32 = 1024;
/// Packets of a queue whose depth is not set, as in the reference switch.
pub const DEFAULT_DEPTH: u32 = 64;
/// A queue that was not served in time makes up for this much of it.
const BURST_NS: u64 = 1_000_000;

/// The limits of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLimits {
    /// Packets a second.
    pub packets: Option<u64>,
    /// Bits a second, of Ethernet frames without checksum and preamble.
    pub bits: Option<u64>,
    /// Most packets that wait; [`DEFAULT_DEPTH`] if not set.
    pub depth: Option<u32>,
}

impl QueueLimits {
    /// Returns these limits, and others where these have none.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            packets: self.packets.or(others.packets),
            bits: self.bits.or(others.bits),
            depth: self.depth.or(others.depth),
        }
    }

    /// Returns the time that a packet takes at these rates, in nanoseconds.
    fn cost(&self, bytes: usize) -> u64 {
        let per = |amount: u64, rate: Option<u64>| {
            rate.map_or(0, |r| amount.saturating_mul(1_000_000_000) / r.max(1))
        };
        per(1, self.packets).max(per(8 * bytes as u64, self.bits))
    }
}

/// The reason why limits are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The depth is out of range.
    #[error("a queue holds 1 to {MAX_DEPTH} packets, not {0}")]
    Depth(u32),
    /// A rate is zero.
    #[error("a queue's rate is at least 1 a second; delete the queue to have no limit")]
    Rate,
    /// There is no such port.
    #[error("the switch has no port {0}")]
    NoPort(u16),
}

/// A packet that waits.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Where its run starts; `None` if it only has to be sent.
    pub(crate) entry: Option<Entry>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) block: Vec<u8>,
    pub(crate) meta: Meta,
    /// Runs that may still follow.
    pub(crate) runs: usize,
    /// The record of its steps.
    pub(crate) record: Option<RecordId>,
    /// Its flow, for calls of its egress.
    pub(crate) flow: u16,
    /// When it came.
    pub(crate) since_ns: u64,
    /// The packets before it then.
    pub(crate) behind: u32,
}

/// A packet that arrives at a queue.
pub(crate) struct Arriving<'a> {
    /// Where its run starts; `None` if it only has to be sent.
    pub(crate) entry: Option<Entry>,
    /// Its priority, less than [`PRIORITIES`].
    pub(crate) priority: u8,
    pub(crate) bytes: &'a [u8],
    pub(crate) block: &'a [u8],
    pub(crate) meta: &'a Meta,
    /// Runs that may still follow.
    pub(crate) runs: usize,
    /// The record of its steps.
    pub(crate) record: Option<RecordId>,
    /// Its flow.
    pub(crate) flow: u16,
}

/// The fate of a packet that arrives at a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It waits.
    Waits,
    /// It waits in the place of one of less priority, which is lost, with this record.
    Displaces(Option<RecordId>),
    /// It is lost.
    Lost,
}

/// The queue of a port.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) limits: QueueLimits,
    /// By priority.
    waiting: [VecDeque<Waiting>; PRIORITIES],
    len: usize,
    spare: Vec<Waiting>,
    /// When the next packet may leave.
    next_ns: u64,
    /// Packets that found it full.
    pub(crate) dropped: u64,
}

impl Queue {
    /// Makes a queue.
    ///
    /// # Errors
    /// [`QueueError`].
    pub(crate) fn new(limits: QueueLimits) -> Result<Self, QueueError> {
        let depth = limits.depth.unwrap_or(DEFAULT_DEPTH);
        if !(1..=MAX_DEPTH).contains(&depth) {
            return Err(QueueError::Depth(depth));
        }
        if limits.packets == Some(0) || limits.bits == Some(0) {
            return Err(QueueError::Rate);
        }
        let buffer = || Waiting {
            bytes: Vec::with_capacity(MAX_HEADER_BYTES as usize),
            block: Vec::with_capacity(MAX_BLOCK_SIZE),
            ..Waiting::default()
        };
        Ok(Self {
            limits,
            waiting: std::array::from_fn(|_| VecDeque::with_capacity(depth as usize)),
            len: 0,
            spare: std::iter::repeat_with(buffer).take(depth as usize).collect(),
            next_ns: 0,
            dropped: 0,
        })
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Lets a packet wait, if there is room or one of less priority; one that is lost is counted.
    pub(crate) fn push(&mut self, arriving: &Arriving<'_>, now_ns: u64) -> Pushed {
        let Arriving { entry, priority, bytes, block, meta, runs, record, flow } = arriving;
        let (mut packet, pushed) = match self.spare.pop() {
            Some(packet) => (packet, Pushed::Waits),
            None => {
                self.dropped += 1;
                let Some(packet) = self.displace(*priority) else { return Pushed::Lost };
                let lost = packet.record;
                (packet, Pushed::Displaces(lost))
            }
        };
        (packet.entry, packet.meta, packet.runs, packet.since_ns) = (*entry, **meta, *runs, now_ns);
        (packet.behind, packet.record, packet.flow) = (self.len as u32, *record, *flow);
        packet.bytes.clear();
        packet.bytes.extend_from_slice(bytes);
        packet.block.clear();
        packet.block.extend_from_slice(block);
        self.waiting[usize::from(*priority) % PRIORITIES].push_back(packet);
        self.len += 1;
        pushed
    }

    /// Removes the last packet of the least priority, if that is less than this one.
    fn displace(&mut self, priority: u8) -> Option<Waiting> {
        let less = &mut self.waiting[..usize::from(priority) % PRIORITIES];
        let packet = less.iter_mut().find_map(VecDeque::pop_back)?;
        self.len -= 1;
        Some(packet)
    }

    /// Removes the first packet of the greatest priority if it may leave by now, or if `any`.
    pub(crate) fn pop(&mut self, now_ns: u64, any: bool) -> Option<Waiting> {
        if !any && self.next_ns > now_ns {
            return None;
        }
        let packet = self.waiting.iter_mut().rev().find_map(VecDeque::pop_front)?;
        self.len -= 1;
        self.next_ns =
            self.next_ns.max(now_ns.saturating_sub(BURST_NS)) + self.limits.cost(packet.bytes.len());
        Some(packet)
    }

    /// Takes a packet's buffers back.
    pub(crate) fn done(&mut self, packet: Waiting) {
        self.spare.push(packet);
    }

    /// Returns when the next packet may leave; `None` if none waits.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        (self.len > 0).then_some(self.next_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets a packet of these bytes wait.
    fn push(queue: &mut Queue, priority: u8, bytes: &[u8], now_ns: u64) -> Pushed {
        let meta = &Meta::default();
        let arriving =
            Arriving { entry: None, priority, bytes, block: &[], meta, runs: 0, record: None, flow: 0 };
        queue.push(&arriving, now_ns)
    }

    /// Pushes packets of 125 bytes at once, and returns when each leaves, in microseconds.
    fn leave(limits: QueueLimits, count: usize, start_ns: u64) -> Vec<u64> {
        let mut queue = Queue::new(limits).unwrap();
        for _ in 0..count {
            assert_eq!(push(&mut queue, 0, &[0; 125], start_ns), Pushed::Waits);
        }
        let mut left = Vec::new();
        let mut now = start_ns;
        while let Some(due) = queue.due_ns() {
            now = now.max(due);
            let packet = queue.pop(now, false).unwrap();
            queue.done(packet);
            left.push((now - start_ns) / 1_000);
        }
        left
    }

    #[test]
    fn the_slower_rate_decides_when_packets_leave() {
        let of = |packets, bits| QueueLimits { packets, bits, depth: None };
        let start = 5_000_000_000;
        assert_eq!(leave(of(Some(500), None), 4, start), [0, 1_000, 3_000, 5_000]);
        assert_eq!(leave(of(None, Some(1_000_000)), 4, start), [0, 0, 1_000, 2_000]);
        assert_eq!(leave(of(Some(1_000_000), Some(500_000)), 3, start), [0, 1_000, 3_000]);
        assert_eq!(leave(of(None, None), 3, start), [0, 0, 0]);
    }

    #[test]
    fn a_full_queue_takes_nothing_and_counts_it() {
        let mut queue = Queue::new(QueueLimits { depth: Some(2), ..QueueLimits::default() }).unwrap();
        let pushed = [0; 3].map(|_| push(&mut queue, 0, &[1], 0));
        assert_eq!(pushed, [Pushed::Waits, Pushed::Waits, Pushed::Lost]);
        assert_eq!((queue.len(), queue.dropped), (2, 1));
        let first = queue.pop(0, false).unwrap();
        queue.done(first);
        assert_eq!(push(&mut queue, 0, &[1], 0), Pushed::Waits);
    }

    #[test]
    fn a_greater_priority_leaves_first_and_displaces_the_least() {
        let mut queue = Queue::new(QueueLimits { depth: Some(3), ..QueueLimits::default() }).unwrap();
        for (priority, byte) in [(1, 10), (0, 1), (0, 2)] {
            assert_eq!(push(&mut queue, priority, &[byte], 0), Pushed::Waits);
        }
        assert_eq!(push(&mut queue, 0, &[3], 0), Pushed::Lost);
        assert_eq!(push(&mut queue, 7, &[70], 0), Pushed::Displaces(None));
        assert_eq!(push(&mut queue, 1, &[11], 0), Pushed::Displaces(None));
        assert_eq!(push(&mut queue, 1, &[12], 0), Pushed::Lost);
        assert_eq!((queue.len(), queue.dropped), (3, 4));
        let mut left = Vec::new();
        while let Some(packet) = queue.pop(0, true) {
            left.push(packet.bytes[0]);
            queue.done(packet);
        }
        assert_eq!((left, queue.len()), (vec![70, 10, 11], 0));
    }
}
