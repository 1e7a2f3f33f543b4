//! A Landlock domain: everything that Landlock handles is denied, with or without a few exceptions.

use crate::{SandboxError, Step};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, LandlockStatus, Ruleset, RulesetAttr,
    RulesetCreatedAttr as _, Scope, path_beneath_rules,
};
use std::io::{Error, ErrorKind};

/// Newest version that is requested; older kernels enforce what they support.
const NEWEST: ABI = ABI::V7;

/// Denies all that the kernel's Landlock handles. Returns its version.
///
/// # Errors
/// The kernel has no Landlock.
pub fn deny_everything() -> Result<i32, SandboxError> {
    allow_only(&[], &[])
}

/// Denies all that the kernel's Landlock handles, but the reading and starting of what is below some paths,
/// and all use of what is below others, where device files work, too. Returns Landlock's version.
///
/// # Errors
/// The kernel has no Landlock, or a path does not exist.
pub fn allow_only(readable: &[&str], writable: &[&str]) -> Result<i32, SandboxError> {
    let step = Step(
        "enter a Landlock domain",
        "boot with landlock in lsm= (Linux 5.13 or newer), or waive it with --allow-missing landlock",
    );
    let all = AccessFs::from_all(NEWEST);
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .and_then(|r| r.handle_access(AccessNet::from_all(NEWEST)))
        .and_then(|r| r.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .and_then(|r| r.add_rules(path_beneath_rules(readable, AccessFs::from_read(NEWEST))))
        .and_then(|r| r.add_rules(path_beneath_rules(writable, all)))
        .and_then(landlock::RulesetCreated::restrict_self)
        .map_err(|e| step.failed(Error::other(e)))?;
    match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => Ok(effective_abi as i32),
        LandlockStatus::NotEnabled => {
            Err(step.failed(Error::new(ErrorKind::Unsupported, "Landlock is not enabled")))
        }
        LandlockStatus::NotImplemented => {
            Err(step.failed(Error::new(ErrorKind::Unsupported, "the kernel lacks Landlock")))
        }
    }
}
