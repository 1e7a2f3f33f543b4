//! Loading and checking of what belongs in the place of a program: objects, or for a tenant with a pinned
//! key a bundle.

use super::bundles::{self, LoadedProgram, Step};
use super::provision::{self, Objects};
use super::thread::SupervisorThread;
use super::{ANSWER_TIMEOUT, Answer, NO_PROGRAM};
use p4shield_abi::Direction;
use p4shield_compartment::{Compartment, is_recoverable};
use p4shield_control::{ClientError, ProgramSlot, Request, Resources};
use std::time::Duration;

impl SupervisorThread {
    /// Loads a program or bundle and waits until it runs; unloads what is there if there are no objects.
    pub(super) fn load_program(
        &mut self,
        process: &mut dyn Compartment,
        slot: ProgramSlot,
        objects: &Objects,
    ) -> Result<LoadedProgram, ClientError> {
        if self.pinned.is_none() {
            let digest = provision::load(process, slot, objects, None)?;
            let text = digest.map_or_else(|| NO_PROGRAM.to_owned(), hex::encode);
            return Ok(LoadedProgram { digest, text });
        }
        if objects.is_empty() {
            for direction in Direction::ALL {
                provision::load(process, ProgramSlot::new(slot.vm, direction), objects, None)?;
            }
            return Ok(LoadedProgram { digest: None, text: NO_PROGRAM.to_owned() });
        }
        let vm = usize::from(slot.vm);
        let name = &self.config.tenant.vms[vm].name;
        let loaded = bundles::send(process, (vm, name), objects, &self.versions, Step::Load)?;
        self.versions.note(name, loaded.version);
        Ok(LoadedProgram { digest: bundles::mark(&loaded), text: bundles::describe(&loaded) })
    }

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
            provision::stage(process, slot, objects).map(hex::encode)
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
