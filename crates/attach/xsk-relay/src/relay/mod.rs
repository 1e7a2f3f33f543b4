//! Moves descriptors between the application's rings and the kernel's, and requests a verdict for every
//! packet.
//!
//! ```text
//!  application                     queue                              kernel
//!  fill ring       ──────────► [ReceivePump] ──────────────────────► fill ring
//!  receive ring    ◄── pass ── verdicts ◄── submit ───────────────── receive ring
//!                                  └──── drop ─────────────────────► fill ring
//!  transmit ring   ── submit ► [TransmitPump] verdicts ── pass ────► transmit ring
//!  completion ring ◄──────────────────────────────┴─ drop
//!  completion ring ◄──────────────────────────────────────────────── completion ring
//! ```
//!
//! # Promises
//!
//! * Each frame has one owner, which the [ledger](crate::frames) knows. A transition that would give a
//!   frame two owners is refused, counted in [`FaultCounters`], and changes nothing.
//! * Each descriptor that the application sends is completed once; each frame that it fills is received
//!   into once.
//! * **Ring entries are reserved before a packet is taken**, for both verdicts: the application's
//!   receive ring and the kernel's fill ring each have room for all packets that wait for a verdict, and
//!   so have the kernel's transmit ring and the application's completion ring. No ring overflows. If the
//!   application or the P4 VM is slow, the kernel drops packets and counts them, as it does without this
//!   library.
//! * The application gets a slot of its fill ring back when the kernel has used the frame, as without
//!   this library, so that it never has more frames in rings.
//! * No allocation, no lock, no system call, no waiting.
//!
//! A packet in several buffers (`XDP_PKT_CONTD`) is one packet to the verdict source, which sees the
//! first buffer. A packet of more buffers than its ring has entries is dropped whole and counted; the
//! packets after it are not affected.
//!
//! A packet's next step is the [`VerdictSource`]: `attach-xsk`'s module `verdicts`, which submits it to
//! an `attach::Lane`.
#![forbid(unsafe_code)]

mod fragments;
mod packet;
mod receive;
mod rings;
mod table;
mod transmit;
mod verdicts;

pub use packet::RelayedPacket;
pub use receive::ReceivePump;
pub use rings::{ApplicationBound, CompletionRings, FillRings, KernelBound, ReceiveRings, TransmitRings};
pub use table::{FaultCounters, FrameTable};
pub use transmit::TransmitPump;
pub use verdicts::{JudgedPacket, PassAll, PumpProgress, VerdictSource};
