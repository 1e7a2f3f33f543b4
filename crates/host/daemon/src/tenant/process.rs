//! One P4 VM's process: started, greeted, watched, ended.

use crate::cgroup::Group;
use p4shield_control::{
    Client, ClientError, Hello, Reply, Request, SandboxReport, Socket, SocketError, printable,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, pidfd_send_signal, waitid,
};
use std::io::{PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Longest time until a P4 VM has locked itself down.
const START: Duration = Duration::from_secs(10);
/// Longest time for an answer that takes no verification: far more than a P4 VM needs that a busy machine lets run at all.
pub(super) const ANSWER: Duration = Duration::from_secs(5);
/// Longest time for a program to be linked, verified and compiled.
pub(super) const VERIFY: Duration = Duration::from_secs(30);
/// Lines of a P4 VM's standard error that are kept.
const WORDS: usize = 20;
/// Longest line of it.
const LINE: usize = 400;

/// How to start a P4 VM.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// The binary, started as `BINARY p4vm ...`.
    pub(crate) binary: PathBuf,
    /// The user that it becomes.
    pub(crate) uid: u32,
    /// Names of measures that may be missing.
    pub(crate) allow_missing: Vec<String>,
    /// Bytes of address space.
    pub(crate) memory: u64,
    /// The core that judges packets; `None`: any.
    pub(crate) cpu: Option<u32>,
    /// Whether it never sleeps.
    pub(crate) busy: bool,
    /// What it takes longer for each packet.
    pub(crate) delay: Duration,
}

/// Why a P4 VM does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("cannot start the P4 VM's process")]
    Spawn(#[source] std::io::Error),
    #[error("the P4 VM did not come up; it said: {words}")]
    Silent {
        words: String,
        #[source]
        source: ClientError,
    },
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the P4 VM's answer did not come from a process that the daemon started")]
    Stranger,
}

/// A P4 VM that runs.
pub(crate) struct Process {
    pub(crate) client: Client,
    pub(crate) pid: Pid,
    pub(crate) sandbox: SandboxReport,
    pidfd: OwnedFd,
    words: Words,
}

/// The last lines of a P4 VM's standard error. What a tenant's compartment writes never reaches a terminal as it is.
struct Words {
    pipe: PipeReader,
    lines: Vec<String>,
    partial: Vec<u8>,
}

impl Process {
    /// Starts a P4 VM, puts it into its cgroup, and greets it.
    pub(crate) fn start(
        launch: &Launch,
        group: Option<&Group>,
        hello: Hello,
        key: Option<BorrowedFd<'_>>,
    ) -> Result<Self, StartError> {
        let (socket, theirs) = Socket::pair().map_err(ClientError::from)?;
        socket.ask_for_senders().map_err(ClientError::from)?;
        let (pipe, stderr) = std::io::pipe().map_err(StartError::Spawn)?;
        rustix::fs::fcntl_setfl(&pipe, OFlags::NONBLOCK).map_err(|e| StartError::Spawn(e.into()))?;
        let mut words = Words { pipe, lines: Vec::new(), partial: Vec::new() };
        let mut command = Command::new(&launch.binary);
        command.args(["p4vm", "--control-fd", "0", "--uid", &launch.uid.to_string()]);
        command.args(["--memory", &launch.memory.to_string()]);
        if let Some(cpu) = launch.cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        if launch.busy {
            command.arg("--busy");
        }
        if !launch.delay.is_zero() {
            command.args(["--delay-ns", &launch.delay.as_nanos().to_string()]);
        }
        for m in &launch.allow_missing {
            command.args(["--allow-missing", m]);
        }
        command.env_clear().stdin(Stdio::from(theirs.into_fd())).stdout(Stdio::null()).stderr(stderr);
        let mut first = command.spawn().map_err(StartError::Spawn)?;
        // Closes this side's copies of the child's ends, so that their end is noticed.
        drop(command);
        if let Some(Err(e)) = group.map(|g| g.add(first.id())) {
            let _ = first.kill();
            let _ = first.wait();
            return Err(StartError::Spawn(e));
        }
        let mut client = Client::new(socket);
        let greeted = client.call(Request::Hello(hello), key.as_slice(), START);
        // The process that was started made the one that answers, and ended; or it failed, and said why.
        if greeted.is_err() {
            let _ = first.kill();
        }
        let _ = first.wait();
        let pid = client.peer();
        match (greeted, pid) {
            (Ok(Reply::Hello { sandbox, .. }), Some(pid)) => Self::adopt(client, pid, sandbox, words),
            (Err(source), _) => {
                words.read();
                Err(StartError::Silent { words: words.last(), source })
            }
            _ => Err(StartError::Client(ClientError::Unexpected)),
        }
    }

