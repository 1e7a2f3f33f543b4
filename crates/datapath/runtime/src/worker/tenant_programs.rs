//! Step 2 of a packet's way through the P4 VM: the tenant's VMs with their programs, information and logs.
//!
//! [`TenantPrograms::judge_packet`] finds the VM and direction of a packet; `verdict`, step 3, runs the
//! program. The worker has one value for its channels and the placement `inline` has one for the switch's
//! threads, so that a program runs in the same way in both.

use super::keys::KeyChange;
use super::verdict::{self, NoProgram};
use super::vm::{Vm, VmPages};
use crate::program::{LoadedProgram, MapReading, NotRead, ProgramPair};
use p4shield_abi::channel::Request;
use p4shield_abi::{Direction, Verdict};
use p4shield_bpf::Packet;
use p4shield_channel::{Response, ResponseRefused};
use p4shield_control::{MAX_VMS, ProgramSlot, VmStatus};
use p4shield_seal::Now;
use std::time::Duration;

/// Shortest time between two polls of the info pages.
const POLL_INTERVAL_NS: u64 = 1_000_000;

/// The programs of one tenant.
pub(crate) struct TenantPrograms {
    /// The tenant's user VMs, by index.
    pub(super) vms: Vec<Option<Box<Vm>>>,
    no_program: NoProgram,
    log_interval_ns: u64,
    next_poll: u64,
    next_log: u64,
}

impl TenantPrograms {
    /// Returns a tenant without VMs.
    pub(crate) fn new(no_program: NoProgram, log_interval: Duration) -> Self {
        Self {
            vms: (0..MAX_VMS).map(|_| None).collect(),
            no_program,
            log_interval_ns: u64::try_from(log_interval.as_nanos()).unwrap_or(u64::MAX),
            next_poll: 0,
            next_log: 0,
        }
    }

    /// Judges one packet, whose header and length are in `packet`, where the program works on it. Passes the
    /// verdict to `respond`, which may refuse a rewrite; the packet is dropped then.
    #[inline]
    pub(crate) fn judge_packet(
        &mut self,
        packet: &mut Packet,
        request: &Request,
        header_bytes: u32,
        mut respond: impl FnMut(Response<'_>) -> Result<(), ResponseRefused>,
    ) {
        let vm = self.vms.get_mut(usize::from(request.vm)).and_then(Option::as_deref_mut);
        let (Some(vm), Some(direction)) = (vm, Direction::from_u8(request.direction)) else {
            // The packet belongs to no VM of this tenant, so no program can let it pass.
            return verdict::respond_drop(&mut respond);
        };
        let vm = vm.packet_context(direction);
        verdict::judge(packet, (vm, direction), self.no_program, header_bytes, request, respond);
    }

    /// Returns whether [`Self::poll_pages`] is due, by the steady clock.
    #[inline]
    pub(crate) const fn is_poll_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_poll
    }

    /// Returns when the next log record is due, by the steady clock.
    pub(super) const fn next_log(&self) -> u64 {
        self.next_log
    }

    /// Opens new snapshots, marks old ones as stale, and publishes log records that are due. Returns whether
    /// they were.
    pub(crate) fn poll_pages(&mut self, now: Now, header_bytes: u32) -> bool {
        for vm in self.vms.iter_mut().flatten() {
            vm.refresh_info(now);
        }
        let is_due = now.mono_ns >= self.next_log;
        if is_due {
            self.publish_logs(now, header_bytes);
            self.next_log = now.mono_ns.saturating_add(self.log_interval_ns);
        }
        self.next_poll = now.mono_ns.saturating_add(POLL_INTERVAL_NS);
        is_due
    }

    /// Publishes a log record of each VM.
    pub(crate) fn publish_logs(&mut self, now: Now, header_bytes: u32) {
        for vm in self.vms.iter_mut().flatten() {
            vm.publish_log(header_bytes, self.no_program, now);
        }
    }

