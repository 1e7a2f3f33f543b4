//! A wire as the engine sees it: two sides and their counters.

use p4shield_afxdp::{Frame, FramePool, Statistics};
use p4shield_mediator::PortSpec;

use super::packet::Destination;
use super::queue::InterfaceQueue;
use crate::config::WireSide;
use crate::counters::SideCounters;

#[derive(Debug)]
pub(super) struct EngineWire<'p> {
    pub(super) name: String,
    pub(super) generation: u32,
    /// By [`WireSide`].
    pub(super) sides: [EngineSide<'p>; 2],
    specs: [PortSpec; 2],
}

/// One side of a wire. It has no queues while it has no interface.
#[derive(Debug, Default)]
pub(super) struct EngineSide<'p> {
    /// By queue.
    pub(super) queues: Vec<InterfaceQueue<'p>>,
    pub(super) counters: SideCounters,
}

impl<'p> EngineWire<'p> {
    pub(super) fn new(name: String, generation: u32, specs: [PortSpec; 2]) -> Self {
        Self { name, generation, sides: Default::default(), specs }
    }

    pub(super) const fn describe(&mut self, specs: [PortSpec; 2]) {
        self.specs = specs;
    }

    /// Returns the mediator's description of frames from a side.
    pub(super) const fn spec(&self, side: WireSide) -> PortSpec {
        self.specs[side as usize]
    }

    /// Returns the destination on a side for frames from `queue`: the queue with the same number, so
    /// that flows keep their order.
    pub(super) const fn route(&self, slot: usize, side: WireSide, queue: usize) -> Destination {
        Destination { slot: slot as u32, generation: self.generation, side, queue: queue as u16 }
    }

    pub(super) fn is_unfinished(&self) -> bool {
        self.sides.iter().flat_map(|s| &s.queues).any(InterfaceQueue::is_unfinished)
    }
}

impl<'p> EngineSide<'p> {
    /// Sends a frame from this side, or drops and counts it.
    pub(super) fn send(&mut self, pool: &'p FramePool, frame: Frame<'p>, queue: usize) {
        let bytes = frame.len() as u64;
        let Some(count) = self.queues.len().checked_sub(1) else {
            self.counters.dropped_no_interface += 1;
            return;
        };
        let queue = if queue <= count { queue } else { queue % (count + 1) };
        if self.queues[queue].send(pool, frame) {
            self.counters.tx_packets += 1;
            self.counters.tx_bytes += bytes;
        } else {
            self.counters.dropped_full += 1;
        }
    }

    pub(super) const fn total(&self) -> SideCounters {
        self.counters
    }

    /// Returns the sums of the kernel's counters of all sockets.
    pub(super) fn statistics(&self) -> Statistics {
        let each = self.queues.iter().filter_map(|l| l.port.statistics().ok());
        each.fold(Statistics::default(), |a, b| Statistics {
            rx_dropped: a.rx_dropped + b.rx_dropped,
            rx_invalid: a.rx_invalid + b.rx_invalid,
            tx_invalid: a.tx_invalid + b.tx_invalid,
            rx_ring_full: a.rx_ring_full + b.rx_ring_full,
            fill_empty: a.fill_empty + b.fill_empty,
            tx_empty: a.tx_empty + b.tx_empty,
        })
    }
}
