//! The process of one P4 VM: start, control requests, end.

use crate::adoption::ProcessIdentity;
use crate::cgroup::Group;
use crate::config::{Machine, Tee};
use p4shield_control::SandboxReport;
use p4shield_control::{
    Client, ClientError, Hello, PROTOCOL_VERSION, Reply, Request, Socket, SocketError, printable,
};
use p4shield_qemu::Accelerator;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, pidfd_send_signal, waitid,
};
use std::io::{PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Longest time for a P4 VM to enter its sandbox and answer: long, since one that fails closes its socket.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for a virtual machine to boot, by emulation on a busy machine, and answer.
const BOOT_TIMEOUT: Duration = Duration::from_secs(130);
/// Longest time for an answer without verification; ample even on a busy machine.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time to link, verify and compile a program.
pub(super) const VERIFY_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for a P4 VM to answer its next daemon: it may be verifying a program.
const ADOPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for a process that failed to write why.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Longest time that the end of a supervisor waits for processes that failed to start.
const LAST_REAPED: Duration = Duration::from_secs(1);
/// Longest time for the kernel to end a process that was killed.
const KILLED: Duration = Duration::from_secs(5);
/// Lines of a P4 VM's standard error that are kept.
const MAX_LINES: usize = 20;
/// Longest line that is kept, in bytes.
const MAX_LINE: usize = 400;

/// The command line of a P4 VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct P4VmCommand {
    /// The binary, started as `BINARY p4vm ...`.
    pub(crate) binary: PathBuf,
    /// The user that it runs as.
    pub(crate) uid: u32,
    /// Names of sandbox measures that may be missing.
    pub(crate) allow_missing: Vec<String>,
    /// Bytes of address space.
    pub(crate) memory: u64,
    /// The core that its worker runs on; `None`: any.
    pub(crate) cpu: Option<u32>,
    /// Whether its worker polls without sleeping.
    pub(crate) busy: bool,
    /// Artificial delay for each packet.
    pub(crate) delay: Duration,
    /// Its virtual machine; `None`: it is a process.
    pub(crate) machine: Option<Machine>,
    /// What keeps its virtual machine's memory from the host.
    pub(crate) tee: Tee,
}

impl P4VmCommand {
    /// Returns the command that starts the P4 VM with the control socket as standard input.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        match self.machine {
            Some(_) => command.arg("vmm"),
            None => command.args(["p4vm", "--control-fd", "0"]),
        };
        command.args(["--uid", &self.uid.to_string()]);
        command.args(["--memory", &self.memory.to_string()]);
        if self.busy {
            command.arg("--busy");
        }
        if !self.delay.is_zero() {
            command.args(["--delay-ns", &self.delay.as_nanos().to_string()]);
        }
        let Some(machine) = &self.machine else {
            if let Some(cpu) = self.cpu {
                command.args(["--cpu", &cpu.to_string()]);
            }
            for m in &self.allow_missing {
                command.args(["--allow-missing", m]);
            }
            return command;
        };
        command.arg("--image").arg(&machine.image).arg("--qemu").arg(&machine.qemu);
        command.args(["--processors", &machine.processors.to_string()]);
        command.args(["--accelerator", accelerator(machine)]);
        self.add_tee(&mut command, machine);
        command
    }

    /// Adds the arguments for a machine with a TEE.
    fn add_tee(&self, command: &mut Command, machine: &Machine) {
        if self.tee == Tee::None {
            return;
        }
        command.args(["--tee", self.tee.name()]).arg("--firmware").arg(firmware(machine, self.tee));
        if let Some(processor) = &machine.processor {
            command.args(["--processor", processor]);
        }
        if let Some(service) = &machine.quote_service {
            command.args(["--quote-service", service]);
        }
    }

    /// Returns how many times longer than a process a P4 VM may take to answer: instructions may be emulated.
    const fn slowness(&self) -> u32 {
        if self.machine.is_some() { 6 } else { 1 }
    }

    /// Returns the longest time until a P4 VM answers the first message. A virtual machine boots first.
    const fn start_timeout(&self) -> Duration {
        if self.machine.is_some() { BOOT_TIMEOUT } else { START_TIMEOUT }
    }

    /// Returns the time between two checks. Each one costs a virtual machine some hundred interrupts.
    pub(super) const fn check_interval(&self) -> Duration {
        Duration::from_millis(if self.machine.is_some() { 1000 } else { 200 })
    }

    /// Returns the group that may read and write pages, beside their owner: QEMU's.
    pub(super) fn page_group(&self) -> Option<u32> {
        let is_other_user = self.machine.is_some() && rustix::process::geteuid().is_root();
        is_other_user.then_some(self.uid)
    }
}