    /// Adds a VM.
    ///
    /// # Errors
    /// The index is out of range or taken.
    pub(super) fn set_vm(&mut self, vm: Box<Vm>) -> Result<(), String> {
        let index = usize::from(vm.index());
        match self.vms.get_mut(index) {
            Some(vacant @ None) => {
                *vacant = Some(vm);
                self.next_poll = 0;
                Ok(())
            }
            Some(Some(_)) => Err(format!("VM {index} exists already; remove it first")),
            None => Err(format!("invalid VM {index}: a tenant has at most {MAX_VMS} VMs")),
        }
    }

    /// Removes a VM, whose log gets a last record.
    ///
    /// # Errors
    /// There is no such VM.
    pub(super) fn remove_vm(&mut self, vm: u16, header_bytes: u32) -> Result<Box<Vm>, String> {
        let vm = self.vms.get_mut(usize::from(vm)).and_then(Option::take);
        let mut vm = vm.ok_or_else(|| "there is no such VM".to_owned())?;
        vm.publish_log(header_bytes, self.no_program, Now::read());
        Ok(vm)
    }

    /// Exchanges the pages of a VM.
    ///
    /// # Errors
    /// There is no such VM.
    pub(super) fn set_pages(&mut self, vm: u16, pages: &mut VmPages) -> Result<(), String> {
        let vm = self.vms.get_mut(usize::from(vm)).and_then(Option::as_deref_mut);
        self.next_poll = 0;
        vm.map(|vm| vm.exchange_pages(pages)).ok_or_else(|| "there is no such VM".to_owned())
    }

    /// Changes the keys of a VM.
    ///
    /// # Errors
    /// There is no such VM.
    pub(super) fn change_keys(&mut self, change: &mut KeyChange) -> Result<(), String> {
        let vm = self.vms.get_mut(usize::from(change.vm)).and_then(Option::as_deref_mut);
        vm.map(|vm| vm.change_keys(change)).ok_or_else(|| "there is no such VM".to_owned())
    }

    fn slot(&mut self, slot: ProgramSlot) -> Result<(&mut Vm, Direction), String> {
        let vm = self.vms.get_mut(usize::from(slot.vm)).and_then(Option::as_deref_mut);
        vm.zip(Direction::from_u8(slot.direction)).ok_or_else(|| format!("there is no VM {}", slot.vm))
    }

    /// Sets the verdict on packets of a configured program while it does not run.
    pub(super) fn expect_program(&mut self, slot: ProgramSlot, fallback: Verdict) -> Result<(), String> {
        self.slot(slot).map(|(vm, direction)| vm.expect_program(direction, fallback))
    }

    /// Replaces a program, or removes it with `None`. Returns the previous one.
    pub(super) fn set_program(
        &mut self,
        slot: ProgramSlot,
        program: Option<Box<LoadedProgram>>,
    ) -> Result<Option<Box<LoadedProgram>>, String> {
        self.slot(slot).map(|(vm, direction)| vm.set_program(direction, program))
    }

    /// Exchanges the programs of both directions with those in `pair`.
    pub(super) fn set_programs(&mut self, vm: u16, pair: &mut ProgramPair) -> Result<(), String> {
        let (vm, _) = self.slot(ProgramSlot::new(vm, Direction::Ingress))?;
        for (direction, program) in Direction::ALL.into_iter().zip(pair) {
            *program = vm.set_program(direction, program.take());
        }
        Ok(())
    }

    /// Copies the next part of a program's map.
    pub(super) fn copy_map(&mut self, slot: ProgramSlot, reading: &mut MapReading) -> Result<(), NotRead> {
        let vm = self.vms.get_mut(usize::from(slot.vm)).and_then(Option::as_deref_mut);
        let program = vm.zip(Direction::from_u8(slot.direction)).and_then(|(vm, d)| vm.program_mut(d));
        program.ok_or(NotRead::Replaced)?.copy_map(reading)
    }

    /// Returns the status of the VMs.
    pub(crate) fn statuses(&self) -> Vec<VmStatus> {
        self.vms.iter().flatten().map(|v| v.status()).collect()
    }
}
