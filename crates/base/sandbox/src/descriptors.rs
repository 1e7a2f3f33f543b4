//! Inherited descriptors.

use crate::{During as _, SandboxError, Step};
use std::os::fd::RawFd;

/// Closes every descriptor but `keep` and standard error. Standard input and output become standard error
/// unless they are kept, so that no later descriptor gets their numbers.
///
/// # Errors
/// The kernel refuses it.
pub fn close_all_but(keep: &[RawFd]) -> Result<(), SandboxError> {
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
