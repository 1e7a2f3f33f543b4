//! One queue of one interface: its socket, and the frames that wait for a full transmit ring.

use std::collections::VecDeque;

use p4shield_afxdp::{Frame, FramePool, Port};

/// Nanoseconds until the next send call after the kernel refused one, because its interface is down or
/// being removed.
const RETRY_AFTER: u64 = 10_000_000;

/// The state of a queue.
#[derive(Debug)]
pub(super) struct InterfaceQueue<'p> {
    pub(super) port: Port,
    backlog: VecDeque<Frame<'p>>,
    max_backlog: usize,
    /// Whether another send call is needed.
    unfinished: bool,
    /// The earliest time of the next send call.
    retry_at: u64,
}

impl<'p> InterfaceQueue<'p> {
    pub(super) fn new(port: Port, backlog: VecDeque<Frame<'p>>, max_backlog: usize) -> Self {
        Self { port, backlog, max_backlog, unfinished: false, retry_at: 0 }
    }

    /// Sends a frame. Returns false, and frees the frame, if ring and backlog are full.
    pub(super) fn send(&mut self, pool: &'p FramePool, frame: Frame<'p>) -> bool {
        let refused = if self.backlog.is_empty() { self.port.send(pool, frame).err() } else { Some(frame) };
        match refused {
            Some(frame) if self.backlog.len() < self.max_backlog => self.backlog.push_back(frame),
            Some(_) => return false,
            None => {}
        }
        true
    }

    /// Sends the backlog, takes back sent frames and fills free ones. Returns whether frames came back.
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
                    self.retry_at = now.saturating_add(RETRY_AFTER);
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
