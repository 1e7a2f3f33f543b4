//! The control connection of one P4 VM, and the process that it runs in.

use super::command::P4VmCommand;
use p4shield_compartment::{Group, LocalProcess, OutputTail, ProcessError, ProcessIdentity, spawn};
use p4shield_control::SandboxReport;
use p4shield_control::{Client, ClientError, Hello, PROTOCOL_VERSION, Reply, Request, Socket, SocketError};
use rustix::process::Pid;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Stdio;
use std::time::Duration;

/// Longest time for an answer without verification; ample even on a busy machine.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time to link, verify and compile a program.
pub(super) const VERIFY_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for a P4 VM to answer its next daemon: it may be verifying a program.
const ADOPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for a process that failed to write why.
const LAST_WORDS: Duration = Duration::from_secs(5);

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
    #[error(transparent)]
    Process(ProcessError),
}

impl From<ProcessError> for StartError {
    fn from(error: ProcessError) -> Self {
        match error {
            ProcessError::NotAChild(_) => Self::UnknownSender,
            error => Self::Process(error),
        }
    }
}

/// A running P4 VM.
pub(crate) struct Process {
    pub(crate) client: Client,
    pub(crate) sandbox: SandboxReport,
    process: LocalProcess,
    /// How many times longer than usual it may take to answer.
    slowness: u32,
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
        let (mut output, stderr) = OutputTail::new().map_err(StartError::Spawn)?;
        let mut command = p4vm.command();
        command.env_clear().stdin(Stdio::from(theirs.into_fd())).stdout(Stdio::null()).stderr(stderr);
        let parent = spawn(&mut command, group).map_err(StartError::Spawn);
        // Closes this process's copies of the child's ends, so that the child's end is noticed.
        drop(command);
        let mut parent = parent?;
        let mut client = Client::new(socket);
        let reply = client.call(Request::Hello(hello), descriptors, p4vm.start_timeout());
        if let Err(source) = reply {
            // A process that failed has closed its socket, and writes why before it ends.
            if matches!(source, ClientError::Socket(SocketError::Closed)) {
                output.read_to_end(LAST_WORDS);
            }
            let _ = parent.kill();
            let exit = parent.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
            output.read();
            let last = output.last();
            let why = if last.is_empty() { format!("it wrote no reason ({exit})") } else { last };
            return Err(StartError::NoAnswer { why, source });
        }
        // The first process forks the P4 VM and ends. That of a virtual machine stays.
        if p4vm.machine.is_none() {
            let _ = parent.wait();
        }
        match (reply, client.peer()) {
            (Ok(Reply::Hello { sandbox, .. }), Some(pid)) => {
                let process = LocalProcess::child(pid, Some(output))?;
                Ok(Self { client, sandbox, process, slowness: p4vm.slowness() })
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
        let (output, stderr) = OutputTail::new().map_err(StartError::Spawn)?;
        let process = LocalProcess::adopt(identity, Some(output))?;
        socket.ask_for_senders().map_err(ClientError::from)?;
        let mut client = Client::new(socket);
        let request = Request::Adopt { version: PROTOCOL_VERSION };
        let reply = client.call(request, &[stderr.as_fd()], ADOPT_TIMEOUT)?;
        match (reply, client.peer()) {
            (Reply::Hello { sandbox, .. }, Some(pid)) if pid == process.pid() => {
                Ok(Self { client, sandbox, process, slowness: p4vm.slowness() })
            }
            (Reply::Hello { .. }, _) => Err(StartError::UnknownSender),
            _ => Err(StartError::Client(ClientError::Unexpected)),
        }
    }

    /// Returns the number of its process.
    pub(crate) const fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Returns where the next daemon finds its process.
    pub(crate) const fn identity(&self) -> Option<ProcessIdentity> {
        self.process.identity()
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
    pub(crate) fn wait(&mut self, wake: BorrowedFd<'_>, timeout: Duration) -> bool {
        self.process.wait(wake, timeout)
    }

    /// Ends the process, if it still runs: in order within the grace, if it answers. Returns how it ended,
    /// with its last output.
    pub(crate) fn end(mut self, grace: Duration) -> String {
        let stops = !grace.is_zero() && self.client.call(Request::Stop, &[], grace).is_ok();
        self.process.end(if stops { grace } else { Duration::ZERO })
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
