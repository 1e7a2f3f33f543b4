//! Moves descriptors between the rings that an application has and those that the kernel has, and asks a judge about
//! every packet on the way.
//!
//! ```text
//!  application                     queue                              kernel
//!  fill ring       ──────────► [ReceivePump] ──────────────────────► fill ring
//!  receive ring    ◄── pass ──  judge  ◄── submit ────────────────── receive ring
//!                                  └──── drop ─────────────────────► fill ring
//!  transmit ring   ── submit ► [TransmitPump] judge ── pass ───────► transmit ring
//!  completion ring ◄───────────────────────────┴─ drop
//!  completion ring ◄──────────────────────────────────────────────── completion ring
//! ```
//!
//! # Promises
//!
//! * Each frame has one owner, which the [ledger](crate::frames) knows; a step that would give it two is refused,
//!   counted in [`Faults`], and changes nothing.
//! * Each descriptor that the application sends is completed once, each frame that it fills is announced once.
//! * **Room is reserved before a packet is taken**, so that whatever becomes of it has a place: a receive ring has
//!   room for all packets that its judge holds, and so has the kernel's fill ring; a transmit ring has it, and so has
//!   the completion ring. Nothing is ever put back, and nothing overflows. Who is slow makes the kernel drop packets
//!   and count them, as it does without us.
//! * A slot of the application's fill ring is given back when the kernel has used the frame, as without us: the
//!   application has no more frames in rings than it would have.
//! * No allocation, no lock, no system call, no waiting.
//!
//! A packet of several buffers (`XDP_PKT_CONTD`) is one packet to its judge, which sees the first buffer. One that has more
//! than its ring has entries is dropped whole and counted, whatever its judge would say, and the next goes on.
#![forbid(unsafe_code)]

mod chain;
mod parcel;
mod receive;
mod transmit;

pub use parcel::Parcel;
pub use receive::{FillRings, ReceivePump, ReceiveRings};
pub use transmit::{CompletionRings, TransmitPump, TransmitRings};

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::frames::{Fault, Ledger, Seats, Shape};

/// The frames of one packet memory, shared by all that move them.
#[derive(Debug)]
pub struct Frames {
    /// Who has which.
    pub ledger: Ledger,
    /// The rings of all sockets on this memory.
    pub seats: Seats,
    /// What was refused.
    pub faults: Faults,
}

impl Frames {
    /// All frames with the application.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        Self { ledger: Ledger::new(shape), seats: Seats::default(), faults: Faults::default() }
    }
}

/// Steps that were refused, by who asked for them.
#[derive(Debug, Default)]
pub struct Faults {
    /// By the application.
    pub application: AtomicU64,
    /// By the kernel.
    pub kernel: AtomicU64,
    /// By a judge.
    pub judge: AtomicU64,
}

impl Faults {
    pub(crate) fn count(&self, fault: Fault) {
        let counter = match fault {
            Fault::ApplicationAddress(_) | Fault::NotApplications { .. } => &self.application,
            Fault::KernelAddress(_) | Fault::NotKernels { .. } => &self.kernel,
            Fault::NotJudged { .. } => &self.judge,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        [&self.application, &self.kernel, &self.judge].iter().map(|c| c.load(Relaxed)).sum()
    }
}

/// A packet that a judge is done with.
#[derive(Debug)]
#[must_use = "its frame is lost to the application else"]
pub struct Judged {
    /// The packet, perhaps changed.
    pub parcel: Parcel,
    /// Whether it goes on; else its frame goes back where it came from.
    pub pass: bool,
}

/// Decides about packets, at once or later.
pub trait Judge {
    /// Takes a packet. At most one comes out at once, this one or another.
    fn submit(&mut self, now: u64, parcel: Parcel) -> Option<Judged>;

    /// Gives out what is decided. Called before packets are submitted, after, and all the time while some are held.
    fn poll(&mut self, now: u64, sink: impl FnMut(Judged));

    /// Packets held.
    fn held(&self) -> usize;

    /// Gives out everything, decided or not: the socket is about to be closed.
    fn drain(&mut self, sink: impl FnMut(Judged));
}

/// Lets everything pass: the rings are replaced, and nothing else is done.
#[derive(Clone, Copy, Debug, Default)]
pub struct PassAll;

impl Judge for PassAll {
    fn submit(&mut self, _: u64, parcel: Parcel) -> Option<Judged> {
        Some(Judged { parcel, pass: true })
    }

    fn poll(&mut self, _: u64, _: impl FnMut(Judged)) {}

    fn held(&self) -> usize {
        0
    }

    fn drain(&mut self, _: impl FnMut(Judged)) {}
}

/// What a round of a pump came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Descriptors that moved.
    pub moved: u32,
    /// Frames with judges.
    pub held: u32,
    /// Entries that wait in rings for their reader to be told: of the kernel's transmit ring.
    pub untold: u32,
    /// Frames that the kernel has for sending.
    pub sending: u32,
}
