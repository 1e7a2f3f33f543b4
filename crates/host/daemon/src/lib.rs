//! The host daemon: reads one configuration, keeps a P4 VM for each tenant, and says how everything is.
//!
//! ```text
//!   p4shield.toml ─► config ─► daemon ─┬─ attachment: wires, or switches; mediators ◄──channels─┐
//!                                      ├─ keeper of tenant 0 ── starts, watches, replaces ──► P4 VM 0
//!   p4shield status ◄── api ◄──────────┼─ keeper of tenant 1 ─────────────────────────────────► P4 VM 1
//!   Prometheus      ◄── http ◄─────────┘
//! ```
//!
//! The daemon is trusted by the cloud and by no tenant; it believes no P4 VM. A P4 VM that dies, stops, loops, floods
//! its standard error or scribbles over its channel costs its own tenant verdicts until it is replaced, and nobody
//! else anything: tenants share the mediator's loop, which never waits, and no thread of the daemon.

#![forbid(unsafe_code)]

pub mod api;
mod attachment;
mod cgroup;
mod daemon;
mod http;
mod lock;
mod metrics;
mod notify;
pub mod status;
mod switches;
mod tenant;
mod text;
mod totals;
mod wire;

pub use p4shield_config as config;

pub use attachment::{
    Ask, Attachment, ChannelEnd, LaneKey, Packets, PortStatus, SideStatus, SwitchKey, SwitchStatus, Switches,
    WireStatus,
};
pub use daemon::{Daemon, DaemonError, run};
pub use totals::Totals;
