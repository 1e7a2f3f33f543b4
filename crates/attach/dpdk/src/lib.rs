//! The attachment `dpdk`: `libp4shield_dpdk.so`, loaded by `LD_PRELOAD` into an unmodified switch that uses DPDK.
//!
//! # How it hooks
//!
//! The dynamic linker finds our `rte_eth_dev_start` before DPDK's. It adds a receive callback to each queue, makes a
//! lane (`p4shield-attach`) for it, and calls DPDK's; so no packet comes from a queue that nobody listens at. The
//! callback is called at each poll, also one that brings nothing: it takes the packets that came over, asks the tenants'
//! P4 VMs, and gives back packets that were judged meanwhile. vhost-user ports that a switch polls without ethdev are
//! mediated by our `rte_vhost_dequeue_burst` in the same way.
//!
//! ```text
//!  switch ── rte_eth_rx_burst ── driver ─► callback ─┐
//!  switch ── rte_vhost_dequeue_burst (ours) ─► DPDK's ┴─► cell ─► lane ─► mediator ─► channel ─► P4 VM
//!         ◄───────────── packets that were judged ◄───────┘
//! ```
//!
//! # Promises
//!
//! * **Nothing waits.** A poll takes what is there; the switch's threads are never blocked, by the daemon neither.
//! * **Nothing goes round.** A port whose packets we would not see is not started: `rte_eth_dev_start` fails with
//!   `ENOTSUP` and says why. A call that would lead packets past software is refused and reported (module `bypass`).
//! * **Packets in = packets returned + packets freed + packets held**, for each queue. What is held is bounded by the
//!   tenants' `max_held`, and freed when a port stops, so that a pool may go after its ports.
//! * **A rewrite leaves a sound mbuf** (`mbuf`).
//! * **No panic gets out** (`contain`). A queue whose lane failed gets another, and its tenants' policies until that has
//!   channels.
//! * **Harmless elsewhere.** In a process without DPDK, or one that starts no port, nothing is done: no thread, no file,
//!   no output. The library needs no `librte_*` itself.
//!
//! `unsafe` is unavoidable in most modules: all of them meet C. The module `gate` is why a cell is sound whatever the switch does.

pub mod hooks;
pub mod mbuf;

mod bypass;
mod callbacks;
mod cell;
mod clock;
mod contain;
mod dpdk;
mod ethdev;
mod gate;
mod library;
mod pool;
mod secondary;
mod shim;
mod tunnel;
mod vhost;
