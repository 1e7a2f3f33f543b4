//! Binding threads to cores.

use std::sync::OnceLock;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the first two cores that this process may use, as of the first call; the same core twice if there
/// is only one. (A new thread inherits the binding of the thread that created it.)
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

/// Binds this thread to `core`. If the kernel refuses, the thread keeps its cores and figures are noisier.
pub fn pin(core: usize) {
    bind(None, core);
}

/// Binds another thread to `core`, as [`pin`] does.
pub(crate) fn pin_thread(thread: Pid, core: usize) {
    bind(Some(thread), core);
}

fn bind(thread: Option<Pid>, core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    let _ = sched_setaffinity(thread, &set);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_cores_do_not_depend_on_the_callers_binding() {
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
