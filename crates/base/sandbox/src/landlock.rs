//! A Landlock domain: everything that Landlock handles is denied, with or without a few exceptions.

use crate::{SandboxError, Step};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, LandlockStatus, NetPort, Ruleset, RulesetAttr,
    RulesetCreatedAttr as _, RulesetError, Scope, path_beneath_rules,
};
use std::io::{Error, ErrorKind};

/// Newest version that is requested; older kernels enforce what they support.
const NEWEST: ABI = ABI::V7;

/// Denies all that the kernel's Landlock handles. Returns its version.
///
/// # Errors
/// The kernel has no Landlock.
pub fn deny_everything() -> Result<i32, SandboxError> {
    allow_only(&Allowed::default())
}

/// The exceptions of a Landlock domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed<'a> {
    /// Paths below which processes read files and start programs.
    pub readable: &'a [&'a str],
    /// Paths below which they do all that files and device files permit.
    pub writable: &'a [&'a str],
    /// Ports at which processes listen by TCP, and to which they connect.
    pub tcp: &'a [u16],
}

/// Denies all that the kernel's Landlock handles, but these exceptions. Returns Landlock's version.
///
/// # Errors
/// The kernel has no Landlock, or a path does not exist.
pub fn allow_only(allowed: &Allowed<'_>) -> Result<i32, SandboxError> {
    let Allowed { readable, writable, tcp } = allowed;
    let step = Step(
        "enter a Landlock domain",
        "boot with landlock in lsm= (Linux 5.13 or newer), or waive it with --allow-missing landlock",
    );
    let all = AccessFs::from_all(NEWEST);
    let net = AccessNet::from_all(NEWEST);
    let ports = tcp.iter().map(|port| Ok::<_, RulesetError>(NetPort::new(*port, net)));
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .and_then(|r| r.handle_access(net))
        .and_then(|r| r.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .and_then(|r| r.add_rules(path_beneath_rules(*readable, AccessFs::from_read(NEWEST))))
        .and_then(|r| r.add_rules(path_beneath_rules(*writable, all)))
        .and_then(|r| r.add_rules(ports))
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
