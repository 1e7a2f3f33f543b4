//! Queues: packets that wait for a port with a rate.
//!
//! In a program that reads how long packets waited, they wait between ingress and egress; in any other,
//! behind egress, which makes no difference to it. A queue is first in, first out, and drops a packet that
//! finds it full. Its buffers are allocated when it is made.

use p4shield_abi::channel::MAX_HEADER_BYTES;
use p4shield_abi::division::MAX_BLOCK_SIZE;
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
    /// When it came.
    pub(crate) since_ns: u64,
    /// The packets before it then.
    pub(crate) behind: u32,
}

/// The queue of a port.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) limits: QueueLimits,
    waiting: VecDeque<Waiting>,
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
            waiting: VecDeque::with_capacity(depth as usize),
            spare: std::iter::repeat_with(buffer).take(depth as usize).collect(),
            next_ns: 0,
            dropped: 0,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Appends a packet. Returns false, and counts it, if the queue is full.
    pub(crate) fn push(
        &mut self,
        entry: Option<Entry>,
        bytes: &[u8],
        block: &[u8],
        meta: &Meta,
        now_ns: u64,
    ) -> bool {
        let Some(mut packet) = self.spare.pop() else {
            self.dropped += 1;
            return false;
        };
        (packet.entry, packet.meta, packet.since_ns) = (entry, *meta, now_ns);
        packet.behind = self.waiting.len() as u32;
        packet.bytes.clear();
        packet.bytes.extend_from_slice(bytes);
        packet.block.clear();
        packet.block.extend_from_slice(block);
        self.waiting.push_back(packet);
        true
    }

    /// Removes the first packet if it may leave by now, or if `any`.
    pub(crate) fn pop(&mut self, now_ns: u64, any: bool) -> Option<Waiting> {
        if !any && self.next_ns > now_ns {
            return None;
        }
        let packet = self.waiting.pop_front()?;
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
        (!self.waiting.is_empty()).then_some(self.next_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes packets of 125 bytes at once, and returns when each leaves, in microseconds.
    fn leave(limits: QueueLimits, count: usize, start_ns: u64) -> Vec<u64> {
        let mut queue = Queue::new(limits).unwrap();
        for _ in 0..count {
            assert!(queue.push(None, &[0; 125], &[], &Meta::default(), start_ns));
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
        let pushed = [0; 3].map(|_| queue.push(None, &[1], &[], &Meta::default(), 0));
        assert_eq!((pushed, queue.len(), queue.dropped), ([true, true, false], 2, 1));
        let first = queue.pop(0, false).unwrap();
        queue.done(first);
        assert!(queue.push(None, &[1], &[], &Meta::default(), 0));
    }
}
