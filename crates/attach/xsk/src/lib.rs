//! The `xsk` attachment: a library that is preloaded into an unmodified AF_XDP application, most of all a switch.
//!
//! ```text
//!   application            this library (same process)                       kernel
//!  ┌─────────────┐  ours  ┌────────────────────────────────────────┐ theirs ┌────────┐
//!  │ fill        ├───────►│ receive pump ──────────────────────────┼───────►│ fill   │
//!  │ receive     │◄───────┤        lane ◄── pass ─ P4 VM ◄─ submit ┼────────┤ receive│
//!  │ transmit    ├───────►│ transmit pump ─────────────────────────┼───────►│ transm.│
//!  │ completion  │◄───────┤ ◄──────────────────────────────────────┼────────┤ compl. │
//!  └──────┬──────┘        └───────▲────────────────────────▲───────┘        └────────┘
//!         └ socket, bind, mmap,   │ in the caller's thread │ drain thread, where
//!           sendto, poll, ... ────┘                        └ no thread calls
//! ```
//!
//! When the application maps a ring it gets one of ours; the kernel's stays with us. Who moves descriptors between the
//! two is whoever makes a system call for that socket: `sendto`, `recvfrom` and `poll` come by here anyway, and our rings
//! ask for them with the kernel's own flag (`XDP_RING_NEED_WAKEUP`). For an application that makes none a drain thread
//! does it, which sleeps otherwise.
//!
//! - `hooks`: the functions of libc that are replaced. - `real`: the functions themselves.
//! - `table`: which descriptor is an AF_XDP socket. - `socket`: what is known of one.
//! - `rings`: the two of each ring. - `queue`: pumping. - `judge`, `packet`: the seam to lanes.
//! - `wait`: `poll`. - `rest`: what is slept for. - `bell`: what our rings tell sleepers. - `drain`: the thread. - `library`: configuration and session.
//!
//! # Promises
//!
//! * A call on anything that is no AF_XDP socket passes after one or two loads.
//! * Where packets cannot be mediated the application gets an error, and an operator a line that says why: no packet
//!   passes a socket unseen.
//! * No call waits for a P4 VM or for the daemon.
//! * A forked child's calls pass untouched; it can open no AF_XDP socket of its own.

#![cfg_attr(test, allow(dead_code, reason = "in its unit tests nothing is replaced, so nothing is called"))]

mod bell;
mod drain;
mod hooks;
mod judge;
mod library;
mod packet;
mod queue;
mod real;
mod rest;
mod rings;
mod socket;
mod table;
mod umem;
mod wait;
