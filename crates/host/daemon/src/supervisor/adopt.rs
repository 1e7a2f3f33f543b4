//! Adoption of the P4 VM that the daemon before this one started, and what the next daemon needs to adopt
//! this one's.

use super::ANSWER_TIMEOUT;
use super::SupervisorConfig;
use super::bundles;
use super::pages::Page;
use super::pages::pages_advice;
use super::provision;
use super::thread::SupervisorThread;
use crate::adoption::{Handover, P4VmRecord, PageRecord};
use p4shield_abi::Direction;
use p4shield_bundle::PublicKey;
use p4shield_compartment::Compartment;
use p4shield_control::{ClientError, ProgramSlot, Reply, Request, Resources, Status, VmStatus};
use p4shield_text::chain;
use std::collections::BTreeSet;
use std::time::Duration;

impl SupervisorThread {
    /// Adopts the tenant's P4 VM, if the daemon before this one left one. One that cannot be adopted is
    /// ended.
    pub(super) fn adopt_process(&mut self) -> Option<Box<dyn Compartment>> {
        let tenant = self.config.tenant.name.clone();
        let record = self.config.adoption.load(&self.name_of_record())?;
        let adopted = self.try_to_adopt(&record);
        adopted
            .inspect_err(|why| {
                tracing::warn!(
                    event = "p4vm_not_adopted",
                    tenant,
                    "a P4 VM of the daemon before is replaced: {why}"
                );
                record.process.kill();
                self.forget_process();
            })
            .ok()
    }

    /// Returns the name of the P4 VM's record and door.
    pub(super) fn name_of_record(&self) -> String {
        self.config.index.to_string()
    }

    fn try_to_adopt(&mut self, record: &P4VmRecord) -> Result<Box<dyn Compartment>, String> {
        if record.tenant != self.config.tenant.name {
            return Err(format!("it is tenant {}'s", record.tenant));
        }
        self.create_pages().map_err(|e| pages_advice(&e))?;
        let pages = self.pages.iter_mut().map(<[_; 3]>::as_mut_slice).zip(record.pages.iter());
        let pages = pages.flat_map(|(pages, records)| pages.iter_mut().zip(records));
        let differs = |pair: &mut (&mut Option<Page>, &Option<PageRecord>)| match pair {
            (Some(page), Some(record)) => !page.adopt(*record),
            (page, record) => page.is_some() || record.is_some(),
        };
        if pages.filter_map(|mut pair| differs(&mut pair).then_some(())).count() > 0 {
            return Err("the file of a page was replaced".to_owned());
        }
        self.keys.refresh(&self.config.tenant)?;
        self.pinned = bundles::pinned_key(&self.config.tenant)?;
        if record.bundle_key != self.pinned.map(PublicKey::to_bytes) {
            return Err("it has another key of bundles".to_owned());
        }
        let socket = self.config.adoption.connect(&self.name_of_record()).map_err(|e| chain(&e))?;
        let SupervisorConfig { launcher, command, .. } = &self.config;
        let adopted = launcher.adopt(command, socket, &record.process);
        let mut process = adopted.map_err(|e| chain(&e))?;
        match self.take_over(&mut *process, record) {
            Ok(()) => Ok(process),
            Err(e) => Err(format!("{}; {}", chain(&e), process.end(Duration::ZERO))),
        }
    }

    /// Finds what the P4 VM has, and loads the programs that are due and that it does not run.
    fn take_over(&mut self, process: &mut dyn Compartment, record: &P4VmRecord) -> Result<(), ClientError> {
        let Reply::Status(status) = process.call(Request::Status, &Resources::none(), ANSWER_TIMEOUT)? else {
            return Err(ClientError::Unexpected);
        };
        let due: BTreeSet<_> = self.config.tenant.numbered_vms().map(|(v, _)| v).collect();
        if status.vms.iter().map(|vm| usize::from(vm.vm)).collect::<BTreeSet<_>>() != due {
            return Err(ClientError::Failed("it has other VMs than its daemon had".to_owned()));
        }
        bundles::pin(process, self.pinned.as_ref())?;
        self.keys.adopt(&self.config.tenant, &status);
        provision::expect_programs(process, &self.config)?;
        for v in due {
            for direction in Direction::ALL {
                self.take_over_program(process, (v, direction), record, &status)?;
            }
        }
        self.channels.adopt(&status);
        Ok(())
    }

