//! Ports that note the times of each batch, without an allocation and without a system call.
//!
//! A round of the switch is a batch. Of each, three times are noted:
//!
//! * receiving: inside [`PacketIo::receive`], which copies each packet into the switch's buffer,
//! * processing: from there to the start of [`PacketIo::flush`]: the program's runs, the traffic manager, and
//!   [`PacketIo::send`], which copies each packet into a buffer of the device,
//! * sending: inside [`PacketIo::flush`].

use std::os::fd::BorrowedFd;
use std::time::Duration;

use p4shield_batch_model::Batch;
use p4shield_switch::{BATCH, PacketIo};
use quanta::Clock;

/// Batches that a buffer has room for: 2 MiB, beside which packets and tables still fit a cache.
const ROOM: usize = 1 << 17;
/// Orders of the sizes before they repeat.
const ORDERS: usize = 64;
/// Pairs of reads from which the time of one read follows.
const READS: usize = 1001;

/// A clock that counts the processor's cycles, where it has such a counter.
pub(super) struct Ticks {
    clock: Clock,
    /// Microseconds of a tick.
    tick: f64,
    /// Ticks from one read to the next.
    read: u64,
}

impl Ticks {
    pub(super) fn of(clock: Clock) -> Self {
        let tick = clock.delta_as_nanos(0, 1 << 30) as f64 / f64::from(1 << 30) / 1e3;
        let mut reads: Vec<_> = (0..READS).map(|_| clock.raw().abs_diff(clock.raw())).collect();
        reads.sort_unstable();
        let read = reads[READS / 2];
        Self { clock, tick, read }
    }

    fn micros(&self, ticks: u64) -> f64 {
        ticks as f64 * self.tick
    }

    /// Returns the microseconds of one read of the clock.
    pub(super) fn read_micros(&self) -> f64 {
        self.micros(self.read)
    }
}

/// The ticks of a batch.
#[derive(Clone, Copy, Debug)]
struct Note {
    packets: u32,
    receive: u32,
    process: u32,
    send: u32,
}

/// The notes of a thread. What comes after the buffer is full is not noted.
pub(super) struct Notes {
    batches: Vec<Note>,
    /// Ticks of rounds without a packet.
    empty: u64,
    /// The first round's start and the last one's end.
    span: Option<[u64; 2]>,
    /// Calls of `receive` in a round.
    calls: u64,
}

impl Default for Notes {
    fn default() -> Self {
        // Each page is written once here, so that none is missing later.
        let note = Note { packets: u32::MAX, receive: 0, process: 0, send: 0 };
        let mut batches = vec![note; ROOM];
        batches.clear();
        Self { batches, empty: 0, span: None, calls: 1 }
    }
}

impl Notes {
    /// Notes a round.
    fn add(&mut self, round: &Round, [start, end]: [u64; 2]) {
        if self.batches.len() == self.batches.capacity() {
            return;
        }
        let first = self.span.map_or(round.start, |[first, _]| first);
        self.span = Some([first, end]);
        if round.packets == 0 {
            self.empty += end.saturating_sub(round.start);
            return;
        }
        let ticks = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let process = start.saturating_sub(round.start).saturating_sub(round.receive);
        self.calls = round.calls;
        self.batches.push(Note {
            packets: round.packets,
            receive: ticks(round.receive),
            process: ticks(process),
            send: ticks(end.saturating_sub(start)),
        });
    }

    /// Returns what was noted, in microseconds, without the time of the clock's own reads, and forgets it.
    pub(super) fn take(&mut self, ticks: &Ticks) -> Load {
        let without = |n: u32, reads: u64| ticks.micros(u64::from(n).saturating_sub(reads * ticks.read));
        let batch = |note: &Note| Batch {
            packets: note.packets,
            receive: without(note.receive, self.calls),
            process: without(note.process, self.calls),
            send: without(note.send, 1),
        };
        let batches = self.batches.iter().map(batch).collect();
        let [first, last] = self.span.unwrap_or_default();
        let (micros, empty) = (ticks.micros(last - first), ticks.micros(self.empty));
        self.batches.clear();
        (self.empty, self.span) = (0, None);
        Load { batches, micros, empty }
    }
}

/// The batches of a load.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    pub(super) batches: Vec<Batch>,
    /// Microseconds from the first round to the last one.
    pub(super) micros: f64,
    /// Those in rounds without a packet.
    pub(super) empty: f64,
}

impl Load {
    /// Adds those of another thread or round.
    pub(super) fn join(&mut self, other: Self) {
        self.batches.extend(other.batches);
        self.micros += other.micros;
        self.empty += other.empty;
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

/// A round that has not ended.
#[derive(Default)]
struct Round {
    start: u64,
    receive: u64,
    packets: u32,
    calls: u64,
}

/// Ports with notes.
pub(super) struct Noted<'a, I> {
    io: I,
    ticks: &'a Ticks,
    notes: &'a mut Notes,
    sizes: Sizes,
    round: Round,
}

impl<'a, I> Noted<'a, I> {
    pub(super) fn new(io: I, ticks: &'a Ticks, notes: &'a mut Notes, sizes: Sizes) -> Self {
        Self { io, ticks, notes, sizes, round: Round::default() }
    }
}

impl<I: PacketIo> PacketIo for Noted<'_, I> {
    type Error = I::Error;

