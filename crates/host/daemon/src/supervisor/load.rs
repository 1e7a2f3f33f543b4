//! Loading of what belongs in the place of a program: objects, or for a tenant with a pinned key a bundle.

use super::NO_PROGRAM;
use super::bundles::{self, LoadedProgram, Step};
use super::provision::{self, Objects};
use super::thread::SupervisorThread;
use crate::text::hex;
use p4shield_abi::Direction;
use p4shield_compartment::Compartment;
use p4shield_control::{ClientError, ProgramSlot};

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
            let text = digest.map_or_else(|| NO_PROGRAM.to_owned(), |digest| hex(&digest));
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
}
