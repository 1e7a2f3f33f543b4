//! A wire: two sides and what is counted on them.

use p4shield_afxdp::{Frame, FramePool, Statistics};
use p4shield_mediator::PortSpec;

use super::lane::Lane;
use super::packet::Route;
use crate::config::Side;
use crate::counters::SideCounters;

#[derive(Debug)]
pub(super) struct Wire<'p> {
    pub(super) name: String,
    pub(super) generation: u32,
    /// By [`Side`].
    pub(super) sides: [WireSide<'p>; 2],
    specs: [PortSpec; 2],
}

/// One side; without lanes while it has no interface.
#[derive(Debug, Default)]
pub(super) struct WireSide<'p> {
    /// By queue.
    pub(super) lanes: Vec<Lane<'p>>,
    pub(super) counters: SideCounters,
}

impl<'p> Wire<'p> {
    pub(super) fn new(name: String, generation: u32, specs: [PortSpec; 2]) -> Self {
        Self { name, generation, sides: Default::default(), specs }
    }

    /// What the mediator is told about frames from a side.
    pub(super) const fn spec(&self, side: Side) -> PortSpec {
        self.specs[side as usize]
    }

    /// The way to a side, on the queue that corresponds to the one that a frame came on: flows keep their order.
    pub(super) const fn route(&self, slot: usize, side: Side, queue: usize) -> Route {
        Route { slot: slot as u32, generation: self.generation, side, queue: queue as u16 }
    }

    pub(super) fn is_unfinished(&self) -> bool {
        self.sides.iter().flat_map(|s| &s.lanes).any(Lane::is_unfinished)
    }
}

impl<'p> WireSide<'p> {
    /// Sends a frame out of this side, or drops and counts it.
    pub(super) fn send(&mut self, pool: &'p FramePool, frame: Frame<'p>, queue: usize) {
        let bytes = frame.len() as u64;
        let Some(count) = self.lanes.len().checked_sub(1) else {
            self.counters.dropped_no_interface += 1;
            return;
        };
        let queue = if queue <= count { queue } else { queue % (count + 1) };
        if self.lanes[queue].send(pool, frame) {
            self.counters.tx_packets += 1;
            self.counters.tx_bytes += bytes;
        } else {
            self.counters.dropped_full += 1;
        }
    }

    pub(super) const fn total(&self) -> SideCounters {
        self.counters
    }

    /// The kernel's counters over all sockets.
    pub(super) fn statistics(&self) -> Statistics {
        let each = self.lanes.iter().filter_map(|l| l.port.statistics().ok());
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
