//! The P4 VM's life: lock down, then do what the host asks, until it hangs up.
//!
//! The process that `p4shield p4vm` starts has one thread, one socket and standard error. It waits for the host's
//! first message without reading it (by then the host has put it into its cgroup), locks itself down, forks the
//! verifier's zygote while it still has one thread, starts the worker, applies the system call lists, and only
//! then reads. So all that a tenant wrote meets a process that has nothing to lose.

use crate::program::Verifier;
use crate::sandbox::seccomp::{self, Kind};
use crate::sandbox::{self, Limits, SandboxError};
use crate::schedule;
use crate::session::Session;
use crate::worker::{self, Worker};
use p4shield_bpf::verify::IsolatedError;
use p4shield_channel::WaitPolicy;
use p4shield_control::{Measure, SandboxReport, Socket, SocketError};
use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;
use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// How `p4shield p4vm` was called.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of the control socket, inherited.
    pub control_fd: RawFd,
    /// User to become if started as root.
    pub uid: u32,
    /// Measures whose lack is accepted.
    pub allow_missing: Vec<Measure>,
    /// Resource limits.
    pub limits: Limits,
    /// Whether the worker has a core of its own: it never sleeps then, whether there are packets or not.
    pub busy: bool,
    /// The core that the worker runs on; any if there is none.
    pub cpu: Option<usize>,
    /// What it takes longer for each packet, to measure what slow programs cost; zero otherwise.
    pub delay: Duration,
}

/// Why a P4 VM ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum P4VmError {
    /// The control descriptor is not what it has to be.
    #[error(
        "descriptor {fd} is no control socket: `p4shield p4vm` is started by `p4shield run`, not by hand"
    )]
    NoSocket {
        /// Its number.
        fd: RawFd,
        /// What the kernel says.
        #[source]
        source: std::io::Error,
    },
    /// The sandbox is not complete.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The verifier's process does not start.
    #[error("the verifier does not start")]
    Verifier(#[source] IsolatedError),
    /// The worker does not start.
    #[error("the worker does not start")]
    Worker(#[source] std::io::Error),
    /// The worker cannot run where it is to run.
    #[error("the worker cannot run on core {cpu}; `taskset -cp $$` tells which ones there are")]
    Cpu {
        /// Its number.
        cpu: usize,
        /// What the kernel says.
        #[source]
        source: std::io::Error,
    },
    /// The control socket failed.
    #[error(transparent)]
    Socket(#[from] SocketError),
}

/// Runs a P4 VM. Has to be called while the process has one thread; returns in another process than it was called in
/// (see [`sandbox::enter`]) when the host hung up or said stop.
///
/// # Errors
/// What kept it from starting, or from hearing its host.
pub fn run(options: &Options) -> Result<(), P4VmError> {
    let socket = control_socket(options.control_fd)?;
    socket.wait(None)?;
    // The first look at a clock finds the vDSO, with a system call that no list allows.
    let _ = p4shield_seal::Now::read();
    let report = sandbox::enter(&sandbox::Options {
        uid: options.uid,
        allow_missing: options.allow_missing.clone(),
        keep: vec![options.control_fd],
        limits: options.limits,
    })?;
    let seccomp_optional = options.allow_missing.contains(&Measure::Seccomp);
    let verifier = Verifier::start(seccomp_optional).map_err(P4VmError::Verifier)?;
    let (control, mailbox) = worker::mailbox().map_err(|e| P4VmError::Worker(e.into()))?;
    let (thread, worker, filtered) = spawn_worker(options.cpu)?;
    let ours = seccomp::apply(Kind::Control);
    let theirs = filtered.recv().unwrap_or(Ok(()));
    let report = waived(report, ours.and(theirs), seccomp_optional)?;

    let policy = if options.busy { WaitPolicy::BUSY } else { WaitPolicy::default() };
    let mut session = Session::new(socket, report, verifier, control);
    let begun = session.greet(|hello| {
        let interval = Duration::from_millis(hello.log_interval_ms.into());
        let begun = Worker::new(mailbox, p4shield_control::verdict(hello.no_program), interval);
        worker.send(begun.waiting(policy).delayed(options.delay)).is_ok()
    })?;
    if begun {
        session.serve()?;
    }
    drop((session, worker));
    // A worker that panicked said so; there is nothing left to do for it.
    let _ = thread.join();
    Ok(())
}

fn control_socket(fd: RawFd) -> Result<Socket, P4VmError> {
    let no_socket = |source| P4VmError::NoSocket { fd, source };
    // SAFETY: the number was given to this process to own; nothing else in it uses it. Whether it is open is checked.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    match socket_type(owned.as_fd()) {
        Ok(SocketType::SEQPACKET) => Ok(Socket::new(owned)),
        other => {
            let e = other.err().map_or_else(|| std::io::ErrorKind::InvalidInput.into(), Into::into);
            // Not ours to close, as it turned out.
            let _ = owned.into_raw_fd();
            Err(no_socket(e))
        }
    }
}

type Spawned = (JoinHandle<()>, Sender<Worker>, Receiver<Result<(), SandboxError>>);

/// Starts the worker's thread, which goes to its core, filters its system calls and then waits for its worker.
fn spawn_worker(cpu: Option<usize>) -> Result<Spawned, P4VmError> {
    let (filtered, is_filtered) = mpsc::channel();
    let (pinned, is_pinned) = mpsc::channel();
    let (worker, start) = mpsc::channel::<Worker>();
    let placed = move || {
        // It works as well without, only not as well beside others.
        let _ = schedule::wait_for_turn();
        cpu.map_or(Ok(()), |cpu| schedule::bind(cpu).map_err(|source| P4VmError::Cpu { cpu, source }))
    };
    let main = move || {
        if pinned.send(placed()).is_ok()
            && filtered.send(seccomp::apply(Kind::Worker)).is_ok()
            && let Ok(worker) = start.recv()
        {
            worker.run();
        }
    };
    let thread = std::thread::Builder::new().name("worker".into()).spawn(main).map_err(P4VmError::Worker)?;
    is_pinned.recv().unwrap_or(Ok(()))?;
    Ok((thread, worker, is_filtered))
}

fn waived(
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
