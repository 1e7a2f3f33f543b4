//! Which core a thread runs on.

use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The first two cores that this process might use when it was first asked; the same twice if there is only one. (A thread
/// has only the core of the thread that made it, if that was bound to one.)
#[must_use]
pub fn two() -> [usize; 2] {
    static TWO: OnceLock<[usize; 2]> = OnceLock::new();
    *TWO.get_or_init(look)
}

fn look() -> [usize; 2] {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_a_bound_thread_is_not_bound_by_it() {
        let cores = two();
        std::thread::spawn(move || {
            pin(cores[0]);
            std::thread::spawn(move || assert_eq!(two(), cores)).join()
        })
        .join()
        .and_then(|inner| inner)
        .unwrap();
    }
}
