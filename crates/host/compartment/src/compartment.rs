//! What the daemon sees of a P4 VM, wherever it runs.

use crate::{Group, P4VmCommand, ProcessError, ProcessIdentity};
use p4shield_control::{ClientError, Hello, Reply, Request, Resources, SandboxReport, Socket, SocketError};
use rustix::process::Pid;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Starts and adopts P4 VMs.
pub trait Launcher: Send + Sync {
    /// Starts a P4 VM in its cgroup, and sends it the first message with the resources that it names.
    ///
    /// # Errors
    /// It does not run, for this reason.
    fn start(
        &self,
        p4vm: &P4VmCommand,
        group: Option<&Group>,
        hello: Hello,
        resources: &Resources<'_>,
    ) -> Result<Box<dyn Compartment>, StartError>;

    /// Adopts a P4 VM that another daemon started, over a connection to its door.
    ///
    /// # Errors
    /// It has ended, or does not answer as the one that is meant.
    fn adopt(
        &self,
        p4vm: &P4VmCommand,
        socket: Socket,
        identity: &ProcessIdentity,
    ) -> Result<Box<dyn Compartment>, StartError>;
}

/// A running P4 VM.
pub trait Compartment: Send {
    /// Returns the number of its process on this machine.
    fn pid(&self) -> Pid;

    /// Returns where the next daemon finds it; `None`: it ends with this one.
    fn identity(&self) -> Option<ProcessIdentity>;

    /// Returns which measures of its sandbox are in force.
    fn sandbox(&self) -> &SandboxReport;

    /// Sends a request and waits for its answer, for this long on an ordinary machine.
    ///
    /// # Errors
    /// The P4 VM refuses the request, or has to be replaced ([`is_recoverable`]).
    fn call(
        &mut self,
        request: Request,
        resources: &Resources<'_>,
        timeout: Duration,
    ) -> Result<Reply, ClientError>;

    /// Waits until it ends, `wake` is readable, or the timeout. Returns whether it ended.
    fn wait(&mut self, wake: BorrowedFd<'_>, timeout: Duration) -> bool;

    /// Ends it, if it still runs: in order within the grace, if it answers. Returns how it ended, with its
    /// last output.
    fn end(self: Box<Self>, grace: Duration) -> String;
}

/// Reason why a P4 VM does not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No process could be started.
    #[error("cannot start the process of the P4 VM")]
    Spawn(#[source] std::io::Error),
    /// It ended, or did not answer in time.
    #[error("the P4 VM did not start: {why}")]
    NoAnswer {
        /// Its last output, or how it ended.
        why: String,
        /// What went wrong with the first message.
        #[source]
        source: ClientError,
    },
    /// Its answer is of no use.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Another process answered.
    #[error(
        "the answer did not come from a process that the daemon started; another process has the P4 VM's \
         socket"
    )]
    UnknownSender,
    /// Its process cannot be watched.
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

/// Returns whether the P4 VM is still usable after this error.
pub const fn is_recoverable(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Failed(_) | ClientError::Refused(_) | ClientError::Socket(SocketError::TooLong { .. })
    )
}
