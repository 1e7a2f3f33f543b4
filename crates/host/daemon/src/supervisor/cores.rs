//! The cores of a P4 VM, and its time there.

use super::{SupervisorConfig, SupervisorReport};
use p4shield_compartment::{CorePlacement, CoreTimes};
use rustix::process::Pid;
use std::sync::{Mutex, PoisonError};

/// The cores that a P4 VM may use, and the time that it did.
#[derive(Default)]
pub(super) struct Cores {
    placement: CorePlacement,
    times: CoreTimes,
}

impl Cores {
    /// Keeps the P4 VM off the cores on which switches poll, and reports its time on cores.
    pub(super) fn update(
        &mut self,
        config: &SupervisorConfig,
        process: Pid,
        report: &Mutex<SupervisorReport>,
    ) {
        let polling = config.attachment.polling_cores();
        let bound = (config.tenant.cpu, config.command.machine.is_some());
        let shared = self.placement.update(process, bound, &polling);
        let time = self.times.update(process);
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
        (report.cores, report.core_time) = (shared, time);
    }
}
