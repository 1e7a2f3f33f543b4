//! The attachment `dpdk`: `libp4shield_dpdk.so`, loaded by `LD_PRELOAD` into an unmodified switch
//! that uses DPDK.
//!
//! # How it hooks
//!
//! The dynamic linker finds the library's `rte_eth_dev_start` before DPDK's. It adds a receive
//! callback to each queue, makes a lane (`p4shield-attach`) for it, and calls DPDK's function; so
//! no queue delivers packets without a callback. DPDK calls the callback at each poll, with or
//! without packets: it takes the received packets, submits them to the tenants' P4 VMs, and returns
//! packets that were judged since. The library's `rte_vhost_dequeue_burst` does the same for
//! vhost-user ports that a switch polls without ethdev, and its `rte_vhost_enqueue_burst` for what the
//! switch sends to their guests.
//!
//! ```text
//!  switch ── rte_eth_rx_burst ── driver ─► receive callback ──┐
//!  switch ── rte_vhost_dequeue_burst (replaced) ─► DPDK's ────┴─► mediated queue ─► lane ─► mediator
//!         ◄──────────────────── judged packets ◄─────────────────────────┘
//!
//!  switch ── rte_vhost_enqueue_burst (replaced) ─► transmit queue ─► lane ─► mediator
//!  guest  ◄── DPDK's ◄── judged packets, at the next poll ◄───────────┘
//! ```
//!
//! A packet's way through the crate: [`hooks`] (setup), `ethdev` or `vhost` (the burst arrives),
//! `mediated_queue` (the burst is processed), then `p4shield_attach::Lane` and
//! `p4shield_mediator::Mediator`.
//!
//! # Promises
//!
//! * **No waiting.** Neither a P4 VM nor the daemon ever blocks the switch's threads.
//! * **No bypass.** A port whose packets the library would not see is not started:
//!   `rte_eth_dev_start` fails with `ENOTSUP`, and the log has the reason. A call that would let
//!   packets bypass the programs is refused and reported (`bypass`).
//! * **Packets received = packets returned + packets freed + packets held**, for each queue. The
//!   tenants' `max_held` bounds the held packets, and a port that stops frees them, so that the
//!   application may free their pool.
//! * **A rewrite leaves a valid mbuf** ([`mbuf`]).
//! * **Panics do not reach the switch** (`panics`). A queue whose lane panicked gets a new lane;
//!   the tenants' policies apply until it has channels.
//! * **No effect in other processes.** In a process without DPDK, or one that starts no port, the
//!   library starts no thread, opens no file and prints nothing. It links no `librte_*`.
//!
//! Most modules call C or are called from C, and need `unsafe`. The module `exclusive` keeps a
//! queue sound whatever threads the switch polls it with.

pub mod hooks;
pub mod mbuf;

mod bypass;
mod callbacks;
mod clock;
mod dpdk;
mod ethdev;
mod exclusive;
mod library;
mod mediated_queue;
mod panics;
mod pool;
mod secondary;
mod shim;
mod transmit_queue;
mod tunnel;
mod vhost;
