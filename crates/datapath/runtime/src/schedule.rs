//! Time slice and core of the worker's thread.
//!
//! A worker may share its core with the sender and the receiver of the packets that it judges, with the
//! kernel's work for both, and with processes that are always busy. It therefore asks the kernel for short
//! time slices: it gets the same share of the core as any thread, but does not wait for the whole slice of
//! another one while packets queue up (decision 016).

use rustix::thread::{CpuSet, sched_setaffinity};
use std::io::{Error, ErrorKind, Result};

/// The worker's slice in nanoseconds: the shortest that the kernel has (`sched_attr::sched_runtime` of
/// `SCHED_OTHER`, Linux 6.12; older kernels ignore it).
const SLICE_NS: u64 = 100_000;

/// Asks for short time slices for this thread, unless the operator gave it a policy other than
/// `SCHED_OTHER`.
///
/// # Errors
/// The kernel refuses; the worker also runs with ordinary slices.
pub(crate) fn set_short_slice() -> Result<()> {
    let mut attributes = attributes()?;
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    attributes.sched_runtime = SLICE_NS;
    // SAFETY: the structure is live during the call, which only reads it; 0 is the calling thread.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if done < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

/// Returns this thread's scheduling attributes.
fn attributes() -> Result<libc::sched_attr> {
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: the structure consists of integers.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes at most `size` bytes into the structure; 0 is the calling thread.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if done < 0 { Err(Error::last_os_error()) } else { Ok(attributes) }
}

/// Binds this thread to a core.
///
/// # Errors
/// The core does not exist, or the process may not use it.
pub(crate) fn bind(cpu: usize) -> Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(ErrorKind::InvalidInput.into());
    }
    let mut cores = CpuSet::new();
    cores.set(cpu);
    Ok(sched_setaffinity(None, &cores)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the calling thread's policy and slice after the call.
    fn scheduled() -> (u32, u64) {
        set_short_slice().unwrap();
        let attributes = attributes().unwrap();
        (attributes.sched_policy, attributes.sched_runtime)
    }

    #[test]
    fn a_worker_has_short_slices_unless_its_policy_is_set() {
        let (policy, slice) = std::thread::spawn(scheduled).join().unwrap();
        assert_eq!(policy, libc::SCHED_OTHER as u32);
        // Kernels before 6.12 report none.
        assert!(slice == SLICE_NS || slice == 0, "{slice}");
        let idle = std::thread::spawn(|| {
            let no_priority = libc::sched_param { sched_priority: 0 };
            // SAFETY: the structure is live during the call, which only reads it; 0 is the calling thread.
            assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const no_priority) }, 0);
            scheduled().0
        });
        assert_eq!(idle.join().unwrap(), libc::SCHED_IDLE as u32);
    }

    #[test]
    fn a_missing_core_is_refused() {
        assert!(bind(CpuSet::MAX_CPU).is_err() && bind(CpuSet::MAX_CPU - 1).is_err());
    }
}
