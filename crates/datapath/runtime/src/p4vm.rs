//! The life of a P4 VM: it enters its sandbox, then serves the host until the host closes the connection.
//!
//! `p4shield p4vm` starts with one thread, one socket and standard error. The process waits for the host's
//! first message without reading it (by then the host has moved it into its cgroup), enters the sandbox,
//! forks the verifier's zygote while it has one thread, starts the worker and applies the system call
//! filters. Only then does it read. No byte of a tenant therefore reaches a process with privileges.

use crate::control_session::ControlSession;
use crate::evidence::EvidenceSource;
use crate::program::Verifier;
use crate::sandbox::seccomp::{self, Filter};
use crate::sandbox::{self, Limits, SandboxError};
use crate::schedule;
use crate::worker::{self, Worker};
use p4shield_bpf::verify::IsolatedError;
use p4shield_channel::WaitPolicy;
use p4shield_control::{Measure, SandboxReport, Socket, SocketError, Transport};
use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;
use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// The options of `p4shield p4vm`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of the control socket, inherited.
    pub control_fd: RawFd,
    /// Number of the socket to what collects evidence ([`crate::evidence`]), inherited; `None` without a TEE.
    pub evidence_fd: Option<RawFd>,
    /// User to change to if started as root.
    pub uid: u32,
    /// Sandbox measures that may be missing.
    pub allow_missing: Vec<Measure>,
    /// Resource limits.
    pub limits: Limits,
    /// Whether the worker has a core of its own, where it polls without sleeping.
    pub busy: bool,
    /// The core that the worker runs on; `None`: any.
    pub cpu: Option<usize>,
    /// Artificial delay for each packet, to measure the cost of slow programs; otherwise zero.
    pub delay: Duration,
}

