//! A tenant's VMs with their programs, information and logs: all that judging takes, wherever packets come from.
//!
//! The worker has one for its channels, and so has the placement `inline` for the switch's threads, so that a program
//! runs in the same way in both.

use super::judge::{self, NoProgram};
use super::mailbox::{Answer, Order, Work};
use super::vm::Vm;
use super::{LOOK_NS, Vms};
use crate::program::Loaded;
use p4shield_abi::Direction;
use p4shield_abi::channel::Request;
use p4shield_bpf::Packet;
use p4shield_channel::{Response, ResponseRefused};
use p4shield_control::{MAX_VMS, ProgramSlot, VmStatus};
use p4shield_seal::Now;
use std::time::Duration;

pub(crate) struct Tenant {
    pub(super) vms: Vms,
    no_program: NoProgram,
    log_interval_ns: u64,
    next_look: u64,
    next_log: u64,
}

impl Tenant {
    /// A tenant without VMs.
    pub(crate) fn new(no_program: NoProgram, log_interval: Duration) -> Self {
        Self {
            vms: (0..MAX_VMS).map(|_| None).collect(),
            no_program,
            log_interval_ns: u64::try_from(log_interval.as_nanos()).unwrap_or(u64::MAX),
            next_look: 0,
            next_log: 0,
        }
    }

    /// Judges one packet, whose front and length are in `packet`, where programs work on it. The verdict goes to `answer`,
    /// which may refuse a rewrite; then the packet is dropped.
    #[inline]
    pub(crate) fn judge(
        &mut self,
        packet: &mut Packet,
        request: &Request,
        header_bytes: u32,
        answer: impl FnMut(Response<'_>) -> Result<(), ResponseRefused>,
    ) {
        judge::judge(packet, (&mut self.vms, self.no_program), header_bytes, request, answer);
    }

    /// Whether [`Self::look`] is due, by the steady clock.
    #[inline]
    pub(crate) const fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_look
    }

    /// When a log record is due next.
    pub(super) const fn next_log(&self) -> u64 {
        self.next_log
    }

    /// Opens new snapshots, notices old ones, and publishes log records that are due.
    pub(crate) fn look(&mut self, now: Now, header_bytes: u32) {
        for vm in self.vms.iter_mut().flatten() {
            vm.refresh_info(now);
        }
        if now.mono_ns >= self.next_log {
            self.publish_logs(now, header_bytes);
            self.next_log = now.mono_ns.saturating_add(self.log_interval_ns);
        }
        self.next_look = now.mono_ns.saturating_add(LOOK_NS);
    }

    /// Publishes a log record of each VM.
    pub(crate) fn publish_logs(&mut self, now: Now, header_bytes: u32) {
        for vm in self.vms.iter_mut().flatten() {
            vm.publish_log(header_bytes, now);
        }
    }

    /// Carries out an order that is about VMs and programs.
    ///
    /// # Errors
    /// It is about something else, and comes back.
    pub(crate) fn obey(&mut self, order: Order) -> Result<Answer, Order> {
        match order {
            Order::SetVm(vm) => Ok(self.set_vm(vm)),
            Order::SetProgram(slot, program) => Ok(self.set_program(slot, program)),
            Order::WithProgram(slot, work) => Ok(self.with_program(slot, work)),
            other => Err(other),
        }
    }

    pub(super) fn set_vm(&mut self, vm: Box<Vm>) -> Answer {
        let index = usize::from(vm.index());
        match self.vms.get_mut(index) {
            Some(vacant @ None) => {
                *vacant = Some(vm);
                self.next_look = 0;
                Answer::Done
            }
            Some(Some(_)) => {
                Answer::Failed(format!("VM {index} is known already; restart the P4 VM to change it"))
            }
            None => Answer::Failed(format!("there is no VM {index}: at most {MAX_VMS} are possible")),
        }
    }

    fn slot(&mut self, slot: ProgramSlot) -> Option<(&mut Vm, Direction)> {
        let direction = Direction::from_u8(slot.direction)?;
        Some((self.vms.get_mut(usize::from(slot.vm))?.as_deref_mut()?, direction))
    }

    fn set_program(&mut self, slot: ProgramSlot, program: Option<Box<Loaded>>) -> Answer {
        match self.slot(slot) {
            Some((vm, direction)) => Answer::Retired(vm.set_program(direction, program)),
            None => Answer::Failed(format!("VM {} is not known", slot.vm)),
        }
    }

    fn with_program(&mut self, slot: ProgramSlot, work: Work) -> Answer {
        match self.slot(slot) {
            Some((vm, direction)) => match vm.program_mut(direction) {
                Some(loaded) => Answer::Worked(work(loaded)),
                None => Answer::Failed(format!("VM {} has no program for {}", slot.vm, direction.name())),
            },
            None => Answer::Failed(format!("VM {} is not known", slot.vm)),
        }
    }

    /// How its VMs are.
    pub(crate) fn statuses(&self) -> Vec<VmStatus> {
        self.vms.iter().flatten().map(|v| v.status()).collect()
    }
}
