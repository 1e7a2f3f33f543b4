//! Scheduling policy and core of the worker's thread.
//!
//! A worker may share its core with the sender and the receiver of the packets that it judges, and with the
//! kernel's work for both. If it preempted them for each packet, every packet would cost two context
//! switches, and a sender could never fill a batch. The worker is therefore scheduled as a batch job
//! (`SCHED_BATCH`, sched(7)): it gets the same share of the core as any thread and runs at once on a free
//! core, but does not preempt the running thread when it wakes.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::io::{Error, ErrorKind, Result};

/// Sets the policy `SCHED_BATCH` for this thread, unless the operator gave it a policy other than
/// `SCHED_OTHER`.
///
/// # Errors
/// The kernel refuses; the worker also runs with ordinary scheduling.
pub(crate) fn set_batch_policy() -> Result<()> {
    // SAFETY: takes an integer and touches no memory; 0 is the calling thread.
    let policy = unsafe { libc::sched_getscheduler(0) };
    if policy != libc::SCHED_OTHER {
        return Ok(());
    }
    let no_priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure is live during the call, which only reads it; 0 is the calling thread.
    let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const no_priority) };
    if done < 0 { Err(Error::last_os_error()) } else { Ok(()) }
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

    /// Returns the calling thread's policy after the call.
    fn policy() -> i32 {
        set_batch_policy().unwrap();
        // SAFETY: as above.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn a_worker_is_a_batch_job_unless_its_policy_is_set() {
        assert_eq!(std::thread::spawn(policy).join().unwrap(), libc::SCHED_BATCH);
        let idle = std::thread::spawn(|| {
            let no_priority = libc::sched_param { sched_priority: 0 };
            // SAFETY: as above.
            assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const no_priority) }, 0);
            policy()
        });
        assert_eq!(idle.join().unwrap(), libc::SCHED_IDLE);
    }

    #[test]
    fn a_missing_core_is_refused() {
        assert!(bind(CpuSet::MAX_CPU).is_err() && bind(CpuSet::MAX_CPU - 1).is_err());
    }
}