/// Returns QEMU's name of the accelerator: that of the configuration, or the best one that works, which
/// is found once.
fn accelerator(machine: &Machine) -> &'static str {
    static BEST: OnceLock<Accelerator> = OnceLock::new();
    machine.accelerator.unwrap_or_else(|| {
        let best = || {
            let best = Accelerator::probe(&machine.qemu);
            tracing::info!(event = "accelerator", accelerator = best.name(), "virtual machines run with it");
            best
        };
        BEST.get_or_init(best).name()
    })
}

/// Returns the firmware of machines with a TEE: that of the configuration, or Debian's.
pub(crate) fn firmware(machine: &Machine, tee: Tee) -> &Path {
    let packaged = match tee {
        Tee::Tdx => "/usr/share/ovmf/OVMF.inteltdx.ms.fd",
        Tee::None | Tee::SevSnp => "/usr/share/ovmf/OVMF.amdsev.fd",
    };
    machine.firmware.as_deref().unwrap_or(Path::new(packaged))
}

/// Why a P4 VM does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("cannot start the process of the P4 VM")]
    Spawn(#[source] std::io::Error),
    #[error("the P4 VM did not start: {why}")]
    NoAnswer {
        why: String,
        #[source]
        source: ClientError,
    },
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(
        "the answer did not come from a process that the daemon started; another process has the P4 VM's \
         socket"
    )]
    UnknownSender,
    #[error("the process has ended")]
    Ended,
}

/// A running P4 VM.
pub(crate) struct Process {
    pub(crate) client: Client,
    pub(crate) pid: Pid,
    pub(crate) sandbox: SandboxReport,
    /// Where the next daemon finds it.
    pub(crate) identity: Option<ProcessIdentity>,
    pidfd: OwnedFd,
    stderr_tail: StderrTail,
    /// How many times longer than usual it may take to answer.
    slowness: u32,
}

/// The last lines of a P4 VM's standard error. Control characters are removed, as they could reach a
/// terminal.
struct StderrTail {
    pipe: PipeReader,
    lines: Vec<String>,
    partial: Vec<u8>,
}

