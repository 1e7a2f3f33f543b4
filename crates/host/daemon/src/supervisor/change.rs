//! A change of a tenant's configuration while its P4 VM runs, in two steps.
//!
//! [`SupervisorThread::prepare`] does everything that may fail: it reads the key, creates pages, and has the
//! P4 VM verify programs without running them. If any tenant's preparation fails, all are discarded.
//! [`SupervisorThread::commit`] then makes the change before the switch knows new VMs, and
//! [`SupervisorThread::finish`] removes VMs after the switch has forgotten them.
//!
//! A P4 VM that does not answer, or fails on the way, is replaced; the next one gets the new configuration.

use super::ANSWER_TIMEOUT;
use super::bundles::{self, Step};
use super::inline::VerifiedProgram;
use super::pages::{Page, PageError};
use super::plan::{ChangeSummary, Plan, TenantChange, gone, is_same, slots};
use super::provision::{self, Objects, Pages};
use super::thread::SupervisorThread;
use crate::config::{Tenant, Vm};
use crate::programs::ProgramKey;
use crate::programs::refusal;
use crate::rotation::keys::Keys;
use p4shield_abi::Direction;
use p4shield_compartment::is_recoverable;
use p4shield_control::{ClientError, ProgramSlot, Request, Resources};
use p4shield_text::chain;

impl SupervisorThread {
    /// Whether a running P4 VM cannot take the change.
    fn needs_restart(&self, change: &TenantChange) -> bool {
        let of_process = |t: &Tenant| (t.no_program, t.age_limit, t.log_interval, t.budget);
        self.config.command != change.command
            || of_process(&self.config.tenant) != of_process(&change.tenant)
            || self.repins(change)
    }

    /// Whether the change pins another key of bundles, which a running P4 VM refuses.
    fn repins(&self, change: &TenantChange) -> bool {
        bundles::pinned_key(&change.tenant) != Ok(self.pinned)
    }

    /// Does what may fail, and remembers the rest for [`Self::commit`].
    ///
    /// # Errors
    /// Reason why the change is refused. Nothing has changed.
    pub(super) fn prepare(&mut self, change: TenantChange) -> Result<ChangeSummary, String> {
        self.discard();
        let keys = Keys::read(&change.tenant)?;
        let rotated = self.keys.rotated(&keys);
        let programs = self.due_programs(&change.tenant)?;
        bundles::pinned_key(&change.tenant)?;
        let restart = self.needs_restart(&change);
        let mut plan = Plan {
            change,
            programs,
            keys: Some(keys),
            restart,
            pages: Vec::new(),
            staged: Vec::new(),
            bundles: Vec::new(),
            unloaded: Vec::new(),
        };
        let restarts = restart && self.process.is_some();
        let mut summary = ChangeSummary { restarts, rotated, ..Default::default() };
        if self.process.is_some() {
            plan.pages = self.new_pages(&plan.change).map_err(|e| chain(&e))?;
            if let Err(refusal) = self.stage_all(&mut plan, &mut summary) {
                self.discard();
                return Err(refusal);
            }
        }
        self.plan = Some(plan);
        Ok(summary)
    }

    /// Reads the programs that are due: those that commands loaded, or else the configuration's.
    fn due_programs(&self, tenant: &Tenant) -> Result<Vec<[Objects; 2]>, String> {
        let objects = |(v, vm): (usize, &Vm)| {
            let [ingress, egress] = Direction::ALL.map(|d| {
                let key = ProgramKey::new(&tenant.name, &vm.name, d);
                let objects = self.config.programs.lasting_objects(&key, &vm.programs[d as usize]);
                objects.inspect_err(|why| refusal::log(tenant, v, d, self.report().meanwhile(v, d), why))
            });
            Ok([ingress?, egress?])
        };
        tenant.vms.iter().enumerate().map(objects).collect()
    }

    /// Creates the pages of VMs that are new or have other pages.
    fn new_pages(&self, change: &TenantChange) -> Result<Vec<Option<Pages>>, PageError> {
        let old = &self.config.tenant.vms;
        let pages = |(v, vm): (usize, &Vm)| {
            let kept = vm.is_vacant() || is_same(old.get(v), vm);
            let group = change.command.page_group();
            let new = (!kept).then(|| Page::of(vm)).transpose()?;
            new.iter().flatten().flatten().try_for_each(|page| page.grant(group))?;
            Ok(new)
        };
        change.tenant.vms.iter().enumerate().map(pages).collect()
    }

