//! Shared memory between parties that do not trust each other, and what is exchanged in it.
//!
//! Three things live here, each an end that one party holds:
//!
//! * [`Requester`] and [`Responder`]: the two ends of a channel ([`p4shield_abi::channel`]). A mediator hands over
//!   headers of packets and takes verdicts; a P4 VM judges. Lock-free, without system calls, without waiting.
//! * [`PageWriter`] and [`PageReader`]: the two ends of an info page or a log page ([`p4shield_abi::page`]).
//! * [`Doorbell`], [`futex`] and [`Waiter`]: how an end that has nothing to do spins, yields and at last sleeps, and how it
//!   is woken, without losing a wake-up.
//!
//! # Who owns a slot when
//!
//! ```text
//!            request_head (mediator, release)        verdict_head (P4 VM, release)
//!  push()  ──────────────────────────────► fetch() ──────────────────────────────► take()
//!  ┌────────────┐    ┌─────────────────────────────────┐    ┌─────────────────────────┐
//!  │ mediator   │    │ P4 VM: copies request and frame,│    │ mediator: copies answer │
//!  │ writes     │    │ writes answer (and frame)       │    │ (and rewritten frame)   │
//!  └────────────┘    └─────────────────────────────────┘    └─────────────────────────┘
//!        ▲                                                               │
//!        └───────────────────────────────────────────────────────────────┘
//!                       the slot is the mediator's again at once
//! ```
//!
//! # Memory orders
//!
//! Each index has one writer. As in libxdp's `xsk.h`, the writer first fills the slots with plain (here: relaxed)
//! stores and then publishes the index with *one release store a batch*; the reader loads the index with acquire,
//! so that it sees the slots as they were filled, and reads it again only when what it knew of is used up. Giving a
//! slot back needs no index of its own: the P4 VM touches slot `i` only between the `request_head` that covers `i`
//! and the `verdict_head` that covers `i`, and these two release stores order everything. `verdict_tail` is for
//! whoever looks at a channel from outside. Sleeping needs more than release and acquire (a store followed by a
//! load of something else, on both sides); see [`Sleeper`].
//!
//! With honest ends no byte is ever accessed by both at once, which `tests/loom.rs` checks in every interleaving.
//! A dishonest end may write at any time, so every access to shared bytes is an atomic access of the width of a
//! word ([`Memory`]), each shared field is read exactly once, and nothing is looked at before it was copied out.
//!
//! # What a hostile peer can do
//!
//! It can stop, and it can lie about packets it was asked about: that is its business. What it cannot do is
//! make this end panic, loop, read or write elsewhere, accept an answer that was not asked for, or wait. Breaking
//! the protocol is a [`ChannelFault`]: named, sticky and confined to that one channel.
//!
//! # System calls
//!
//! For whoever writes a seccomp filter: rings and mapped pages need none. [`Doorbell`] uses `sendto` and
//! `recvfrom`, [`futex`] `futex` and `futex_waitv`, [`Waiter`] `sched_yield` and `ppoll`; mapping uses
//! `fcntl(F_GET_SEALS)`, `fstat`, `mmap`, `munmap`.

mod doorbell;
mod error;
pub mod futex;
pub mod fuzz;
mod memory;
mod page;
mod ring;
mod shm;
mod wait;

pub use doorbell::Doorbell;
pub use error::{ChannelError, ChannelFault, PageFault, PushRefused, ResponseRefused, ShmError};
pub use memory::Memory;
pub use page::{PageReader, PageWriter, Publication};
pub use ring::{
    BatchEntry, CheckedAnswer, HeaderRewrite, HeaderSource, RequestBatch, Requester, Responder, Response,
    create_channel,
};
pub use shm::{Mapping, PacketMemory, SharedMemory};
pub use wait::{IdleResult, Sleeper, WaitPolicy, Waiter};
