//! A change of a tenant's configuration, and what its preparation found.

use super::provision::{Objects, Pages};
use crate::config::{Tenant, Vm};
use crate::rotation::keys::ReadKeys;
use p4shield_abi::Direction;
use p4shield_compartment::P4VmCommand;
use p4shield_control::ProgramSlot;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// What changes for a tenant.
#[derive(Clone)]
pub(crate) struct TenantChange {
    pub(crate) tenant: Tenant,
    pub(crate) command: P4VmCommand,
    /// How long the P4 VM goes on without a daemon.
    pub(crate) adoption_time: Duration,
}

/// What a change will do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangeSummary {
    pub(crate) replaced: usize,
    pub(crate) unchanged: usize,
    /// Whether the P4 VM is replaced.
    pub(crate) restarts: bool,
    /// Key files with a new key.
    pub(crate) rotated: Vec<String>,
    /// Unchanged programs that the P4 VM refuses, as before.
    pub(crate) refused: Vec<String>,
}

/// A change that is prepared.
pub(super) struct Plan {
    pub(super) change: TenantChange,
    /// By VM and direction: the objects that are due.
    pub(super) programs: Vec<[Objects; 2]>,
    /// By file: the keys that are due; none: those on disk when the change is made, if they can be read.
    pub(super) keys: Option<ReadKeys>,
    pub(super) restart: bool,
    /// By VM: the pages of VMs that are new or have other pages.
    pub(super) pages: Vec<Option<Pages>>,
    /// Programs that the P4 VM has verified, with their digests.
    pub(super) staged: Vec<(ProgramSlot, Option<[u8; 32]>)>,
    /// VMs whose bundle the P4 VM has verified, with the version.
    pub(super) bundles: Vec<(String, u64)>,
    /// Programs to unload.
    pub(super) unloaded: Vec<ProgramSlot>,
}

/// Whether the P4 VM can keep its state of a VM.
pub(super) fn is_same(old: Option<&Vm>, new: &Vm) -> bool {
    let pages = |vm: &Vm| (vm.info_page.clone(), vm.log_page.clone(), vm.handshake.clone());
    let parts = |vm: &Vm| (vm.name.clone(), pages(vm), vm.page_owner);
    old.is_some_and(|old| parts(old) == parts(new))
}

/// Returns the directions of all VMs.
pub(super) fn slots(tenant: &Tenant) -> Vec<(usize, Direction)> {
    tenant.numbered_vms().flat_map(|(v, _)| Direction::ALL.map(|d| (v, d))).collect()
}

/// Returns the numbers of the VMs that `new` does not have.
pub(super) fn gone(old: &Tenant, new: &Tenant) -> Vec<u16> {
    let is_gone = |v: &usize| new.vms.get(*v).is_none_or(Vm::is_vacant);
    old.numbered_vms().map(|(v, _)| v).filter(is_gone).map(|v| v as u16).collect()
}

const WAITING: u8 = 0;
const BEGUN: u8 = 1;
const GIVEN_UP: u8 = 2;

/// The gate between a reload and a supervisor whose P4 VM may hang: either the supervisor begins in time, or
/// the reload goes on without it. The first to pass decides.
#[derive(Debug, Default)]
pub(crate) struct Gate(AtomicU8);

impl Gate {
    /// The supervisor begins. Returns false if the reload has given it up.
    pub(crate) fn begin(&self) -> bool {
        self.pass(BEGUN)
    }

    /// The reload gives the supervisor up. Returns false if it has begun.
    pub(crate) fn give_up(&self) -> bool {
        self.pass(GIVEN_UP)
    }

    fn pass(&self, state: u8) -> bool {
        self.0.compare_exchange(WAITING, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}
