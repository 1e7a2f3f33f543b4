//! Ports that are asked for batches of all sizes, and the batches that were noted.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use p4shield_batch_model::Batch;
use p4shield_switch::{BATCH, BatchLog, BatchTimes, PacketIo, TakenBatches, Ticks};

/// Batches that a log has room for: 2 MiB, beside which packets and tables still fit a cache.
const ROOM: usize = 1 << 17;
/// Orders of the sizes before they repeat.
const ORDERS: usize = 64;

/// Returns an empty log.
pub(super) fn log(ticks: &Ticks) -> BatchLog {
    BatchLog::new(ticks, ROOM)
}

/// The batches of a load.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    pub(super) batches: Vec<Batch>,
    /// Microseconds from the first round to the last one.
    pub(super) micros: f64,
    /// Those in rounds without a packet.
    pub(super) empty: f64,
    /// Packets that the switch received meanwhile, and those of them that it dropped.
    pub(super) received: u64,
    pub(super) dropped: u64,
}

impl Load {
    /// Returns the part of the received packets that were sent.
    pub(super) fn sent(&self) -> f64 {
        // Packets that arrived before may be dropped meanwhile: some are sent in any case.
        (1.0 - self.dropped as f64 / self.received.max(1) as f64).max(0.001)
    }

    /// Adds those of another thread or round.
    pub(super) fn join(&mut self, other: Self) {
        self.batches.extend(other.batches);
        self.micros += other.micros;
        self.empty += other.empty;
        self.received += other.received;
        self.dropped += other.dropped;
    }
}

impl From<TakenBatches> for Load {
    fn from(taken: TakenBatches) -> Self {
        let TakenBatches { batches, span, empty, .. } = taken;
        let batch =
            |BatchTimes { packets, receive, process, send }| Batch { packets, receive, process, send };
        // The program of these rows drops no packet.
        let batches: Vec<_> = batches.into_iter().map(batch).collect();
        Self { batches, micros: span, empty, ..Self::default() }
    }
}

/// The sizes of batches.
pub(super) enum Sizes {
    /// As many packets as there are.
    Natural,
    /// At most so many, by turns.
    Limits(Box<[u8]>, usize),
}

impl Sizes {
    /// Returns all sizes in shuffled orders: a steady one would let the processor foresee each.
    pub(super) fn shuffled() -> Self {
        let mut state = 34_u32;
        let mut limits = Vec::new();
        for _ in 0..ORDERS {
            let first = limits.len();
            limits.extend(1..=BATCH as u8);
            for n in (1..BATCH).rev() {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                limits.swap(first + n, first + (state >> 8) as usize % (n + 1));
            }
        }
        Self::Limits(limits.into(), 0)
    }

    fn limit(&self, most: usize) -> usize {
        match self {
            Self::Natural => most,
            Self::Limits(limits, next) => most.min(limits[*next].into()),
        }
    }

    fn advance(&mut self) {
        if let Self::Limits(limits, next) = self {
            *next = (*next + 1) % limits.len();
        }
    }
}

/// Ports whose batches have these sizes at most.
pub(super) struct Limited<I> {
    io: I,
    sizes: Sizes,
}

impl<I> Limited<I> {
    pub(super) const fn new(io: I, sizes: Sizes) -> Self {
        Self { io, sizes }
    }
}

impl<I: PacketIo> PacketIo for Limited<I> {
    type Error = I::Error;

    fn ports(&self) -> usize {
        self.io.ports()
    }

    #[inline]
    fn receive(&mut self, port: usize, most: usize, each: impl FnMut(&[u8])) -> Result<usize, I::Error> {
        self.io.receive(port, self.sizes.limit(most), each)
    }

    #[inline]
    fn send(&mut self, port: usize, packet: &[u8]) -> bool {
        self.io.send(port, packet)
    }

    fn is_up(&self, port: usize) -> bool {
        self.io.is_up(port)
    }

    #[inline]
    fn flush(&mut self) -> Result<(), I::Error> {
        self.sizes.advance();
        self.io.flush()
    }

    fn wait(&mut self, longest: Duration, bell: Option<BorrowedFd<'_>>) -> Result<(), I::Error> {
        self.io.wait(longest, bell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::opened::in_memory;
    use std::collections::BTreeMap;

    /// Plays rounds that ask for this many packets, and returns how many each received.
    fn play(rounds: usize, most: usize) -> Vec<usize> {
        let mut ports = Limited::new(in_memory(64, 1).first, Sizes::shuffled());
        let round = |_| {
            let received = ports.receive(0, most, |_| ()).unwrap();
            ports.flush().unwrap();
            received
        };
        (0..rounds).map(round).collect()
    }

    #[test]
    fn every_size_is_as_frequent_in_a_shuffled_order() {
        let received = play(320, BATCH);
        let mut sizes = BTreeMap::new();
        for packets in &received {
            *sizes.entry(*packets).or_insert(0) += 1;
        }
        assert_eq!(sizes, (1..=32).map(|n| (n, 10)).collect());
        assert_ne!(received[..32], (1..=32).collect::<Vec<_>>());
        assert_ne!(received[..32], received[32..64]);
    }

    #[test]
    fn the_switch_asks_for_no_more_than_it_has_room_for() {
        assert!(play(64, 4).iter().all(|packets| (1..=4).contains(packets)));
    }

    #[test]
    fn a_load_has_the_noted_batches_and_times() {
        let of = |packets| BatchTimes { packets, receive: 1.0, process: 2.0, send: 3.0 };
        let taken = TakenBatches { batches: vec![of(1), of(2)], span: 20.0, empty: 5.0, missed: 7 };
        let mut load = Load::from(taken.clone());
        load.join(taken.into());
        let Load { batches, micros, empty, .. } = load;
        assert_eq!((batches.len(), micros, empty), (4, 40.0, 10.0));
        assert_eq!(batches[1], Batch { packets: 2, receive: 1.0, process: 2.0, send: 3.0 });
    }
}
