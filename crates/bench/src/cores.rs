//! Which core a thread runs on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The first two cores that this process may use; the same twice if there is only one.
#[must_use]
pub fn two() -> [usize; 2] {
    let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let mut cores = (0..CpuSet::MAX_CPU).filter(|c| allowed.is_set(*c));
    let first = cores.next().unwrap_or(0);
    [first, cores.next().unwrap_or(first)]
}

/// Binds this thread to `core`. A kernel that refuses leaves the thread where it was; figures are noisier then.
pub fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    let _ = sched_setaffinity(None, &set);
}
