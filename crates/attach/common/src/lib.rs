//! The libraries that are preloaded into switches, and their connection to the host daemon.
//!
//! ```text
//!   switch's process                                             host daemon
//!  ┌──────────────────────────────────────────────┐            ┌────────────────────────────┐
//!  │ polling thread ── Lane ── mediator ──────────┼─ channel ──┼─► P4 VM                    │
//!  │                     ▲                        │            │                            │
//!  │                     │ mailbox                │  control   │                            │
//!  │ p4shield-link ── Session ────────────────────┼─ socket ───┼── Server ── Peer           │
//!  └──────────────────────────────────────────────┘            └────────────────────────────┘
//! ```
//!
//! A **lane** is one direction (receive or transmit) of one queue of a port. It has its own mediator
//! and its own channel to each tenant's P4 VM, so lanes share nothing on the way of a packet. A
//! [`Lane`] belongs to the thread that polls the queue; the control thread posts every change (a
//! channel, the port's role, the tenants) to a mailbox that [`Lane::poll`] checks with one load. The
//! [`Session`] owns the control thread, which exchanges messages with the daemon.
//!
//! A packet's way: the attachment calls [`Lane::submit_burst`] and [`Lane::poll`], which call the
//! mediator's functions of these names (`p4shield_mediator::Mediator`).
//!
//! # Promises
//!
//! * **The switch never waits** for the daemon. Channels to P4 VMs that outlive their daemon stay; where
//!   there is none, the tenant's `fail` policy applies. The library knows tenants and policies from the
//!   configuration file.
//! * **Everything recovers.** When the next daemon is there, the library reports all ports, lanes and notices
//!   again, with the channels that still work. The daemon keeps those of P4 VMs that it adopts, and sends the
//!   lanes other channels in place of the rest. The tenants of a new configuration
//!   replace the known ones; packets that lanes hold then get their old tenant's policy, and no order
//!   is promised between packets before and after.
//! * **Neither side trusts the other.** Messages ([`message`]) are bounded and checked, and their
//!   numbers must be known; a side that breaks the protocol is disconnected. The kernel's credentials
//!   decide which switches may connect ([`Allowed`]).
//! * **A forked child has no lanes.** A child that the switch forks detaches all channels at its first
//!   poll and sends the daemon nothing: two processes must not share one end of a channel.

#![deny(unsafe_code)]

mod audience;
mod control_thread;
pub mod inline;
mod lane;
mod listener;
pub mod log;
pub mod message;
mod peer;
mod polling;
#[allow(unsafe_code)]
mod process;
mod registry;
mod server;
mod session;
mod setup;
mod shared;
mod sides;

pub use lane::Lane;
pub use listener::listener;
pub use message::{Count, Kind, LaneId, Notice, PortId, PortInfo, QueueSide, UnownedCounts};
pub use peer::{Allowed, Headers, Peer};
pub use process::spawn_without_signals;
pub use registry::Packets;
pub use server::{Server, ServerError, SwitchEvent, SwitchEvents};
pub use session::{Options, Session, SessionError};
pub use setup::{Setup, SetupError, mediator_config};
