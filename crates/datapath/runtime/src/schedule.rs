//! Where and how the worker's thread is scheduled.
//!
//! A worker may share its core with those whose packets it judges: the sender, the receiver, the kernel's work for both.
//! If each packet woke it and pushed them aside at once, every packet cost two switches of the core, and a sender could never
//! fill a batch. So it is scheduled as what it is, a batch job (`SCHED_BATCH`, sched(7)): it has the same share of the core
//! as any thread and runs at once where the core is free, but where it is not, it lets whoever runs go on to the end of a turn.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::io::{Error, ErrorKind, Result};

/// Has this thread wait for its turn, unless its operator gave it another policy than the ordinary one.
///
/// # Errors
/// What the kernel says; ordinary scheduling works as well.
pub(crate) fn wait_for_turn() -> Result<()> {
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
/// There is no such core, or it is none of ours.
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

    /// The calling thread's policy, once it may have changed.
    fn policy() -> i32 {
        wait_for_turn().unwrap();
        // SAFETY: as above.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn a_worker_waits_for_its_turn_unless_its_operator_wants_it_otherwise() {
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
    fn a_core_that_is_not_there_is_refused() {
        assert!(bind(CpuSet::MAX_CPU).is_err() && bind(CpuSet::MAX_CPU - 1).is_err());
    }
}
