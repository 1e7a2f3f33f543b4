//! The seam between the host daemon and the libraries that are preloaded into switches.
//!
//! ```text
//!   switch's process                                             host daemon
//!  ┌──────────────────────────────────────────────┐            ┌────────────────────────────┐
//!  │ polling thread ── Lane ── mediator ──────────┼─ channel ──┼─► P4 VM (made by a keeper) │
//!  │                     ▲                        │            │                            │
//!  │                     │ mailbox                │  control   │                            │
//!  │ p4shield-link ── Session ────────────────────┼─ socket ───┼── Server ── Peer           │
//!  └──────────────────────────────────────────────┘            └────────────────────────────┘
//! ```
//!
//! A **lane** is one queue of one port, facing what the switch receives there or what it sends. It
//! has a mediator of its own and a channel of its own to each tenant's P4 VM, so lanes share
//! nothing on the way of a packet. A [`Lane`] belongs to the thread that polls the queue;
//! everything that changes (a channel, none, the port's role, the tenants) is left in a mailbox
//! that [`Lane::poll`] looks at with one load. The [`Session`] is the library's side of the talk
//! with the daemon, in a thread of its own.
//!
//! # Promises
//!
//! * **The switch never waits** for the daemon. Without a daemon every tenant is without a P4 VM,
//!   and its `fail` policy holds; the library knows tenants and policies from the configuration
//!   file.
//! * **Everything heals.** When the daemon is back it is told all ports, lanes and remarks again,
//!   and gives each lane its channels again. A daemon with other tenants than the library knew
//!   replaces them; what lanes hold at that time gets its old tenant's policy, and no order is
//!   promised between packets before and after.
//! * **Neither side believes the other.** Messages ([`message`]) are bounded and checked, numbers
//!   have to be known; whoever breaks the protocol is hung up on. Who may connect is asked of the
//!   kernel ([`Allowed`]).
//! * **A forked child has no lanes.** A child that the switch forks lets go of all channels at its
//!   first poll and says nothing to the daemon: two processes must not be one end of a channel.

#![deny(unsafe_code)]

mod control_thread;
pub mod inline;
mod lane;
mod listener;
pub mod log;
pub mod message;
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
pub use process::spawn_without_signals;
pub use registry::Packets;
pub use server::{Allowed, Headers, Peer, Server, ServerError, SwitchEvent, SwitchEvents};
pub use session::{Options, Session, SessionError};
pub use setup::{Setup, SetupError, mediator_config};