    /// Has the P4 VM verify all programs that are new.
    fn stage_all(&mut self, plan: &mut Plan, summary: &mut ChangeSummary) -> Result<(), String> {
        // The P4 VM that will have the new key verifies the programs.
        if self.repins(&plan.change) {
            return Ok(());
        }
        for (v, d) in slots(&plan.change.tenant) {
            let (slot, vm) = (ProgramSlot::new(v as u16, d), &plan.change.tenant.vms[v]);
            let objects = &plan.programs[v][d as usize];
            let old = self.programs.get(v).map(|p| &p[d as usize]);
            let kept = is_same(self.config.tenant.vms.get(v), vm);
            let unchanged = kept && old.is_some_and(|old| old.objects == *objects);
            if objects.is_empty() {
                let both = self.pinned.is_some() && d == Direction::Ingress;
                let due: &[_] = if both { &Direction::ALL } else { &[d] };
                let due = due.iter().map(|d| ProgramSlot::new(v as u16, *d));
                plan.unloaded.extend(due.filter(|_| kept && !unchanged));
                continue;
            }
            if unchanged && self.refusal(v, d).is_none() {
                summary.unchanged += 1;
                continue;
            }
            let Some(process) = self.process.as_deref_mut() else { return Ok(()) };
            let staged = if self.pinned.is_some() {
                bundles::send(process, (v, &vm.name), objects, &self.versions, Step::Stage).map(|loaded| {
                    plan.bundles.push((vm.name.clone(), loaded.version));
                    bundles::mark(&loaded)
                })
            } else {
                provision::stage(process, slot, objects).map(Some)
            };
            match staged {
                Ok(digest) => {
                    plan.staged.push((slot, digest));
                    summary.replaced += 1;
                }
                Err(e) if is_recoverable(&e) => {
                    let meanwhile = self.report().meanwhile(v, d);
                    refusal::log(&plan.change.tenant, v, d, meanwhile, &e.to_string());
                    let name = &plan.change.tenant.name;
                    let refusal = format!("{name} {} {}: {e}", vm.name, d.name());
                    if !unchanged {
                        return Err(refusal);
                    }
                    summary.refused.push(refusal);
                }
                // The next P4 VM gets the new programs.
                Err(e) => self.replace(&e.to_string(), std::time::Duration::ZERO),
            }
        }
        Ok(())
    }

    /// Forgets a prepared change.
    pub(super) fn discard(&mut self) {
        if self.plan.take().is_some_and(|plan| !plan.staged.is_empty())
            && let Some(process) = &mut self.process
        {
            // A P4 VM that fails here is replaced at the next check.
            let _ = process.call(Request::Discard, &Resources::none(), ANSWER_TIMEOUT);
        }
    }

    /// Makes the prepared change, but for VMs that are removed.
    pub(super) fn commit(&mut self) {
        let Some(plan) = self.plan.take() else { return };
        let Plan { change, programs, keys, restart, pages, staged, bundles, unloaded } = plan;
        let TenantChange { tenant, command, adoption_time } = change;
        self.take_programs(&tenant, programs, &staged);
        let old = std::mem::replace(&mut self.config.tenant, tenant);
        (self.config.command, self.config.adoption_time) = (command, adoption_time);
        self.limit_group();
        self.leaving = gone(&old, &self.config.tenant);
        if let Some(keys) = keys {
            self.keys.take(&self.config.tenant, &old, keys);
        }
        if self.process.is_none() || restart {
            self.take_pages(pages);
            return self.restart("its configuration changed");
        }
        if let Err(e) = self.apply(&old, pages, &unloaded) {
            return self.replace(&e.to_string(), std::time::Duration::ZERO);
        }
        bundles.iter().for_each(|(vm, version)| self.versions.note(vm, *version));
        self.give_keys();
        self.check();
    }

    /// Takes a change without preparation: the P4 VM does not answer and is replaced.
    pub(super) fn adopt(&mut self, change: TenantChange) {
        self.discard();
        // The next check sends it.
        self.config.adoption_time = change.adoption_time;
        let programs = self.due_programs(&change.tenant).unwrap_or_else(|_| {
            let old = |v: usize| self.programs.get(v).map(|p| p.each_ref().map(|p| p.objects.clone()));
            (0..change.tenant.vms.len()).map(|v| old(v).unwrap_or_default()).collect()
        });
        let same = self.config.tenant == change.tenant && self.config.command == change.command;
        let running = self.programs.iter().map(|p| p.each_ref().map(|p| &p.objects));
        if same && running.eq(programs.iter().map(|p| p.each_ref())) {
            return;
        }
        let pages = self.new_pages(&change).unwrap_or_else(|error| {
            tracing::error!(event = "change_failed", tenant = change.tenant.name, "{}", chain(&error));
            Vec::new()
        });
        let keys = Keys::read(&change.tenant).ok();
        self.plan = Some(Plan {
            change,
            programs,
            keys,
            restart: true,
            pages,
            staged: Vec::new(),
            bundles: Vec::new(),
            unloaded: Vec::new(),
        });
        self.commit();
    }

