//! Verification of a program that is not to run yet.

use super::Answer;
use super::bundles::{self, Step};
use super::provision::{self, Objects};
use super::thread::SupervisorThread;
use super::timeouts::ANSWER_TIMEOUT;
use crate::text::hex;
use p4shield_compartment::is_recoverable;
use p4shield_control::{ProgramSlot, Request, Resources};
use std::time::Duration;

impl SupervisorThread {
    /// Has the P4 VM verify a program as if it were to be loaded. Returns its digest.
    pub(super) fn check_program(&mut self, slot: ProgramSlot, objects: &Objects) -> Answer {
        if objects.is_empty() {
            return Err("a program has at least one object".to_owned());
        }
        if self.plan.is_some() {
            return Err("a reload is being prepared; try again".to_owned());
        }
        let process = self.process.as_deref_mut().ok_or("the P4 VM does not run; see `p4shield status`")?;
        let staged = if self.pinned.is_some() {
            let vm = (usize::from(slot.vm), &*self.config.tenant.vms[usize::from(slot.vm)].name);
            let staged = bundles::send(process, vm, objects, &self.versions, Step::Stage);
            staged.map(|loaded| bundles::describe(&loaded))
        } else {
            provision::stage(process, slot, objects).map(|digest| hex(&digest))
        };
        let staged = staged.and_then(|text| {
            process.call(Request::Discard, &Resources::none(), ANSWER_TIMEOUT).map(|_| text)
        });
        staged.map_err(|e| {
            if is_recoverable(&e) {
                return e.to_string();
            }
            self.replace(&e.to_string(), Duration::ZERO);
            format!("{e}; the daemon replaces the P4 VM")
        })
    }
}
