//! A reader of Open vSwitch's database: the switch and its ports, kept up to date.
//!
//! OVN, OpenStack and libvirt set `external_ids:iface-id` of an interface when they plug in a VM's port. The
//! host daemon reads it ([`Monitor`]) to find the tenant of a port. It also reads what identifies the port to
//! an attachment (DPDK device, vhost-user socket, interface index) and settings that let packets bypass the
//! attachment (`hw-offload`).
//!
//! The protocol is OVSDB's JSON-RPC over a UNIX socket (RFC 7047: `monitor`, `update`, `echo`), for reading
//! only. `session` holds one connection: `stream` splits it into messages, `message` parses them, `tables`
//! keeps their `rows`. Guarantees:
//!
//! - The server is not trusted: messages, rows and fields are bounded. A connection that violates the
//!   protocol is closed and opened again after a pause that grows.
//! - The last contents remain available while the database is down: the switch forwards without it, too.
//! - The reader never blocks its owner; a thread of its own communicates.

#![forbid(unsafe_code)]

#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod message;
mod monitor;
mod rows;
mod session;
mod stream;
mod switch;
mod tables;
mod value;

pub use monitor::{Monitor, State, read_once};
pub use session::Error;
pub use switch::{Interface, Kind, Mac, Switch};

/// Path of the database's socket in common distributions.
pub const DEFAULT_SOCKET: &str = "/run/openvswitch/db.sock";
