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
//! | question | module |
//! |---|---|
//! | start and end of the daemon | `daemon` |
//! | start, watching and restart of P4 VMs | `supervisor` |
//! | what `p4shield run --check` reports | `preflight` |
//! | applying a changed configuration (SIGHUP, `p4shield reload`) | `reload`, `supervisor::change` |
//! | P4 VMs that outlive their daemon; upgrades | `adoption`, `supervisor::adopt`, `upgrade` |
//! | programs that commands loaded | `programs` |
//! | wires | `wires` |
//! | switches that a library is preloaded into: ports, lanes, reasons why a port is not mediated | `switches` |
//! | the operator's socket and those of tenants | `api` |
//! | what `p4shield status` shows | `status` (types), `collect_status` (values) |
//! | what is wrong | `problem` (types), `problems` (tenants and wires), `switches` (switches and ports) |
//! | log lines about problems that begin and end | `watch`, `refusal` (refused programs) |
//! | metrics | `metrics` (values), `exposition` (text), `http` |
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
mod bundle_files;
mod collect_status;
mod daemon;
#[cfg(test)]
mod dashboard;
mod error;
mod exposition;
mod http;
mod inspect;
mod key_files;
mod lock;
mod losses;
mod metrics;
mod notify;
mod preflight;
mod problem;
mod problems;
mod programs;
mod refusal;
mod reload;
mod reload_report;
mod rotate_key;
mod rotation;
mod state;
pub mod status;
mod supervisor;
mod switches;
mod tenant_sockets;
mod text;
mod totals;
mod trusted_folder;
mod upgrade;
mod watch;
mod wires;

pub use p4shield_config as config;

pub use attachment::{
    Attachment, ChannelEnd, InlineRequest, LaneKey, PacketMemoryFile, SwitchKey, SwitchesStatus,
};
pub use daemon::{Daemon, run};
pub use error::DaemonError;
pub use inspect::{fuzz as fuzz_program_state, view};
pub use preflight::preflight;
pub use problem::{Problem, ProblemKind};
pub use programs::{ObjectRecord, ProgramAction, ProgramRecord, ProgramSource};
pub use reload_report::ReloadReport;
pub use rotation::{KeyOrder, KeyRotation};
pub use status::{PortStatus, SideStatus, SwitchStatus, WireStatus};
pub use totals::Totals;
pub use trusted_folder::FolderError;
pub use wires::serve_wires;
