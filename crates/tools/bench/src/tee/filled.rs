//! Ports that let packets gather before they receive: on two cores, the sender is not faster than the switch,
//! whose batches would never be full.
//!
//! A spell begins with a full receive ring and ends with the first batch that is not full. The maximum is
//! that of the spells; the time in between does not count.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use p4shield_switch::{BATCH, PacketIo};

/// Packets that gather: they fit a receive ring.
const GATHER: u64 = 448;
/// The longest wait for them: a busy machine lets the sender wait, too.
const PATIENCE: Duration = Duration::from_millis(300);

/// The spells so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spells {
    pub(super) packets: u64,
    pub(super) busy: Duration,
    /// Time between them.
    pub(super) waited: Duration,
}

/// Ports whose packets gather.
pub(super) struct Filled<'a, I> {
    io: I,
    /// Packets that the sender has sent.
    sent: &'a AtomicU64,
    spells: &'a mut Spells,
    /// The start of this spell, and its packets; none before the first.
    start: Option<Instant>,
    packets: u64,
    round: usize,
}

impl<'a, I> Filled<'a, I> {
    pub(super) const fn new(io: I, sent: &'a AtomicU64, spells: &'a mut Spells) -> Self {
        Self { io, sent, spells, start: None, packets: 0, round: 0 }
    }

    /// Ends the spell, and waits until packets have gathered for the next one.
    #[cold]
    fn gather(&mut self) {
        let end = Instant::now();
        if let Some(start) = self.start {
            self.spells.packets += self.packets;
            self.spells.busy += end - start;
        }
        let sent = self.sent.load(Ordering::Relaxed);
        while self.sent.load(Ordering::Relaxed) < sent + GATHER && end.elapsed() < PATIENCE {
            std::hint::spin_loop();
        }
        let start = Instant::now();
        self.spells.waited += start - end;
        (self.start, self.packets) = (Some(start), 0);
    }
}

impl<I: PacketIo> PacketIo for Filled<'_, I> {
    type Error = I::Error;

    fn ports(&self) -> usize {
        self.io.ports()
    }

    #[inline]
    fn receive(&mut self, port: usize, most: usize, each: impl FnMut(&[u8])) -> Result<usize, I::Error> {
        let received = self.io.receive(port, most, each)?;
        self.round += received;
        Ok(received)
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
        self.io.flush()?;
        let round = std::mem::take(&mut self.round);
        self.packets += round as u64;
        if round < BATCH {
            self.gather();
        }
        Ok(())
    }

    fn wait(&mut self, longest: Duration, bell: Option<BorrowedFd<'_>>) -> Result<(), I::Error> {
        self.io.wait(longest, bell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::opened::in_memory;

    #[test]
    fn a_spell_ends_with_the_first_batch_that_is_not_full() {
        let (sent, mut spells) = (AtomicU64::new(0), Spells::default());
        let mut ports = Filled::new(in_memory(64, 1).first, &sent, &mut spells);
        let mut round = |most| {
            ports.receive(0, most, |_| ()).unwrap();
            ports.flush().unwrap();
            ports.spells.packets
        };
        assert_eq!(round(3), 0, "the first spell begins after it");
        assert_eq!([round(32), round(32)], [0, 0], "it goes on");
        assert_eq!(round(5), 69);
        assert_eq!(round(0), 69, "a spell without a packet");
        assert!(spells.waited >= 3 * PATIENCE, "nothing was sent meanwhile: {spells:?}");
    }
}
