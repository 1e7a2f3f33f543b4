//! Commands of the control thread to the worker, and the worker's answers.
//!
//! The control thread allocates a command and all that belongs to it. What has to be freed returns to the
//! control thread in the answer.

use super::keys::KeyChange;
use super::serve::ServedChannel;
use super::tenant_programs::TenantPrograms;
use super::vm::{Vm, VmPages};
use crate::program::{LoadedProgram, MapReading, NotRead, ProgramPair};
use p4shield_abi::Verdict;
use p4shield_channel::Doorbell;
use p4shield_control::{ProgramSlot, Status};

/// The answer to a command that does not apply.
pub(crate) const UNSUPPORTED: &str = "programs in a switch (placement inline) do not support this request";

/// A command.
pub enum WorkerCommand {
    /// Adds a VM.
    SetVm(Box<Vm>),
    /// Removes a VM.
    RemoveVm(u16),
    /// Exchanges the pages of a VM.
    SetPages(u16, Box<VmPages>),
    /// Changes the keys of a VM.
    ChangeKeys(Box<KeyChange>),
    /// Sets the verdict for a configured program that does not run.
    ExpectProgram(ProgramSlot, Verdict),
    /// Replaces a program; `None` removes it.
    SetProgram(ProgramSlot, Option<Box<LoadedProgram>>),
    /// Replaces the programs of both directions of a VM between two packets; `None` removes one.
    SetPrograms(u16, Box<ProgramPair>),
    /// Adds a channel, with its doorbell.
    Attach(Box<ServedChannel>, Doorbell),
    /// Removes a channel.
    Detach(u32),
    /// Copies a part of a program's map. The worker allocates and frees nothing for it.
    CopyMap(ProgramSlot, Box<MapReading>),
    /// Returns the status.
    Status,
    /// Ends the worker.
    Stop,
}

/// The answer to a command.
pub enum WorkerAnswer {
    /// Success.
    Done,
    /// Success; the previous program is returned.
    Retired(Option<Box<LoadedProgram>>),
    /// Success; the previous programs are returned.
    RetiredBoth(Box<ProgramPair>),
    /// Success; the removed VM is returned.
    Removed(Box<Vm>),
    /// Success; the previous pages are returned.
    PagesSet(Box<VmPages>),
    /// Success; what the change replaced is returned.
    KeysChanged(Box<KeyChange>),
    /// Success; the removed channel is returned.
    Detached(Box<ServedChannel>, Doorbell),
    /// What [`WorkerCommand::CopyMap`] was given, with the part if there is no reason against it.
    Copied(Box<MapReading>, Result<(), NotRead>),
    /// The status.
    Status(Box<Status>),
    /// Failure, with the reason.
    Failed(String),
}

impl WorkerCommand {
    /// Executes a command that concerns VMs and programs only; refuses others.
    /// `header_bytes` is the number of header bytes that the auditor sees.
    pub(crate) fn apply_to(self, programs: &mut TenantPrograms, header_bytes: u32) -> WorkerAnswer {
        let result = match self {
            Self::SetVm(vm) => programs.set_vm(vm).map(|()| WorkerAnswer::Done),
            Self::RemoveVm(vm) => programs.remove_vm(vm, header_bytes).map(WorkerAnswer::Removed),
            Self::SetPages(vm, mut pages) => {
                programs.set_pages(vm, &mut pages).map(|()| WorkerAnswer::PagesSet(pages))
            }
            Self::ChangeKeys(mut change) => {
                programs.change_keys(&mut change).map(|()| WorkerAnswer::KeysChanged(change))
            }
            Self::ExpectProgram(slot, fallback) => {
                programs.expect_program(slot, fallback).map(|()| WorkerAnswer::Done)
            }
            Self::SetProgram(slot, program) => programs.set_program(slot, program).map(WorkerAnswer::Retired),
            Self::SetPrograms(vm, mut pair) => {
                programs.set_programs(vm, &mut pair).map(|()| WorkerAnswer::RetiredBoth(pair))
            }
            Self::CopyMap(slot, mut reading) => {
                let result = programs.copy_map(slot, &mut reading);
                Ok(WorkerAnswer::Copied(reading, result))
            }
            _ => Err(UNSUPPORTED.to_owned()),
        };
        result.unwrap_or_else(WorkerAnswer::Failed)
    }
}
