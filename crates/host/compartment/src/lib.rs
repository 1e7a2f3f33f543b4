//! Compartments: what runs a P4 VM or the wires on this machine, apart from the daemon.
//!
//! | question | module |
//! |---|---|
//! | what the daemon sees of a P4 VM, wherever it runs | `compartment` |
//! | P4 VMs in processes, and in virtual machines that a process runs | `p4vm`, `command` |
//! | start, watching and end of a process | `process` |
//! | a process that is found again by the next daemon | `identity` |
//! | why a process failed: the last lines that it wrote | `output` |
//! | limits of memory, processor time and number of processes | `cgroup` |
//! | the cores on which a process runs | `cores` |
//! | the time that it spends there, and waiting | `core_time` |
//! | users that no other process has | `users` |
//!
//! Nothing here knows what a P4 VM does with a request, and nothing is done per packet.

#![forbid(unsafe_code)]

mod cgroup;
mod command;
mod compartment;
mod core_time;
mod cores;
mod identity;
mod output;
mod p4vm;
mod process;
mod users;

use backon::ExponentialBuilder;
use std::time::Duration;

pub use cgroup::{Cgroup, Group, Limits, NoCgroup, cgroup_of};
pub use command::{P4VmCommand, firmware};
pub use compartment::{Compartment, Launcher, StartError, is_recoverable};
pub use core_time::{CoreTime, CoreTimes};
pub use cores::CorePlacement;
pub use identity::ProcessIdentity;
pub use output::OutputTail;
pub use p4vm::Processes;
pub use process::{LocalProcess, ProcessError, reap_failed_starts, reap_last_starts, spawn};
pub use users::{FALLBACK_UID, first_of};

/// The pauses before a compartment that fails is started again: from 50 ms, each twice as long as the one
/// before, to 10 s. The user starts them anew once a compartment runs well.
pub const RESTART_PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(50))
    .with_max_delay(Duration::from_secs(10))
    .without_max_times();
