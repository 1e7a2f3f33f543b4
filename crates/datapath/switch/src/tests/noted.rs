//! Ports whose batches are noted.

use super::Memory;
use crate::noted::{BatchLog, BatchTimes, Noted, TakenBatches, Ticks};
use crate::{BATCH, PacketIo};
use quanta::{Clock, Mock};
use std::convert::Infallible;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Room for batches.
const ROOM: usize = 256;

/// Ports in memory whose packets take time: 100 + 10 n to receive, 50 + 5 n to send.
struct Slow {
    ports: Memory,
    clock: Arc<Mock>,
    received: u64,
}

impl PacketIo for Slow {
    type Error = Infallible;

    fn ports(&self) -> usize {
        self.ports.ports()
    }

    fn receive(&mut self, port: usize, most: usize, each: impl FnMut(&[u8])) -> Result<usize, Infallible> {
        self.received = self.ports.receive(port, most, each)? as u64;
        self.clock.increment(100 + 10 * self.received);
        Ok(self.received as usize)
    }

    fn send(&mut self, port: usize, packet: &[u8]) -> bool {
        self.ports.send(port, packet)
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        self.clock.increment(50 + 5 * self.received);
        Ok(())
    }

    fn wait(&mut self, longest: Duration, bell: Option<BorrowedFd<'_>>) -> Result<(), Infallible> {
        self.ports.wait(longest, bell)
    }
}

/// A switch that processes n packets in 7 n nanoseconds.
struct Scene {
    noted: Noted<Slow, Box<BatchLog>>,
    clock: Arc<Mock>,
    ticks: Ticks,
}

impl Scene {
    fn new() -> Self {
        let (clock, mock) = Clock::mock();
        let slow = Slow { ports: Memory::new(1), clock: Arc::clone(&mock), received: 0 };
        Self { noted: Noted::new(slow, None), clock: mock, ticks: Ticks::of(clock) }
    }

    fn log(&self) -> Box<BatchLog> {
        Box::new(BatchLog::new(&self.ticks, ROOM))
    }

    fn begin(&mut self) {
        let log = self.log();
        assert!(self.noted.exchange_log(Some(log)).is_none());
    }

    /// Plays rounds with so many packets.
    fn play(&mut self, sizes: impl IntoIterator<Item = usize>) {
        for size in sizes {
            self.noted.inner().ports.input[0].extend(vec![vec![0; 64]; size]);
            let mut seen = 0;
            assert_eq!(self.noted.receive(0, BATCH, |_| seen += 1).unwrap(), size);
            assert_eq!(seen, size);
            self.clock.increment(7 * size as u64);
            self.noted.flush().unwrap();
        }
    }

    fn end(&mut self) -> TakenBatches {
        self.noted.exchange_log(None).unwrap().take()
    }
}

fn is_near(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 1e-9
}

#[test]
fn the_three_times_of_a_batch_are_noted() {
    let mut scene = Scene::new();
    scene.begin();
    scene.play(1..=BATCH);
    let taken = scene.end();
    assert_eq!(taken.batches.len(), BATCH);
    for (n, batch) in (1_u32..).zip(&taken.batches) {
        let BatchTimes { packets, receive, process, send } = *batch;
        let size = f64::from(n);
        assert_eq!(packets, n);
        assert!(is_near(receive, 0.1 + 0.01 * size) && is_near(process, 0.007 * size), "{batch:?}");
        assert!(is_near(send, 0.05 + 0.005 * size), "{batch:?}");
    }
    let all: f64 = taken.batches.iter().map(|b| b.receive + b.process + b.send).sum();
    assert!((taken.span - all).abs() < 1e-6, "nothing passes between batches of this clock");
    assert_eq!(taken.missed, 0);
}

#[test]
fn empty_rounds_are_no_batches_and_their_time_is_kept() {
    let mut scene = Scene::new();
    scene.begin();
    scene.play([0; 10]);
    let TakenBatches { batches, span, empty, missed } = scene.end();
    assert!(batches.is_empty() && missed == 0);
    assert!(is_near(empty, 1.5) && is_near(span, 1.5), "{empty}, {span}");
}

#[test]
fn a_full_log_counts_and_allocates_nothing() {
    let mut scene = Scene::new();
    scene.begin();
    scene.play(std::iter::repeat_n(1, ROOM).chain([0, 1, 2]));
    let mut log = scene.noted.exchange_log(None).unwrap();
    assert_eq!(log.room(), ROOM, "the buffer was allocated anew");
    let taken = log.take();
    assert_eq!((taken.batches.len(), taken.missed), (ROOM, 2));
    let again = log.take();
    assert!(again.batches.is_empty() && again.missed == 0, "it forgets what was taken");
}

#[test]
fn without_a_log_the_clock_is_not_read() {
    let mut scene = Scene::new();
    scene.play([3; 5]);
    scene.begin();
    scene.play([4]);
    let first = scene.end();
    scene.play([5; 5]);
    assert_eq!(first.batches.iter().map(|b| b.packets).collect::<Vec<_>>(), [4]);
    // A log that comes in the middle of a round begins with the next one.
    scene.noted.receive(0, BATCH, |_| ()).unwrap();
    scene.begin();
    scene.noted.flush().unwrap();
    scene.play([6]);
    assert_eq!(scene.end().batches.iter().map(|b| b.packets).collect::<Vec<_>>(), [6]);
}
