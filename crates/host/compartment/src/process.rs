//! A process of this machine: its start, how long it runs, and how it ends.

use crate::cgroup::Group;
use crate::identity::ProcessIdentity;
use crate::output::OutputTail;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, pidfd_send_signal, waitid,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Longest time for the kernel to end a process that was killed.
const KILLED: Duration = Duration::from_secs(5);
/// Longest time that the end of a supervisor waits for processes that failed to start.
const LAST_REAPED: Duration = Duration::from_secs(1);

/// Reason why a process cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It is gone; its number may belong to another one.
    #[error("the process has ended")]
    Ended,
    /// This process did not start it.
    #[error("process {0} is no child of this one")]
    NotAChild(i32),
    /// The kernel gives no descriptor for it.
    #[error("cannot open the process")]
    Open(#[source] io::Error),
}

/// A process that runs. It is watched and killed by descriptor, so that another one with its number is left
/// alone.
#[derive(Debug)]
pub struct LocalProcess {
    pid: Pid,
    identity: Option<ProcessIdentity>,
    pidfd: OwnedFd,
    output: Option<OutputTail>,
}

impl LocalProcess {
    /// Watches a process that this one started. `output`: where its standard error arrives, if it does.
    ///
    /// # Errors
    /// It is no child of this process, or cannot be opened.
    pub fn child(pid: Pid, output: Option<OutputTail>) -> Result<Self, ProcessError> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| ProcessError::Open(e.into()))?;
        // waitid succeeds for children only, so this process was started here and its ID was not reused. One
        // that has ended already keeps its status for `end`.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::PidFd(pidfd.as_fd()), look).map_err(|_| ProcessError::NotAChild(pid.as_raw_pid()))?;
        Ok(Self { pid, identity: ProcessIdentity::of(pid), pidfd, output })
    }

    /// Watches a process that another daemon started.
    ///
    /// # Errors
    /// It has ended.
    pub fn adopt(identity: &ProcessIdentity, output: Option<OutputTail>) -> Result<Self, ProcessError> {
        let pid = Pid::from_raw(identity.pid).ok_or(ProcessError::Ended)?;
        let pidfd = identity.open().ok_or(ProcessError::Ended)?;
        Ok(Self { pid, identity: Some(*identity), pidfd, output })
    }

    /// Returns its number.
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns where the next daemon finds it; `None` without `/proc`.
    pub const fn identity(&self) -> Option<ProcessIdentity> {
        self.identity
    }

    /// Returns a descriptor that is readable once the process has ended.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn pidfd(&self) -> io::Result<OwnedFd> {
        self.pidfd.try_clone()
    }

    /// Waits until the process ends, `wake` is readable, or the timeout. Returns whether the process ended.
    /// Its output does not end the wait: it is read afterwards, and a process that writes faster than that
    /// blocks.
    pub fn wait(&mut self, wake: BorrowedFd<'_>, timeout: Duration) -> bool {
        let timeout = Timespec::try_from(timeout).ok();
        let mut fds =
            [PollFd::new(&self.pidfd, PollFlags::IN), PollFd::from_borrowed_fd(wake, PollFlags::IN)];
        let _ = poll(&mut fds, timeout.as_ref());
        let ended = !fds[0].revents().is_empty();
        self.read_output();
        ended
    }

    /// Ends the process. It has this time to end by itself. Returns how it ended, with its last output.
    pub fn end(mut self, grace: Duration) -> String {
        if !grace.is_zero() {
            self.wait_for_end(grace);
        }
        // SIGKILL also ends a process that is stopped or loops. An error means that it has ended.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        // An adopted one may be no child of this process, for which `waitid` does not wait.
        self.wait_for_end(KILLED);
        let status = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        self.read_output();
        let exit = match status {
            Ok(Some(status)) => describe_exit(&status),
            Ok(None) => "it was killed and has not ended yet".to_owned(),
            Err(_) => "it has ended".to_owned(),
        };
        let last = self.output.as_mut().map(OutputTail::last).unwrap_or_default();
        if last.is_empty() { exit } else { format!("{exit}; its last output: {last}") }
    }

    fn wait_for_end(&self, time: Duration) {
        let timeout = Timespec::try_from(time).ok();
        let _ = poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], timeout.as_ref());
    }

    fn read_output(&mut self) {
        if let Some(output) = &mut self.output {
            output.read();
        }
    }
}