/// Reason why a P4 VM ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum P4VmError {
    /// The descriptor is not a control socket.
    #[error(
        "descriptor {fd} is not a control socket; do not start `p4shield p4vm` by hand, use `p4shield run`"
    )]
    NoSocket {
        /// The number.
        fd: RawFd,
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
    /// The sandbox cannot be entered.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The addresses for machine code are in use.
    #[error("cannot set addresses aside for machine code; use Linux 4.17 or newer")]
    CodeArea(#[source] std::io::Error),
    /// The verifier's zygote cannot be started.
    #[error("cannot start the verifier's process")]
    Verifier(#[source] IsolatedError),
    /// The worker's thread cannot be started.
    #[error("cannot start the worker's thread")]
    Worker(#[source] std::io::Error),
    /// The worker cannot be bound to its core.
    #[error("cannot bind the worker to core {cpu}; `taskset -cp $$` lists the allowed cores")]
    Cpu {
        /// The number.
        cpu: usize,
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
    /// The control socket failed.
    #[error(transparent)]
    Socket(#[from] SocketError),
}

/// Runs a P4 VM until a daemon sends `Stop`, or the daemon closes the connection and no other adopts the
/// P4 VM in time. Must be called while the process has one thread; returns in another process than the
/// calling one (see [`sandbox::enter`]).
///
/// # Errors
/// The P4 VM cannot start, or the control socket fails.
pub fn run(options: &Options) -> Result<(), P4VmError> {
    let socket = control_socket(options.control_fd)?;
    let evidence = options.evidence_fd.map(control_socket).transpose()?.map(EvidenceSource::new);
    socket.wait(None)?;
    let report = enter_sandbox(options)?;
    serve(Box::new(socket), report, evidence, options)
}

/// Gives up what only the start needs. The system call filters come once the threads run.
fn enter_sandbox(options: &Options) -> Result<SandboxReport, P4VmError> {
    // The first read of a clock looks up the vDSO, with a system call that no filter allows.
    let _ = p4shield_seal::Now::read();
    p4shield_bpf::reserve_code_area().map_err(P4VmError::CodeArea)?;
    // Addresses set aside take no memory.
    let address_space = options.limits.address_space.saturating_add(p4shield_bpf::CODE_AREA.len() as u64);
    let report = sandbox::enter(&sandbox::Options {
        uid: options.uid,
        allow_missing: options.allow_missing.clone(),
        keep: std::iter::once(options.control_fd).chain(options.evidence_fd).collect(),
        limits: Limits { address_space, ..options.limits },
    })?;
    Ok(report)
}

/// Serves the host over this transport, with a verifier in a process of its own and a worker in a thread.
fn serve(
    transport: Box<dyn Transport>,
    report: SandboxReport,
    evidence: Option<EvidenceSource>,
    options: &Options,
) -> Result<(), P4VmError> {
    let seccomp_optional = options.allow_missing.contains(&Measure::Seccomp);
    let verifier = Verifier::start(seccomp_optional).map_err(P4VmError::Verifier)?;
    let (control, mailbox) = worker::mailbox().map_err(|e| P4VmError::Worker(e.into()))?;
    let (thread, worker, filtered) = spawn_worker(options.cpu)?;
    let ours = seccomp::apply(Filter::Control);
    let theirs = filtered.recv().unwrap_or(Ok(()));
    let report = waive_seccomp(report, ours.and(theirs), seccomp_optional)?;

    let policy = if options.busy { WaitPolicy::BUSY } else { WaitPolicy::default() };
    let mut session = ControlSession::new(transport, report, verifier, control, evidence);
    let started = session.handle_hello(|hello| {
        let interval = Duration::from_millis(hello.log_interval_ms.into());
        let started = Worker::new(mailbox, p4shield_control::verdict(hello.no_program), interval);
        worker.send(started.waiting(policy).delayed(options.delay)).is_ok()
    })?;
    if started {
        session.serve()?;
    }
    drop((session, worker));
    // The panic of a worker has been printed already.
    let _ = thread.join();
    Ok(())
}

fn control_socket(fd: RawFd) -> Result<Socket, P4VmError> {
    let no_socket = |source| P4VmError::NoSocket { fd, source };
    // SAFETY: the caller gave the descriptor to this process; nothing else in it uses the number. The type is
    // checked.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    match socket_type(owned.as_fd()) {
        Ok(SocketType::SEQPACKET) => Ok(Socket::new(owned)),
        other => {
            let e = other.err().map_or_else(|| std::io::ErrorKind::InvalidInput.into(), Into::into);
            // Not a control socket, so not this function's to close.
            let _ = owned.into_raw_fd();
            Err(no_socket(e))
        }
    }
}

type Spawned = (JoinHandle<()>, Sender<Worker>, Receiver<Result<(), SandboxError>>);

/// Starts the worker's thread, which binds itself to its core, applies its filter and waits for its
/// [`Worker`].
fn spawn_worker(cpu: Option<usize>) -> Result<Spawned, P4VmError> {
    let (filtered, is_filtered) = mpsc::channel();
    let (pinned, is_pinned) = mpsc::channel();
    let (worker, start) = mpsc::channel::<Worker>();
    let placement = move || {
        // Optional: without it the worker waits longer for its turn on a busy core.
        let _ = schedule::set_short_slice();
        cpu.map_or(Ok(()), |cpu| schedule::bind(cpu).map_err(|source| P4VmError::Cpu { cpu, source }))
    };
    let main = move || {
        if pinned.send(placement()).is_ok()
            && filtered.send(seccomp::apply(Filter::Worker)).is_ok()
            && let Ok(worker) = start.recv()
        {
            worker.run();
        }
    };
    let thread = std::thread::Builder::new().name("worker".into()).spawn(main).map_err(P4VmError::Worker)?;
    is_pinned.recv().unwrap_or(Ok(()))?;
    Ok((thread, worker, is_filtered))
}

fn waive_seccomp(
    mut report: SandboxReport,
    applied: Result<(), SandboxError>,
    optional: bool,
) -> Result<SandboxReport, SandboxError> {
    match applied {
        Err(e) if !optional => return Err(e),
        Err(_) => report.missing.push(Measure::Seccomp),
        Ok(()) => {}
    }
    Ok(report)
}
