//! The processes of compartments: those of users that nothing else has. They are found whatever became of the
//! process that started them.

use crate::TopologyError;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Longest time for the kernel to end processes.
const KILLED: Duration = Duration::from_secs(10);

/// The processes of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Processes {
    /// All of them.
    pub(crate) all: Vec<Pid>,
    /// Process 1 of the compartment.
    pub(crate) first: Option<Pid>,
}

/// Returns the processes of these users, by user.
///
/// # Errors
/// `/proc` cannot be read.
pub(crate) fn of_users(users: &Range<u32>) -> Result<BTreeMap<u32, Processes>, TopologyError> {
    let failed = |e| TopologyError::Process("list processes in /proc", e);
    let mut found: BTreeMap<u32, Processes> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.parse().ok()).and_then(Pid::from_raw) else { continue };
        // A process may end meanwhile.
        let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())) else {
            continue;
        };
        let Some(Status { uid, is_first }) = Status::of(&status) else { continue };
        if users.contains(&uid) {
            let processes = found.entry(uid).or_default();
            processes.all.push(pid);
            if is_first {
                processes.first = Some(pid);
            }
        }
    }
    Ok(found)
}

/// Returns process 1 of the compartment of each of these users, and a descriptor of it.
///
/// # Errors
/// `/proc` cannot be read.
pub(crate) fn first_of_users(users: &Range<u32>) -> Result<BTreeMap<u32, (Pid, OwnedFd)>, TopologyError> {
    let open = |(user, found): (u32, Processes)| {
        let pid = found.first?;
        Some((user, (pid, pidfd_open(pid, PidfdFlags::empty()).ok()?)))
    };
    let mut opened: BTreeMap<_, _> = of_users(users)?.into_iter().filter_map(open).collect();
    // A number may have become another process's before it was opened.
    let again = of_users(users)?;
    opened.retain(|user, (pid, _)| again.get(user).is_some_and(|found| found.first == Some(*pid)));
    Ok(opened)
}

/// A process, by its `/proc/PID/status`.
struct Status {
    uid: u32,
    is_first: bool,
}

impl Status {
    /// Returns `None` of a process that has ended and was not reaped. While its first thread has ended and
    /// another one has not, it still holds its interfaces.
    fn of(text: &str) -> Option<Self> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let has_threads = field("Threads:").is_some_and(|n| n.trim() != "1");
        if field("State:")?.trim_start().starts_with('Z') && !has_threads {
            return None;
        }
        let uid = field("Uid:")?.split_whitespace().next()?.parse().ok()?;
        let mut numbers = field("NSpid:")?.split_whitespace();
        let (outer, inner) = (numbers.next()?, numbers.next_back());
        Some(Self { uid, is_first: inner == Some("1") && outer != "1" })
    }
}

/// Ends all processes of these users.
///
/// # Errors
/// One does not end.
pub(crate) fn kill(users: &Range<u32>) -> Result<(), TopologyError> {
    let end = Instant::now() + KILLED;
    loop {
        let left = of_users(users)?;
        if left.is_empty() {
            return Ok(());
        }
        for pid in left.values().flat_map(|processes| &processes.all) {
            // The number may be another process's by now: it is asked again who it is.
            let Ok(pidfd) = pidfd_open(*pid, PidfdFlags::empty()) else { continue };
            let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid()));
            if status.is_ok_and(|s| Status::of(&s).is_some_and(|s| users.contains(&s.uid))) {
                let _ = pidfd_send_signal(&pidfd, Signal::KILL);
            }
        }
        if Instant::now() > end {
            let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
            return Err(TopologyError::Process("end the processes of a switch compartment", late));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_of_a_namespace_is_told_from_others() {
        let text =
            |pids| format!("Name:\tx\nState:\tS (sleeping)\nUid:\t7\t7\t7\t7\nNSpid:\t{pids}\nThreads:\t1\n");
        let is_first = |pids| Status::of(&text(pids)).map(|s| s.is_first);
        assert_eq!(is_first("812\t1"), Some(true));
        assert_eq!(
            (is_first("812"), is_first("812\t2"), is_first("1")),
            (Some(false), Some(false), Some(false))
        );
        let zombie = text("812\t1").replace("S (s", "Z (z");
        assert!(Status::of(&zombie).is_none(), "it has ended");
        assert!(Status::of(&zombie.replace("Threads:\t1", "Threads:\t2")).is_some(), "a thread has not");
        assert!(Status::of("Uid:\tx\n").is_none());
    }

    #[test]
    fn processes_are_found_by_their_user() {
        let own = rustix::process::geteuid().as_raw();
        let found = of_users(&(own..own + 1)).unwrap();
        assert!(found[&own].all.contains(&rustix::process::getpid()));
        assert!(of_users(&(u32::MAX - 9..u32::MAX - 1)).unwrap().is_empty());
        kill(&(u32::MAX - 9..u32::MAX - 1)).unwrap();
    }
}
