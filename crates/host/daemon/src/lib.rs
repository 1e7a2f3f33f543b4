//! The host daemon: reads one configuration, supervises a P4 VM for each tenant, and reports the status of
//! everything.
//!
//! ```text
//!   p4shield.toml ─► config ─► daemon ─┬─ attachment: wires, or switches; mediators ◄──channels─┐
//!                                      ├─ supervisor of tenant 0 ── starts, watches, replaces ──► P4 VM 0
//!   p4shield status ◄── api ◄──────────┼─ supervisor of tenant 1 ───────────────────────────────► P4 VM 1
//!   Prometheus      ◄── http ◄─────────┘
//! ```
//!
//! | question | folder or module |
//! |---|---|
//! | start and end of the daemon, reloads, upgrades, `p4shield run --check` | `lifecycle` |
//! | start, watching and restart of P4 VMs | `supervisor` |
//! | P4 VMs that outlive their daemon | `adoption`, `supervisor::adopt` |
//! | keys and their rotation | `rotation`, `supervisor::rotation` |
//! | programs that commands loaded, bundles | `programs` |
//! | wires | `wires` |
//! | switches that a library is preloaded into: ports, lanes, reasons why a port is not mediated | `switches` |
//! | the tenants' own switches | `tenant_switches` |
//! | which users P4 VMs and these switches have | `users` |
//! | the operator's socket and those of tenants | `api` |
//! | what `p4shield status` shows, what is wrong, and log lines about that | `status` |
//! | metrics | `metrics` |
//! | what `p4shield program counters`, `registers` and `tables` show, and their metrics | `inspect` |
//!
//! The cloud trusts the daemon, tenants do not; the daemon trusts no P4 VM. A P4 VM that dies, stops, loops,
//! floods its standard error or corrupts its channel costs its own tenant verdicts until it is replaced. It
//! costs other tenants nothing: tenants share the mediator's loop, which never waits, and no thread of the
//! daemon.

#![forbid(unsafe_code)]

mod adoption;
pub mod api;
mod attachment;
mod error;
mod inspect;
mod lifecycle;
mod metrics;
mod programs;
mod rotation;
pub mod status;
mod supervisor;
mod switches;
mod tenant_switches;
mod users;
mod wires;

pub use p4shield_config as config;

pub use attachment::{
    Attachment, ChannelEnd, InlineRequest, LaneKey, PacketMemoryFile, SwitchKey, SwitchesStatus,
};
pub use error::DaemonError;
pub use inspect::fuzz as fuzz_program_state;
pub use lifecycle::daemon::{Daemon, run};
pub use lifecycle::preflight::preflight;
pub use lifecycle::reload_report::ReloadReport;
pub use programs::{ObjectRecord, ProgramAction, ProgramRecord, ProgramSource};
pub use rotation::{KeyOrder, KeyRotation};
pub use status::problem::{Problem, ProblemKind};
pub use status::totals::Totals;
pub use status::{PortStatus, SideStatus, SwitchStatus, WireStatus};
pub use tenant_switches::host as tenant_switches_host;
pub use wires::serve_wires;
