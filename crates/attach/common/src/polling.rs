//! Threads of the switch that poll lanes, and the cores that they are bound to.
//!
//! A polling thread never sleeps, so that a P4 VM on its core would wait for a time slice while the switch
//! waits for verdicts. The daemon therefore keeps P4 VMs off the cores that this module reports.

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// Nanoseconds between two looks at which thread polls a lane.
const INTERVAL: u64 = 1_000_000_000;

thread_local! {
    /// This thread's number: one system call in its life.
    static THREAD: i32 = gettid().as_raw_nonzero().get();
}

/// The thread that polls a lane, as the lane knows it.
#[derive(Debug, Default)]
pub(crate) struct PollingThread {
    number: Arc<AtomicI32>,
    next_look: u64,
}

/// The same, as the control thread reads it.
#[derive(Clone, Debug)]
pub(crate) struct PollingThreadReader(Arc<AtomicI32>);

impl PollingThread {
    /// Returns a reader for the control thread.
    pub(crate) fn reader(&self) -> PollingThreadReader {
        PollingThreadReader(Arc::clone(&self.number))
    }

    /// Notes that the calling thread polls the lane: one comparison, but for one store each second.
    #[inline]
    pub(crate) fn note(&mut self, now: u64) {
        if now >= self.next_look {
            self.store(now);
        }
    }

    #[cold]
    fn store(&mut self, now: u64) {
        self.next_look = now.saturating_add(INTERVAL);
        self.number.store(THREAD.with(|number| *number), Ordering::Relaxed);
    }
}

impl PollingThreadReader {
    /// Returns the thread's number, once it has polled.
    pub(crate) fn get(&self) -> Option<i32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|number| *number != 0)
    }
}

/// Returns the cores to which one of these threads is bound. A thread that may run on several cores
/// reserves none of them: the scheduler moves it.
pub(crate) fn reserved_cores(threads: &BTreeSet<i32>) -> BTreeSet<u32> {
    let core = |thread: &i32| {
        // An error means that the thread has ended.
        let allowed = sched_getaffinity(Pid::from_raw(*thread)).ok()?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        let first = cores.next()?;
        cores.next().is_none().then_some(u32::try_from(first).ok()?)
    };
    threads.iter().filter_map(core).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::sched_setaffinity;

    #[test]
    fn a_bound_polling_thread_reserves_its_core() {
        let polled = std::thread::spawn(|| {
            let allowed = sched_getaffinity(None).unwrap();
            let core = (0..CpuSet::MAX_CPU).find(|core| allowed.is_set(*core)).unwrap();
            let mut thread = PollingThread::default();
            let reader = thread.reader();
            assert_eq!(reader.get(), None);
            thread.note(0);
            let number = reader.get().unwrap();
            let mut one = CpuSet::new();
            one.set(core);
            sched_setaffinity(None, &one).unwrap();
            assert_eq!(reserved_cores(&[number].into()), [core as u32].into());
            number
        });
        let ended = polled.join().unwrap();
        assert_eq!(reserved_cores(&[ended].into()), BTreeSet::new());
    }

    #[test]
    fn an_unbound_polling_thread_reserves_no_core() {
        let allowed = sched_getaffinity(None).unwrap();
        let own = gettid().as_raw_nonzero().get();
        let reserved = reserved_cores(&[own].into());
        assert_eq!(reserved.is_empty(), allowed.count() > 1, "{reserved:?}");
    }

    #[test]
    fn another_polling_thread_is_noticed_within_a_second() {
        let mut thread = PollingThread::default();
        thread.note(0);
        let reader = thread.reader();
        let here = reader.get().unwrap();
        std::thread::spawn(move || {
            thread.note(INTERVAL - 1);
            assert_eq!(thread.reader().get(), Some(here));
            thread.note(INTERVAL);
            assert_ne!(thread.reader().get(), Some(here));
        })
        .join()
        .unwrap();
    }
}