impl Process {
    /// Starts a P4 VM in its cgroup and sends it `Hello` with its descriptors.
    pub(crate) fn start(
        p4vm: &P4VmCommand,
        group: Option<&Group>,
        hello: Hello,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Self, StartError> {
        let (socket, theirs) = Socket::pair().map_err(ClientError::from)?;
        socket.ask_for_senders().map_err(ClientError::from)?;
        let (mut stderr_tail, stderr) = StderrTail::new()?;
        let mut command = p4vm.command();
        command.env_clear().stdin(Stdio::from(theirs.into_fd())).stdout(Stdio::null()).stderr(stderr);
        let mut parent = command.spawn().map_err(StartError::Spawn)?;
        // Closes this process's copies of the child's ends, so that the child's end is noticed.
        drop(command);
        if let Some(Err(e)) = group.map(|g| g.add(parent.id())) {
            let _ = parent.kill();
            let _ = parent.wait();
            return Err(StartError::Spawn(e));
        }
        let mut client = Client::new(socket);
        let reply = client.call(Request::Hello(hello), descriptors, p4vm.start_timeout());
        if let Err(source) = reply {
            // A process that failed has closed its socket, and writes why before it ends.
            if matches!(source, ClientError::Socket(SocketError::Closed)) {
                stderr_tail.read_to_end(LAST_WORDS);
            }
            let _ = parent.kill();
            let exit = parent.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
            stderr_tail.read();
            let said = stderr_tail.last();
            let why = if said.is_empty() { format!("it wrote no reason ({exit})") } else { said };
            return Err(StartError::NoAnswer { why, source });
        }
        // The first process forks the P4 VM and ends. That of a virtual machine stays.
        if p4vm.machine.is_none() {
            let _ = parent.wait();
        }
        let pid = client.peer();
        match (reply, pid) {
            (Ok(Reply::Hello { sandbox, .. }), Some(pid)) => {
                Self::child(client, pid, sandbox, (stderr_tail, p4vm.slowness()))
            }
            _ => Err(StartError::Client(ClientError::Unexpected)),
        }
    }

    /// Adopts a P4 VM that another daemon started, over a connection to its door.
    pub(crate) fn adopt(
        p4vm: &P4VmCommand,
        socket: Socket,
        identity: &ProcessIdentity,
    ) -> Result<Self, StartError> {
        let pidfd = identity.open().ok_or(StartError::Ended)?;
        socket.ask_for_senders().map_err(ClientError::from)?;
        let (stderr_tail, stderr) = StderrTail::new()?;
        let mut client = Client::new(socket);
        let request = Request::Adopt { version: PROTOCOL_VERSION };
        let reply = client.call(request, &[stderr.as_fd()], ADOPT_TIMEOUT)?;
        match (reply, client.peer()) {
            (Reply::Hello { sandbox, .. }, Some(pid)) if pid.as_raw_pid() == identity.pid => {
                let (identity, slowness) = (Some(*identity), p4vm.slowness());
                Ok(Self { client, pid, sandbox, identity, pidfd, stderr_tail, slowness })
            }
            (Reply::Hello { .. }, _) => Err(StartError::UnknownSender),
            _ => Err(StartError::Client(ClientError::Unexpected)),
        }
    }

    /// Returns the P4 VM that this daemon started.
    fn child(
        client: Client,
        pid: Pid,
        sandbox: SandboxReport,
        (stderr_tail, slowness): (StderrTail, u32),
    ) -> Result<Self, StartError> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| StartError::Spawn(e.into()))?;
        // waitid succeeds for children only, so this process was started here and its ID was not reused.
        match waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            Ok(_) => {
                let identity = ProcessIdentity::of(pid);
                Ok(Self { client, pid, sandbox, identity, pidfd, stderr_tail, slowness })
            }
            Err(_) => Err(StartError::UnknownSender),
        }
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn call(
        &mut self,
        request: Request,
        descriptors: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<Reply, ClientError> {
        self.client.call(request, descriptors, timeout * self.slowness)
    }

    /// Waits until the process ends, `wake` is readable, or the timeout. Returns whether the process ended.
    /// Its output does not end the wait: it is read afterwards, and a P4 VM that writes faster than that
    /// blocks.
    pub(crate) fn wait(&mut self, wake: BorrowedFd<'_>, timeout: Duration) -> bool {
        let timeout = Timespec::try_from(timeout).ok();
        let mut fds =
            [PollFd::new(&self.pidfd, PollFlags::IN), PollFd::from_borrowed_fd(wake, PollFlags::IN)];
        let _ = poll(&mut fds, timeout.as_ref());
        let ended = !fds[0].revents().is_empty();
        self.stderr_tail.read();
        ended
    }

    /// Ends the process, if it still runs. Returns how it ended, with its last output.
    pub(crate) fn end(mut self, grace: Duration) -> String {
        if !grace.is_zero() && self.client.call(Request::Stop, &[], grace).is_ok() {
            let timeout = Timespec::try_from(grace).ok();
            let _ = poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], timeout.as_ref());
        }
        // SIGKILL also ends a process that is stopped or loops. An error means that it has ended.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        // An adopted one may be no child of this process, for which `waitid` does not wait.
        let _ =
            poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Timespec::try_from(KILLED).ok().as_ref());
        let status = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED).ok().flatten();
        self.stderr_tail.read();
        let stderr_tail = self.stderr_tail.last();
        let exit = status.map_or_else(|| "it has ended".to_owned(), |s| describe_exit(&s));
        if stderr_tail.is_empty() { exit } else { format!("{exit}; its last output: {stderr_tail}") }
    }
}

