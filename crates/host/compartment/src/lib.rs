//! Compartments: what runs a P4 VM or the wires on this machine, apart from the daemon.
//!
//! | question | module |
//! |---|---|
//! | start, watching and end of a process | `process` |
//! | a process that is found again by the next daemon | `identity` |
//! | why a process failed: the last lines that it wrote | `output` |
//! | limits of memory, processor time and number of processes | `cgroup` |
//! | the cores on which a process runs | `cores` |
//!
//! Nothing here knows what runs in a compartment. The daemon talks to it over its control socket.

#![forbid(unsafe_code)]

mod cgroup;
mod cores;
mod identity;
mod output;
mod process;

use backon::ExponentialBuilder;
use std::time::Duration;

pub use cgroup::{Cgroup, Group, Limits, NoCgroup};
pub use cores::CorePlacement;
pub use identity::ProcessIdentity;
pub use output::OutputTail;
pub use process::{LocalProcess, ProcessError, reap_failed_starts, reap_last_starts, spawn};

/// The pauses before a compartment that fails is started again: from 50 ms, each twice as long as the one
/// before, to 10 s. The user starts them anew once a compartment runs well.
pub const RESTART_PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(50))
    .with_max_delay(Duration::from_secs(10))
    .without_max_times();