/// Starts a process in a cgroup.
///
/// # Errors
/// The program cannot be started, or the group does not take it; then it is killed.
pub fn spawn(command: &mut Command, group: Option<&Group>) -> io::Result<Child> {
    let mut child = command.spawn()?;
    match group.map(|g| g.add(child.id())) {
        Some(Err(e)) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(e)
        }
        _ => Ok(child),
    }
}

/// Reaps processes below this thread that ended without having been watched, such as a P4 VM that failed to
/// enter its sandbox. Only for a thread that watches no process at the time.
pub fn reap_failed_starts() {
    while let Ok(Some(_)) = reap_one() {}
}

/// The same at the end of such a thread: waits a moment for processes that are about to end.
pub fn reap_last_starts() {
    let end = Instant::now() + LAST_REAPED;
    // An error means that there are no children.
    while let Ok(reaped) = reap_one() {
        if reaped.is_none() {
            if Instant::now() >= end {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Reaps a child of this thread that has ended; children of other threads belong to other supervisors.
fn reap_one() -> rustix::io::Result<Option<WaitIdStatus>> {
    let mine = WaitIdOptions::from_bits_retain(libc::__WNOTHREAD.unsigned_abs());
    waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG | mine)
}

/// Describes how a process ended.
fn describe_exit(status: &WaitIdStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => "it ended".to_owned(),
        (Some(code), _) => format!("it ended with status {code}"),
        (_, Some(libc::SIGSYS)) => {
            "the kernel killed it for a system call that its seccomp filter forbids (SIGSYS)".to_owned()
        }
        (_, Some(libc::SIGKILL)) => "it was killed (SIGKILL)".to_owned(),
        (_, Some(signal)) => format!("signal {signal} ended it"),
        _ => "it ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    /// Starts a shell that runs `script`, with its standard error in the process's output.
    fn shell(script: &str) -> LocalProcess {
        let (output, stderr) = OutputTail::new().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]).stderr(Stdio::from(stderr));
        let pid = spawn(&mut command, None).map(|child| Pid::from_child(&child)).unwrap();
        // Else the pipe would stay open.
        drop(command);
        LocalProcess::child(pid, Some(output)).unwrap()
    }

    #[test]
    fn the_end_of_a_process_is_described_with_its_last_output() {
        let text = shell("echo no memory >&2; exit 3").end(Duration::from_secs(60));
        assert_eq!(text, "it ended with status 3; its last output: no memory");
    }

    #[test]
    fn a_process_that_outlives_its_grace_is_killed() {
        assert_eq!(shell("exec sleep 600").end(Duration::from_millis(1)), "it was killed (SIGKILL)");
    }

    #[test]
    fn a_wait_ends_with_the_process_or_with_its_waker() {
        let (wake, ring) = io::pipe().unwrap();
        let mut process = shell("exec sleep 600");
        io::Write::write_all(&mut &ring, b"x").unwrap();
        assert!(!process.wait(wake.as_fd(), Duration::from_secs(60)), "it runs");
        pidfd_send_signal(process.pidfd().unwrap(), Signal::KILL).unwrap();
        let (silent, _ring) = io::pipe().unwrap();
        assert!(process.wait(silent.as_fd(), Duration::from_secs(60)), "it has ended");
        process.end(Duration::ZERO);
    }

    #[test]
    fn a_process_that_others_started_is_no_child_but_is_adopted() {
        let parent = rustix::process::getppid().unwrap();
        assert!(matches!(LocalProcess::child(parent, None), Err(ProcessError::NotAChild(_))));
        let identity = ProcessIdentity::of(parent).unwrap();
        assert_eq!(LocalProcess::adopt(&identity, None).unwrap().pid(), parent);
    }

    #[test]
    fn a_process_that_ended_is_not_adopted() {
        let process = shell("exec sleep 600");
        let identity = process.identity().unwrap();
        process.end(Duration::ZERO);
        assert!(matches!(LocalProcess::adopt(&identity, None), Err(ProcessError::Ended)));
    }
}