/// Reaps processes below this thread that ended without having been adopted, such as a P4 VM that failed to
/// enter its sandbox. Only for a thread that supervises no process at the time.
pub(super) fn reap_failed_starts() {
    while let Ok(Some(_)) = reap_one() {}
}

/// The same at the end of such a thread: waits a moment for processes that are about to end.
pub(super) fn reap_last_starts() {
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

impl StderrTail {
    /// Returns the reading end, and the end for the P4 VM.
    fn new() -> Result<(Self, PipeWriter), StartError> {
        let (pipe, stderr) = std::io::pipe().map_err(StartError::Spawn)?;
        rustix::fs::fcntl_setfl(&pipe, OFlags::NONBLOCK).map_err(|e| StartError::Spawn(e.into()))?;
        Ok((Self { pipe, lines: Vec::new(), partial: Vec::new() }, stderr))
    }

    /// Reads the available output, up to a bound: a P4 VM may write without end.
    fn read(&mut self) {
        let mut buffer = [0; 4096];
        for _ in 0..16 {
            let Ok(n @ 1..) = self.pipe.read(&mut buffer) else { return };
            for byte in &buffer[..n] {
                match byte {
                    b'\n' => self.end_line(),
                    _ if self.partial.len() < MAX_LINE => self.partial.push(*byte),
                    _ => {}
                }
            }
        }
    }

    /// Reads until all processes that may write have ended, or for this long.
    fn read_to_end(&mut self, longest: Duration) {
        let end = Instant::now() + longest;
        loop {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
            let mut fds = [PollFd::new(&self.pipe, PollFlags::IN)];
            let ready = poll(&mut fds, left.as_ref()).unwrap_or(0);
            let is_over = ready == 0 || fds[0].revents() == PollFlags::HUP;
            self.read();
            if is_over || Instant::now() >= end {
                return;
            }
        }
    }

    fn end_line(&mut self) {
        let line = printable(&String::from_utf8_lossy(&self.partial));
        self.partial.clear();
        if self.lines.len() == MAX_LINES {
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

/// Returns whether the P4 VM is still usable after this error.
pub(super) const fn is_recoverable(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Failed(_) | ClientError::Refused(_) | ClientError::Socket(SocketError::TooLong { .. })
    )
}

#[cfg(test)]
mod tests {
    use p4shield_control::Measure;
    use p4shield_control::{MAX_NAME, MAX_VMS};
    use p4shield_runtime::sandbox::Limits;

    #[test]
    fn configuration_and_p4_vm_have_the_same_limits() {
        assert_eq!(p4shield_config::MEASURES, Measure::ALL.map(Measure::name));
        assert_eq!((p4shield_config::MAX_NAME, p4shield_config::MAX_VMS), (MAX_NAME, MAX_VMS.into()));
        assert_eq!(
            p4shield_config::Tee::ALL.map(p4shield_config::Tee::name),
            p4shield_qemu::Tee::ALL.map(p4shield_qemu::Tee::name)
        );
        assert_eq!(p4shield_config::DEFAULT_MEMORY, Limits::default().address_space);
    }
}