    /// Removes the VMs that the switch has forgotten.
    pub(super) fn finish(&mut self) {
        for vm in std::mem::take(&mut self.leaving) {
            let Some(process) = self.process.as_deref_mut() else { return };
            match process.call(Request::RemoveVm { vm }, &Resources::none(), ANSWER_TIMEOUT) {
                Err(e) if !is_recoverable(&e) => {
                    return self.replace(&e.to_string(), std::time::Duration::ZERO);
                }
                // The P4 VM may be a new one, which does not know the VM.
                _ => {}
            }
        }
    }

    /// Stores the programs of the new configuration, with the digests that are known.
    fn take_programs(
        &mut self,
        tenant: &Tenant,
        programs: Vec<[Objects; 2]>,
        staged: &[(ProgramSlot, Option<[u8; 32]>)],
    ) {
        let mut report = self.report.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        report.refusals.resize(tenant.vms.len(), [None, None]);
        self.programs.resize(tenant.vms.len(), Default::default());
        for ((v, new), old) in programs.into_iter().enumerate().zip(&mut self.programs) {
            for (d, objects) in Direction::ALL.into_iter().zip(new) {
                let slot = ProgramSlot::new(v as u16, d);
                let program = &mut old[d as usize];
                if let Some((_, digest)) = staged.iter().find(|(s, _)| *s == slot) {
                    *program = VerifiedProgram::new(objects, *digest);
                    report.refusals[v][d as usize] = None;
                } else if program.objects != objects {
                    *program = VerifiedProgram::new(objects, None);
                    report.refusals[v][d as usize] = None;
                }
            }
        }
    }

    /// Replaces the pages of VMs that are new, have other pages or are gone.
    fn take_pages(&mut self, new: Vec<Option<Pages>>) {
        // Without pages there is no P4 VM; the next start creates all.
        if self.pages.is_empty() {
            return;
        }
        let mut old = std::mem::take(&mut self.pages);
        old.resize_with(self.config.tenant.vms.len().max(old.len()), Default::default);
        for (v, (vm, new)) in self.config.tenant.vms.iter().zip(new).enumerate() {
            self.pages.push(match new {
                Some(mut pages) => {
                    let pages_of_all = old.iter_mut().flatten().flatten();
                    pages_of_all
                        .for_each(|old| pages.iter_mut().flatten().for_each(|new| old.hand_over(new)));
                    pages
                }
                None if vm.is_vacant() => Default::default(),
                None => std::mem::take(&mut old[v]),
            });
        }
    }

    /// Changes the running P4 VM.
    fn apply(
        &mut self,
        old: &Tenant,
        pages: Vec<Option<Pages>>,
        unloaded: &[ProgramSlot],
    ) -> Result<(), ClientError> {
        let min_epoch = self.epochs.reserve();
        let changed: Vec<_> = pages.iter().map(Option::is_some).collect();
        self.take_pages(pages);
        let inline = self.config.inline;
        let Some(process) = self.process.as_deref_mut() else { return Ok(()) };
        process.call(Request::RaiseEpoch { min_epoch }, &Resources::none(), ANSWER_TIMEOUT)?;
        for v in (0..changed.len()).filter(|v| changed[*v]) {
            if old.vms.get(v).is_some_and(|vm| !vm.is_vacant()) {
                process.call(Request::RemoveVm { vm: v as u16 }, &Resources::none(), ANSWER_TIMEOUT)?;
            }
            let pages = self.pages.get(v).filter(|_| !inline);
            provision::set_vm(process, v, &self.config.tenant, &mut self.keys, pages)?;
        }
        provision::expect_programs(process, &self.config)?;
        process.call(Request::Commit, &Resources::none(), ANSWER_TIMEOUT)?;
        for slot in unloaded {
            process.call(Request::UnloadProgram { slot: *slot }, &Resources::none(), ANSWER_TIMEOUT)?;
        }
        self.epochs.settle();
        if old.geometry != self.config.tenant.geometry {
            self.channels.detach_all(process)?;
        }
        // Switches that run the programs themselves are provisioned anew.
        self.switches.forget();
        Ok(())
    }
}
