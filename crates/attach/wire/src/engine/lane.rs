//! One queue of one interface: its socket, and frames that wait for room in its transmit ring.

use std::collections::VecDeque;

use p4shield_afxdp::{Frame, FramePool, Port};

/// Nanoseconds until the kernel is told again of packets that it refused: its interface is down, or going.
const REFUSED: u64 = 10_000_000;

#[derive(Debug)]
pub(super) struct Lane<'p> {
    pub(super) port: Port,
    backlog: VecDeque<Frame<'p>>,
    most: usize,
    /// Whether the kernel has to be told again.
    unfinished: bool,
    /// When, at the earliest.
    retry_at: u64,
}

impl<'p> Lane<'p> {
    pub(super) fn new(port: Port, backlog: VecDeque<Frame<'p>>, most: usize) -> Self {
        Self { port, backlog, most, unfinished: false, retry_at: 0 }
    }

    /// Queues a frame; `false`, and it is freed, if ring and backlog are full.
    pub(super) fn send(&mut self, pool: &'p FramePool, frame: Frame<'p>) -> bool {
        let refused = if self.backlog.is_empty() { self.port.send(pool, frame).err() } else { Some(frame) };
        match refused {
            Some(frame) if self.backlog.len() < self.most => self.backlog.push_back(frame),
            Some(_) => return false,
            None => {}
        }
        true
    }

    /// Sends what waits, takes back what was sent, offers free frames. Returns whether anything moved.
    pub(super) fn flush(&mut self, pool: &'p FramePool, now: u64, ring: u32) -> bool {
        let reaped = self.port.reap(pool);
        while let Some(frame) = self.backlog.pop_front() {
            if let Err(frame) = self.port.send(pool, frame) {
                self.backlog.push_front(frame);
                break;
            }
        }
        if now >= self.retry_at {
            match self.port.kick() {
                Ok(more) => self.unfinished = more || !self.backlog.is_empty(),
                Err(_) => {
                    self.unfinished = true;
                    self.retry_at = now.saturating_add(REFUSED);
                }
            }
        }
        self.port.refill(pool, ring);
        reaped > 0
    }

    pub(super) const fn is_unfinished(&self) -> bool {
        self.unfinished
    }
}
