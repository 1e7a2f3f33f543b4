//! Ports that note the times of each batch, without an allocation and without a system call.
//!
//! A round of the switch is a batch. Of each, three times are noted:
//!
//! * receiving: inside [`PacketIo::receive`], which copies each packet into the switch's buffer,
//! * processing: from there to the start of [`PacketIo::flush`]: the program's runs, the traffic manager, and
//!   [`PacketIo::send`], which copies each packet into a buffer of the device,
//! * sending: inside [`PacketIo::flush`].

use crate::io::{ExchangePorts, PacketIo, Refused, Unsent};
use quanta::Clock;
use std::ops::DerefMut;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Pairs of reads from which the time of one read follows.
const READS: usize = 1001;

/// A clock that counts the processor's cycles, where it has such a counter.
#[derive(Clone, Debug)]
pub struct Ticks {
    clock: Clock,
    /// Microseconds of a tick.
    tick: f64,
    /// Ticks from one read to the next.
    read: u64,
}

impl Ticks {
    /// Compares the processor's counter with the system's clock, once in a process: that takes a fifth of a
    /// second at most, and no other system call than `clock_gettime`.
    #[must_use]
    pub fn calibrated() -> Self {
        Self::of(Clock::new())
    }

    pub(crate) fn of(clock: Clock) -> Self {
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
    #[must_use]
    pub fn read_micros(&self) -> f64 {
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

/// The times of a batch, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BatchTimes {
    /// Its packets.
    pub packets: u32,
    /// Time to receive them.
    pub receive: f64,
    /// Time to process them.
    pub process: f64,
    /// Time to send them.
    pub send: f64,
}

/// Noted batches of a thread. Times are in microseconds.
#[derive(Clone, Debug, Default)]
pub struct TakenBatches {
    /// The batches, in their order.
    pub batches: Vec<BatchTimes>,
    /// From the first round to the last one.
    pub span: f64,
    /// In rounds without a packet.
    pub empty: f64,
    /// Batches for which there was no room.
    pub missed: u64,
}

/// Room for the notes of a thread. What comes when it is full is counted, and not noted.
#[derive(Debug)]
pub struct BatchLog {
    ticks: Ticks,
    batches: Vec<Note>,
    /// Ticks of rounds without a packet.
    empty: u64,
    /// The first round's start and the last one's end.
    span: Option<[u64; 2]>,
    /// Calls of `receive` in a round.
    calls: u64,
    missed: u64,
}

impl BatchLog {
    /// Makes room for so many batches.
    #[must_use]
    pub fn new(ticks: &Ticks, room: usize) -> Self {
        // Each page is written once here, so that none is missing later.
        let note = Note { packets: u32::MAX, receive: 0, process: 0, send: 0 };
        let mut batches = vec![note; room];
        batches.clear();
        Self { ticks: ticks.clone(), batches, empty: 0, span: None, calls: 1, missed: 0 }
    }

    /// Returns how many batches it has room for.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.batches.capacity()
    }

    /// Notes a round.
    fn add(&mut self, round: &Round, [start, end]: [u64; 2]) {
        if self.batches.len() == self.room() {
            self.missed += u64::from(round.packets > 0);
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

    /// Returns what was noted, without the time of the clock's own reads, and forgets it.
    pub fn take(&mut self) -> TakenBatches {
        let ticks = &self.ticks;
        let without = |n: u32, reads: u64| ticks.micros(u64::from(n).saturating_sub(reads * ticks.read));
        let batch = |note: &Note| BatchTimes {
            packets: note.packets,
            receive: without(note.receive, self.calls),
            process: without(note.process, self.calls),
            send: without(note.send, 1),
        };
        let batches = self.batches.iter().map(batch).collect();
        let [first, last] = self.span.unwrap_or_default();
        let (span, empty) = (ticks.micros(last.saturating_sub(first)), ticks.micros(self.empty));
        let missed = std::mem::take(&mut self.missed);
        self.batches.clear();
        (self.empty, self.span) = (0, None);
        TakenBatches { batches, span, empty, missed }
    }
}

/// A round that has not ended.
#[derive(Debug, Default)]
struct Round {
    start: u64,
    receive: u64,
    packets: u32,
    calls: u64,
}

/// Ports whose batches are noted while they have a log: a [`BatchLog`] of their own, or a borrowed one.
#[derive(Debug)]
pub struct Noted<I, L> {
    io: I,
    log: Option<L>,
    round: Round,
}

impl<I, L: DerefMut<Target = BatchLog>> Noted<I, L> {
    /// Puts notes in front of these ports.
    #[must_use]
    pub fn new(io: I, log: Option<L>) -> Self {
        Self { io, log, round: Round::default() }
    }

    /// Returns the ports.
    pub const fn inner(&mut self) -> &mut I {
        &mut self.io
    }

    /// Goes on with another log, or without notes, and returns the log before.
    pub fn exchange_log(&mut self, log: Option<L>) -> Option<L> {
        self.round = Round::default();
        std::mem::replace(&mut self.log, log)
    }

    #[inline]
    fn now(&self) -> Option<u64> {
        self.log.as_ref().map(|log| log.ticks.clock.raw())
    }
}

impl<I: PacketIo, L: DerefMut<Target = BatchLog>> PacketIo for Noted<I, L> {
    type Error = I::Error;

    fn ports(&self) -> usize {
        self.io.ports()
    }

    #[inline]
    fn receive(&mut self, port: usize, most: usize, each: impl FnMut(&[u8])) -> Result<usize, I::Error> {
        let start = self.now();
        let received = self.io.receive(port, most, each);
        if let (Some(start), Some(end)) = (start, self.now()) {
            if self.round.calls == 0 {
                self.round.start = start;
            }
            self.round.calls += 1;
            self.round.receive += end.saturating_sub(start);
            self.round.packets += *received.as_ref().unwrap_or(&0) as u32;
        }
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
        let start = self.now();
        let flushed = self.io.flush();
        if let (Some(start), Some(end)) = (start, self.now())
            && self.round.calls > 0
            && let Some(log) = &mut self.log
        {
            log.add(&std::mem::take(&mut self.round), [start, end]);
        }
        flushed
    }

    fn ended(&self) -> bool {
        self.io.ended()
    }

    fn wait(&mut self, longest: Duration, bell: Option<BorrowedFd<'_>>) -> Result<(), I::Error> {
        self.io.wait(longest, bell)
    }
}

impl<I: ExchangePorts, L: DerefMut<Target = BatchLog>> ExchangePorts for Noted<I, L> {
    type Port = I::Port;

    fn exchange(&mut self, place: usize, port: &mut Option<I::Port>) -> Result<(), Refused> {
        self.io.exchange(place, port)
    }

    fn unsent(&mut self, place: usize) -> Unsent {
        self.io.unsent(place)
    }

    fn set_up(&mut self, place: usize, up: bool) {
        self.io.set_up(place, up);
    }

    fn lost(&self, place: usize) -> Option<&'static str> {
        self.io.lost(place)
    }
}
