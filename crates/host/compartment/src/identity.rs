//! A process that is found again, also when its number was assigned to another since.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;

/// The number of a process and when it started, in clock ticks since the boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Its number.
    pub pid: i32,
    started: u64,
}

impl ProcessIdentity {
    /// Returns the identity of the process that has this number now.
    pub fn of(pid: Pid) -> Option<Self> {
        let pid = pid.as_raw_pid();
        // proc(5): the name, in parentheses, may contain anything; the time is the 20th field behind it.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        let started = fields.split_whitespace().nth(19)?.parse().ok()?;
        Some(Self { pid, started })
    }

    /// Opens the process, if it still runs.
    pub fn open(&self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(self.pid)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Compared afterwards: the descriptor stays with the process that it was opened for.
        (Self::of(pid).as_ref() == Some(self)).then_some(pidfd)
    }

    /// Kills the process, if it still runs.
    pub fn kill(&self) {
        if let Some(pidfd) = self.open() {
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_with_the_same_number_is_not_opened() {
        let own = ProcessIdentity::of(rustix::process::getpid()).unwrap();
        assert!(own.open().is_some());
        let earlier = ProcessIdentity { started: own.started - 1, ..own };
        assert!(earlier.open().is_none());
        earlier.kill();
    }
}