    fn take_over_program(
        &mut self,
        process: &mut dyn Compartment,
        (v, direction): (usize, Direction),
        record: &P4VmRecord,
        status: &Status,
    ) -> Result<(), ClientError> {
        let d = direction as usize;
        let vm = status.vms.iter().find(|vm| usize::from(vm.vm) == v);
        let running = vm.and_then(|vm| vm.directions[d].program);
        if self.pinned.is_some() {
            return self.take_over_bundle(process, (v, direction), record, vm);
        }
        let program = &mut self.programs[v][d];
        if program.objects.is_empty() {
            let slot = ProgramSlot::new(v as u16, direction);
            return match running {
                Some(_) => process
                    .call(Request::UnloadProgram { slot }, &Resources::none(), ANSWER_TIMEOUT)
                    .map(drop),
                None => Ok(()),
            };
        }
        let mark = record.programs.get(v).and_then(|marks| marks[d].clone());
        program.digest = mark.as_ref().map(|mark| mark.digest).filter(|digest| Some(*digest) == running);
        if program.digest.is_some() && program.mark() == mark {
            return Ok(());
        }
        self.load_due_program(process, v, direction)
    }

    /// Loads the bundle that is due, unless the P4 VM runs it.
    fn take_over_bundle(
        &mut self,
        process: &mut dyn Compartment,
        (v, direction): (usize, Direction),
        record: &P4VmRecord,
        vm: Option<&VmStatus>,
    ) -> Result<(), ClientError> {
        if direction == Direction::Egress {
            return Ok(());
        }
        let program = &mut self.programs[v][direction as usize];
        if program.objects.is_empty() {
            let slot = ProgramSlot::new(v as u16, direction);
            return self.load_program(process, slot, &Vec::new()).map(drop);
        }
        let mark = record.programs.get(v).and_then(|marks| marks[direction as usize].clone());
        let runs =
            |digest: &[u8; 32]| vm.is_some_and(|vm| vm.directions.iter().any(|d| d.program == Some(*digest)));
        program.digest = mark.as_ref().map(|mark| mark.digest).filter(runs);
        if program.digest.is_some() && program.mark() == mark {
            return Ok(());
        }
        self.load_due_program(process, v, direction)
    }

    /// Records what the P4 VM has, if that changed, and has it go on without a daemon from then on.
    pub(super) fn bequeath(&mut self) {
        let name = self.name_of_record();
        let Some(process) = self.process.as_deref_mut() else { return };
        let Some(identity) = process.identity() else { return };
        let page = |page: &Option<Page>| page.as_ref().and_then(Page::record);
        let record = P4VmRecord {
            tenant: self.config.tenant.name.clone(),
            process: identity,
            pages: self.pages.iter().map(|pages| pages.each_ref().map(page)).collect(),
            bundle_key: self.pinned.map(PublicKey::to_bytes),
            programs: self.programs.iter().map(|p| p.each_ref().map(|program| program.mark())).collect(),
        };
        if self.handover.record.as_ref() != Some(&record) {
            if let Err(error) = self.config.adoption.save(&name, &record) {
                tracing::warn!(
                    event = "adoption_unavailable",
                    tenant = record.tenant,
                    %error,
                    "no other daemon could adopt this P4 VM"
                );
            }
            self.handover.record = Some(record);
        }
        let patience = self.config.adoption_time;
        if self.handover.patience != Some(patience) {
            self.handover.patience = Some(patience);
            let ms = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
            if let Err(e) = process.call(Request::SetPatience { ms }, &Resources::none(), ANSWER_TIMEOUT) {
                self.replace(&e.to_string(), Duration::ZERO);
            }
        }
    }

    /// Forgets a P4 VM that has ended.
    pub(super) fn forget_process(&mut self) {
        self.handover = Handover::default();
        self.config.adoption.forget(&self.name_of_record());
    }
}
