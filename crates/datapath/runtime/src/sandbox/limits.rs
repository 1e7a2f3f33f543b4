//! Resource limits.

use p4shield_control::MAX_CHANNELS;
use p4shield_sandbox::{During as _, SandboxError, Step};
use rustix::process::{Resource, Rlimit, setrlimit};

/// The resource limits of one P4 VM. A cgroup, if there is one, limits memory and CPU time more tightly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Address space in bytes.
    pub address_space: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Processes and threads: two threads, the verifier's zygote, and one verification.
    pub processes: u64,
}

impl Default for Limits {
    /// Each channel needs two descriptors: its memory and its doorbell.
    fn default() -> Self {
        Self { address_space: 2 << 30, descriptors: 128 + 2 * MAX_CHANNELS as u64, processes: 8 }
    }
}

/// Sets the limits, hard and soft. Forbids core dumps, locked memory and growing files.
pub(super) fn apply(limits: &Limits) -> Result<(), SandboxError> {
    let fixed = [
        (Resource::As, limits.address_space),
        (Resource::Nofile, limits.descriptors),
        (Resource::Nproc, limits.processes),
        (Resource::Core, 0),
        (Resource::Memlock, 0),
        (Resource::Fsize, 0),
        (Resource::Msgqueue, 0),
        (Resource::Sigpending, 64),
    ];
    let step = Step("set its resource limits", "raise the hard limits of the host daemon (ulimit -H)");
    for (resource, n) in fixed {
        setrlimit(resource, Rlimit { current: Some(n), maximum: Some(n) }).during(step)?;
    }
    Ok(())
}
