//! Resource limits, and closing of inherited descriptors.

use super::{During, SandboxError, Step};
use p4shield_control::MAX_CHANNELS;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::os::fd::RawFd;

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

/// Closes every descriptor but `keep` and standard error. Standard input and output become standard error
/// unless they are kept, so that no later descriptor gets their numbers.
pub(super) fn close_all_but(keep: &[RawFd]) -> Result<(), SandboxError> {
    let step = Step("close inherited descriptors", "use Linux 5.9 or newer");
    let error = rustix::stdio::stderr();
    if !keep.contains(&0) {
        rustix::stdio::dup2_stdin(error).during(step)?;
    }
    if !keep.contains(&1) {
        rustix::stdio::dup2_stdout(error).during(step)?;
    }
    let mut keep: Vec<RawFd> = keep.iter().copied().chain(0..=2).collect();
    keep.sort_unstable();
    keep.dedup();
    let mut from: u32 = 0;
    for fd in &keep {
        let fd = fd.unsigned_abs();
        if fd > from {
            close_range(from, fd - 1).during(step)?;
        }
        from = fd + 1;
    }
    close_range(from, u32::MAX).during(step)
}

fn close_range(first: u32, last: u32) -> std::io::Result<()> {
    // SAFETY: takes integers only. No value owns a descriptor of this range: the process was just started,
    // and its caller lists the owned ones.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if done < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