    fn ports(&self) -> usize {
        self.io.ports()
    }

    #[inline]
    fn receive(&mut self, port: usize, most: usize, each: impl FnMut(&[u8])) -> Result<usize, I::Error> {
        let most = self.sizes.limit(most);
        let start = self.ticks.clock.raw();
        let received = self.io.receive(port, most, each);
        let end = self.ticks.clock.raw();
        if self.round.calls == 0 {
            self.round.start = start;
        }
        self.round.calls += 1;
        self.round.receive += end.saturating_sub(start);
        self.round.packets += *received.as_ref().unwrap_or(&0) as u32;
        received
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
        let start = self.ticks.clock.raw();
        let flushed = self.io.flush();
        let end = self.ticks.clock.raw();
        self.notes.add(&std::mem::take(&mut self.round), [start, end]);
        self.sizes.advance();
        flushed
    }

    fn wait(&mut self, longest: Duration, bell: Option<BorrowedFd<'_>>) -> Result<(), I::Error> {
        self.io.wait(longest, bell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::opened::in_memory;
    use crate::fixture::ports::MemoryPorts;
    use quanta::Mock;
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::sync::Arc;

    /// Ports in memory whose packets take time: 100 + 10 n to receive, 50 + 5 n to send.
    struct Slow(MemoryPorts, Arc<Mock>, u64);

    impl PacketIo for Slow {
        type Error = Infallible;
        fn ports(&self) -> usize {
            self.0.ports()
        }
        fn receive(
            &mut self,
            port: usize,
            most: usize,
            each: impl FnMut(&[u8]),
        ) -> Result<usize, Infallible> {
            self.2 = self.0.receive(port, most, each)? as u64;
            self.1.increment(100 + 10 * self.2);
            Ok(self.2 as usize)
        }
        fn send(&mut self, port: usize, packet: &[u8]) -> bool {
            self.0.send(port, packet)
        }
        fn flush(&mut self) -> Result<(), Infallible> {
            self.1.increment(50 + 5 * self.2);
            Ok(())
        }
        fn wait(&mut self, longest: Duration, bell: Option<BorrowedFd<'_>>) -> Result<(), Infallible> {
            self.0.wait(longest, bell)
        }
    }

    /// Plays rounds of a switch that processes n packets in 7 n nanoseconds. Returns the notes.
    fn play(rounds: usize, sizes: Sizes, most: usize) -> Load {
        let (clock, mock) = Clock::mock();
        let (ticks, mut notes) = (Ticks::of(clock), Notes::default());
        let room = notes.batches.as_ptr();
        let slow = Slow(in_memory(64, 1).first, Arc::clone(&mock), 0);
        let mut noted = Noted::new(slow, &ticks, &mut notes, sizes);
        for _ in 0..rounds {
            let mut seen = 0;
            let received = noted.receive(0, most, |_| seen += 1).unwrap();
            assert_eq!(received, seen);
            mock.increment(7 * received as u64);
            noted.flush().unwrap();
        }
        assert_eq!(notes.batches.as_ptr(), room, "the buffer was allocated anew");
        notes.take(&ticks)
    }

    #[test]
    fn every_size_is_noted_as_often_in_a_shuffled_order() {
        let load = play(320, Sizes::shuffled(), BATCH);
        let mut sizes = BTreeMap::new();
        for batch in &load.batches {
            *sizes.entry(batch.packets).or_insert(0) += 1;
        }
        assert_eq!(sizes, (1..=32).map(|n| (n, 10)).collect());
        let order =
            |round: usize| load.batches[32 * round..][..32].iter().map(|b| b.packets).collect::<Vec<_>>();
        assert_ne!(order(0), (1..=32).collect::<Vec<_>>());
        assert_ne!(order(0), order(1));
    }

    #[test]
    fn the_three_times_of_a_batch_are_noted() {
        let load = play(33, Sizes::shuffled(), BATCH);
        for Batch { packets, receive, process, send } in &load.batches {
            let n = f64::from(*packets);
            let expected = [0.1 + 0.01 * n, 0.007 * n, 0.05 + 0.005 * n];
            for (found, expected) in [receive, process, send].into_iter().zip(expected) {
                assert!((found - expected).abs() < 1e-9, "{packets} packets: {found}, not {expected}");
            }
        }
        let all: f64 = load.batches.iter().map(|b| b.receive + b.process + b.send).sum();
        assert!((load.micros - all).abs() < 1e-6, "nothing passes between batches of this clock");
    }

    #[test]
    fn empty_rounds_are_no_batches_and_their_time_is_kept() {
        let load = play(10, Sizes::Natural, 0);
        assert!(load.batches.is_empty());
        assert!((load.empty - 1.5).abs() < 1e-9, "{load:?}");
        assert!((load.micros - 1.5).abs() < 1e-9, "{load:?}");
    }

    #[test]
    fn a_full_buffer_notes_nothing_more() {
        let load = play(ROOM + 100, Sizes::Natural, 1);
        assert_eq!(load.batches.len(), ROOM);
    }

    #[test]
    fn the_switch_asks_for_no_more_than_it_has_room_for() {
        let load = play(64, Sizes::shuffled(), 4);
        assert!(load.batches.iter().all(|b| b.packets <= 4), "{load:?}");
    }
}
