//! The switch of a packet thread, which notes its batches as long as a client asks for them.

use p4shield_io::ports::Ports;
use p4shield_switch::{BatchLog, Noted, Switch, Ticks};
use std::time::Instant;

/// Batches of all threads between two requests of a client: 4 MiB of notes, and an answer that is short
/// enough for a client. Small batches at full load fill it in a second.
const ROOM: usize = 1 << 18;

/// The switch of a packet thread. Without a log, notes cost it a look whether there is one.
pub(crate) type PacketSwitch = Switch<Noted<Ports, Box<BatchLog>>>;

/// Notes that a client takes.
#[derive(Debug)]
pub(crate) struct Noting {
    ticks: Ticks,
    /// Batches of a thread.
    room: usize,
    /// When they end unless the client takes them before.
    pub(crate) until: Instant,
    /// An empty log, to exchange with that of a thread.
    spare: Option<Box<BatchLog>>,
}

impl Noting {
    pub(crate) const fn new(ticks: Ticks, threads: usize, until: Instant) -> Self {
        let threads = if threads == 0 { 1 } else { threads };
        Self { ticks, room: ROOM / threads, until, spare: None }
    }

    /// Returns an empty log.
    pub(crate) fn log(&mut self) -> Box<BatchLog> {
        self.spare.take().unwrap_or_else(|| Box::new(BatchLog::new(&self.ticks, self.room)))
    }

    /// Keeps a log whose notes were taken.
    pub(crate) fn keep(&mut self, log: Box<BatchLog>) {
        self.spare = Some(log);
    }
}
