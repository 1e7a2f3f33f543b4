//! The `xsk` attachment: a library that is preloaded into an unmodified AF_XDP application, usually a switch.
//!
//! ```text
//!   application            this library (same process)                        kernel
//!  ┌─────────────┐ rings  ┌─────────────────────────────────────────┐ rings  ┌────────┐
//!  │ fill        ├───────►│ receive pump ───────────────────────────┼───────►│ fill   │
//!  │ receive     │◄───────┤        lane ◄── pass ─ P4 VM ◄─ submit ─┼────────┤ receive│
//!  │ transmit    ├───────►│ transmit pump ──────────────────────────┼───────►│ transm.│
//!  │ completion  │◄───────┤ ◄───────────────────────────────────────┼────────┤ compl. │
//!  └──────┬──────┘        └───────▲────────────────────────▲────────┘        └────────┘
//!         └ socket, bind, mmap,   │ in the caller's thread │ in the drain thread, for
//!           sendto, poll, ... ────┘                        └ applications without calls
//! ```
//!
//! When the application maps a ring it gets one of this library's, which maps the kernel's ring itself.
//! The thread that makes a system call for a socket moves descriptors between the two rings: `sendto`,
//! `recvfrom` and `poll` are replaced, and the replaced rings request such calls with the kernel's own
//! flag (`XDP_RING_NEED_WAKEUP`). For an application that makes no calls the drain thread moves them;
//! otherwise it sleeps.
//!
//! # A packet's way
//!
//! `hooks` (the replaced functions) → `socket` and `queue` (which pump) → `p4shield_xsk_relay` (rings,
//! frame owners) → `verdicts` and `packet` → [`p4shield_attach::Lane`] → the mediator, and back.
//!
//! - `fd_table`: the AF_XDP sockets by descriptor. `rings`: the application's rings and the kernel's.
//! - `umem`: the memory that a P4 VM may map. `mediation`: configuration and session. `process`: start,
//!   forks, exit.
//! - `poll`, `epoll`: threads that wait. `poll_set`: what a thread sleeps for. `ready_event`: wakes
//!   threads that wait.
//! - `drain`, `drain_signal`: the drain thread. `next_libc`: the functions that are replaced.
//!
//! # Promises
//!
//! * A call on a descriptor that is not an AF_XDP socket costs one or two loads.
//! * If packets cannot be mediated, the application's call fails and the log gives the reason. Only if every
//!   tenant's `fail` is `pass`, packets may bypass the mediator: log and status say so.
//! * No call waits for a P4 VM or for the daemon.
//! * A forked child's calls go straight to libc; it can open no AF_XDP socket.
//!
//! # Unsafe code
//!
//! `unsafe` is in the C interface (`hooks`, `next_libc`, `poll_set`, `process`), in the access to the
//! application's memory (`packet`, `rings`, `umem`, `verdicts`), and where pointers and descriptors become
//! references (`fd_table`, `socket`).

#![cfg_attr(
    test,
    allow(dead_code, reason = "unit tests replace no function of libc, so the hooks are unused")
)]

mod drain;
mod drain_signal;
mod epoll;
mod fd_table;
mod hooks;
mod mediation;
mod next_libc;
mod packet;
mod poll;
mod poll_set;
mod process;
mod queue;
mod ready_event;
mod rings;
mod socket;
mod umem;
mod verdicts;
