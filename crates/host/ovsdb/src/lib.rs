//! What Open vSwitch's database says about the switch and its ports, kept up to date.
//!
//! Which tenant a port belongs to is written in the database by whoever plugged it in: OVN, OpenStack and libvirt
//! all set `external_ids:iface-id` of the interface. So the host daemon reads it there ([`Monitor`]), together with
//! what ties an interface to a port that an attachment sees (DPDK device, vhost-user socket, interface index) and
//! with settings that would let packets go round the attachment (`hw-offload`).
//!
//! Spoken is OVSDB's JSON-RPC over a UNIX socket (RFC 7047: `monitor`, `update`, `echo`), only to read. What it
//! promises:
//!
//! - Nothing that the other side sends is believed to be well formed: messages, rows and fields are bounded, and a
//!   connection that breaks the protocol is closed and opened again after a pause that grows.
//! - What was known stays known while the database is away: the switch forwards without it, too.
//! - It never blocks its owner; a thread of its own does the talking.

#![forbid(unsafe_code)]

#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod message;
mod monitor;
mod session;
mod stream;
mod switch;
mod tables;
mod value;

pub use monitor::{Monitor, State, read_once};
pub use session::Error;
pub use switch::{Interface, Kind, Mac, Switch};

/// Where distributions put the database's socket.
pub const DEFAULT_SOCKET: &str = "/run/openvswitch/db.sock";