    fn adopt(client: Client, pid: Pid, sandbox: SandboxReport, words: Words) -> Result<Self, StartError> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| StartError::Spawn(e.into()))?;
        // Only a child can be waited for, so this is what was started here and no process of another number.
        match waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            Ok(_) => Ok(Self { client, pid, sandbox, pidfd, words }),
            Err(_) => Err(StartError::Stranger),
        }
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn ask(
        &mut self,
        request: Request,
        descriptors: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<Reply, ClientError> {
        self.client.call(request, descriptors, timeout)
    }

    /// Waits until the process ended, `wake` can be read, or time is over. True if it ended. What it writes wakes
    /// nobody: it is read when there is another reason, and a P4 VM that writes faster than that waits.
    pub(crate) fn wait(&mut self, wake: BorrowedFd<'_>, timeout: Duration) -> bool {
        let timeout = Timespec::try_from(timeout).ok();
        let mut fds =
            [PollFd::new(&self.pidfd, PollFlags::IN), PollFd::from_borrowed_fd(wake, PollFlags::IN)];
        let _ = poll(&mut fds, timeout.as_ref());
        let ended = !fds[0].revents().is_empty();
        self.words.read();
        ended
    }

    /// Ends it, if it has not ended, and tells how it ended and what it said last.
    pub(crate) fn end(mut self, grace: Duration) -> String {
        if !grace.is_zero() && self.client.call(Request::Stop, &[], grace).is_ok() {
            let timeout = Timespec::try_from(grace).ok();
            let _ = poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], timeout.as_ref());
        }
        // Stopped, deaf or looping: this reaches it anyway. An error means that it is gone.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        let status = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED).ok().flatten();
        self.words.read();
        let words = self.words.last();
        let how = status.map_or_else(|| "it is gone".to_owned(), |s| how(&s));
        if words.is_empty() { how } else { format!("{how}; it said: {words}") }
    }
}

/// Forgets processes that this thread started, directly or by what it started, and that have ended without having been
/// adopted: a P4 VM that failed while it locked itself down. Only for a thread that watches no process at the time.
pub(super) fn reap_strays() {
    // Children of other threads are other keepers' business.
    let mine = WaitIdOptions::from_bits_retain(libc::__WNOTHREAD.unsigned_abs());
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | mine;
    while let Ok(Some(_)) = waitid(WaitId::All, options) {}
}

/// How a process ended, for people.
fn how(status: &WaitIdStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => "it ended".to_owned(),
        (Some(code), _) => format!("it ended with status {code}"),
        (_, Some(libc::SIGSYS)) => {
            "the kernel killed it for a system call that is not on its list (SIGSYS)".to_owned()
        }
        (_, Some(libc::SIGKILL)) => "it was killed (SIGKILL)".to_owned(),
        (_, Some(signal)) => format!("signal {signal} ended it"),
        _ => "it ended".to_owned(),
    }
}

impl Words {
    /// Takes what is there, up to a bound: a P4 VM that writes without end is not read without end.
    fn read(&mut self) {
        let mut buffer = [0; 4096];
        for _ in 0..16 {
            let Ok(n @ 1..) = self.pipe.read(&mut buffer) else { return };
            for byte in &buffer[..n] {
                match byte {
                    b'\n' => self.end_line(),
                    _ if self.partial.len() < LINE => self.partial.push(*byte),
                    _ => {}
                }
            }
        }
    }

    fn end_line(&mut self) {
        let line = printable(&String::from_utf8_lossy(&self.partial));
        self.partial.clear();
        if self.lines.len() == WORDS {
            self.lines.remove(0);
        }
        self.lines.push(line);
    }

    fn last(&mut self) -> String {
        if !self.partial.is_empty() {
            self.end_line();
        }
        self.lines.join(" / ")
    }
}

/// Whether a P4 VM that answered this can go on.
pub(super) const fn in_step(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Failed(_) | ClientError::Refused(_) | ClientError::Socket(SocketError::TooLong { .. })
    )
}

#[cfg(test)]
mod tests {
    use p4shield_control::{MAX_NAME, MAX_VMS, Measure};
    use p4shield_runtime::sandbox::Limits;

    #[test]
    fn the_configuration_has_the_limits_of_the_p4_vm() {
        assert_eq!(p4shield_config::MEASURES, Measure::ALL.map(Measure::name));
        assert_eq!((p4shield_config::MAX_NAME, p4shield_config::MAX_VMS), (MAX_NAME, MAX_VMS.into()));
        assert_eq!(p4shield_config::DEFAULT_MEMORY, Limits::default().address_space);
    }
}
