//! Shared memory between parties that do not trust each other: channels, info pages, log pages and
//! handshake pages.
//!
//! * [`Requester`] and [`Responder`]: the two ends of a channel ([`p4shield_abi::channel`]). The
//!   mediator submits packet headers and takes verdicts; the P4 VM fetches requests and answers them.
//!   Lock-free, without system calls or waiting.
//! * [`PageWriter`] and [`PageReader`]: the two ends of an info page or a log page ([`p4shield_abi::page`]).
//! * [`HandshakePage`]: an end of a handshake page ([`p4shield_abi::handshake_page`]).
//! * [`Doorbell`], [`futex`] and [`Waiter`]: how an idle end spins, yields and finally sleeps, and
//!   how its peer wakes it without losing a wake-up.
//!
//! # A packet's way
//!
//! The mediator's `request` module calls [`Requester::push`] and its `wakeup` module
//! [`Requester::publish`] (`ring/requester.rs`). In the P4 VM, the runtime's worker calls
//! [`Responder::fetch`], runs the program, and calls [`Responder::respond`] and
//! [`Responder::publish`] (`ring/responder.rs`). Back in the mediator, its `poll` module calls
//! [`Requester::take`], and its `verdict` module applies each [`CheckedAnswer`].
//!
//! # Ownership of a slot
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
//!                       the mediator owns the slot again at once
//! ```
//!
//! # Memory orders
//!
//! Each index has one writer. As in libxdp's `xsk.h`, the writer fills the slots with plain (here:
//! relaxed) stores and then publishes the index with *one release store per batch*. The reader loads
//! the index with acquire, so that it sees the filled slots, and reads it again only when it has used
//! up what it knew of. Returning a slot needs no index: the P4 VM touches slot `i` only between the
//! store of `REQUEST_HEAD` that covers `i` and that of `VERDICT_HEAD`, and these two release stores
//! order everything. `VERDICT_TAIL` is for the P4 VM's wake-ups and for tools that inspect a
//! channel. Sleeping needs more than release and acquire, because each side stores one word and then
//! loads another; see [`Sleeper`].
//!
//! Honest ends never access a byte at the same time, which `tests/loom.rs` checks in every
//! interleaving. A dishonest end may write at any time, so every access to shared bytes is an atomic
//! access of the width of a word ([`Memory`]), each shared field is read exactly once, and data is
//! copied out before it is checked.
//!
//! # Hostile peers
//!
//! A hostile peer can stop, and it can lie about the packets of its own requests. It cannot make this
//! end panic, loop, wait, read or write out of bounds, or accept an answer without a request. A
//! breach of the protocol is a [`ChannelFault`]: named, sticky and confined to that channel.
//!
//! # System calls
//!
//! For seccomp filters: rings and mapped pages need no system call. [`Doorbell`] uses `sendto` and
//! `recvfrom`, [`futex`] `futex` and `futex_waitv`, [`Waiter`] `sched_yield` and `ppoll`; mapping uses
//! `fcntl(F_GET_SEALS)`, `fstat`, `fstatfs`, `mmap`, `munmap`.

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
pub use page::{HandshakePage, PageReader, PageWriter, Publication};
pub use ring::{
    BatchEntry, CheckedAnswer, HeaderRewrite, HeaderSource, RequestBatch, Requester, Responder, Response,
    create_channel,
};
pub use shm::{Mapping, PacketMemory, SharedMemory};
pub use wait::{IdleResult, Sleeper, WaitPolicy, Waiter};
