//! The time that a P4 VM spends on cores, and waiting for one that others use.

use crate::cores::threads;
use rustix::process::Pid;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time between two readings: each opens a file for each thread.
const INTERVAL: Duration = Duration::from_secs(1);

/// Sums over threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreTime {
    /// Time on cores.
    pub ran: Duration,
    /// Time in which they could run, and other threads had the core or their cgroup's quota was used up.
    pub waited: Duration,
}

/// The sums of all threads of a P4 VM, and of those that it replaced: they only grow.
#[derive(Debug, Default)]
pub struct CoreTimes {
    /// The part of each living thread in the sum.
    threads: HashMap<Pid, CoreTime>,
    read: Option<Instant>,
    sum: Option<CoreTime>,
}

impl CoreTimes {
    /// Returns the sums, which are a second old at most. `None` if the kernel counts no such times.
    pub fn update(&mut self, process: Pid) -> Option<CoreTime> {
        if self.read.is_none_or(|read| read.elapsed() >= INTERVAL) {
            self.read = Some(Instant::now());
            self.add(
                threads(process)
                    .into_iter()
                    .filter_map(|thread| Some((thread, of_thread(thread)?)))
                    .collect(),
            );
        }
        self.sum
    }

    fn add(&mut self, now: HashMap<Pid, CoreTime>) {
        for (thread, time) in &now {
            // A thread with less time than before is another one with the same number.
            let before =
                self.threads.get(thread).filter(|before| before.ran <= time.ran).copied().unwrap_or_default();
            let sum = self.sum.get_or_insert_default();
            sum.ran += time.ran - before.ran;
            sum.waited += time.waited.saturating_sub(before.waited);
        }
        self.threads = now;
    }
}

/// Returns the times of a thread, if it lives.
fn of_thread(thread: Pid) -> Option<CoreTime> {
    parse(&std::fs::read_to_string(format!("/proc/{}/schedstat", thread.as_raw_pid())).ok()?)
}

/// Reads `/proc/PID/schedstat`: nanoseconds on cores, nanoseconds of waiting, time slices
/// (Documentation/scheduler/sched-stats.rst of Linux).
fn parse(text: &str) -> Option<CoreTime> {
    let mut fields = text.split_ascii_whitespace().map(|field| field.parse().map(Duration::from_nanos));
    Some(CoreTime { ran: fields.next()?.ok()?, waited: fields.next()?.ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_threads_only_grow() {
        let mut times = CoreTimes::default();
        let mut after = |threads: &[(i32, &str)]| {
            times.add(
                threads.iter().map(|(n, text)| (Pid::from_raw(*n).unwrap(), parse(text).unwrap())).collect(),
            );
            let sum = times.sum.unwrap();
            (sum.ran.as_nanos(), sum.waited.as_nanos())
        };
        assert_eq!(after(&[(7, "100 10 1\n"), (8, "50 5 1\n")]), (150, 15));
        assert_eq!(after(&[(7, "120 11 1\n")]), (170, 16), "a thread has ended");
        assert_eq!(after(&[(7, "30 3 1\n")]), (200, 19), "another process has its number");
        assert_eq!(after(&[]), (200, 19));
        assert_eq!((parse(""), parse("1\n"), parse("1 x 1\n")), (None, None, None));
    }

    #[test]
    fn a_busy_process_has_time_on_cores() {
        let spin = Instant::now();
        while spin.elapsed() < Duration::from_millis(20) {}
        let sum = CoreTimes::default().update(rustix::process::getpid());
        if std::path::Path::new("/proc/self/schedstat").exists() {
            assert!(sum.unwrap().ran > Duration::ZERO);
        } else {
            assert_eq!(sum, None, "a kernel without CONFIG_SCHED_INFO");
        }
    }
}
