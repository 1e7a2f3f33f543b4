//! Placement `pipeline`, the process in the compartment: enters its sandbox, then is the switch.
//!
//! The process begins with one thread, a socket to the process outside as standard input, one from which
//! clients come as standard output, and standard error. It enters the sandbox of a P4 VM, forks the
//! verifier's zygote, filters its system calls, and only then reads the program, and later clients' requests
//! and packets.

use crate::line::{Ask, Client, Message, Setup, Told, receive};
use crate::opener::{Opener, OutsideWatch};
use crate::program::{Loaded, Loader};
use crate::run::{Place, SwitchError, forward};
use crate::surroundings::{Interfaces, Placement, Restriction, Watching};
use p4shield_bpf::Object;
use p4shield_bpf::verify::IsolatedError;
use p4shield_control::{Measure, SandboxReport, Socket, SocketError};
use p4shield_runtime::sandbox::seccomp::{self, Filter};
use p4shield_runtime::sandbox::{self, Limits, SandboxError};
use p4shield_runtime::{Prover as _, Verifier};
use p4shield_socket::{Entrance, Visitor};
use p4shield_switch::MAX_THREADS;
use p4shield_text::chain;
use rustix::fd::{AsFd, AsRawFd as _, OwnedFd};
use rustix::process::{Resource, Signal, getrlimit, set_parent_process_death_signal};
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Most address space beside that for machine code: ports have 2 MiB for each queue.
const ADDRESS_SPACE: u64 = 64 << 30;
/// Most descriptors.
const DESCRIPTORS: u64 = 1 << 16;
/// Threads beside the packet threads: clients, keeper, metrics; and the verifier's processes.
const OTHER_THREADS: u64 = 64;
/// The longest setup: programs, and files of entries.
const MAX_SETUP: u64 = 1 << 30;

/// How a process becomes a compartment.
#[derive(Clone, Debug)]
pub struct InsideOptions {
    /// User to change to if started as root.
    pub uid: u32,
    /// Measures of the sandbox that may be missing.
    pub allow_missing: Vec<Measure>,
}

/// Reason why a process does not become a compartment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InsideError {
    /// It was not started by `p4shield switch run`.
    #[error("`p4shield switch run --placement pipeline` starts this command; do not start it by hand")]
    NoSocket(#[source] io::Error),
    /// The addresses for machine code are in use.
    #[error("cannot set addresses aside for machine code; use Linux 4.17 or newer")]
    CodeArea(#[source] io::Error),
    /// The sandbox cannot be entered.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The verifier's zygote cannot be started.
    #[error("cannot start the verifier's process")]
    Verifier(#[source] IsolatedError),
    /// The kernel does not end it with the process outside.
    #[error("cannot ask to end with the process outside")]
    Parent(#[source] rustix::io::Errno),
    /// The process outside sends no configuration.
    #[error("the process outside sends no configuration")]
    Setup(#[source] io::Error),
}

/// Becomes the compartment of a switch, and the switch, until the process outside ends it or `stop` is set.
/// Must be called while the process has one thread; returns in
/// another process than the calling one (see [`sandbox::enter`]).
///
/// # Errors
/// [`InsideError`]. The process outside hears why a switch does not start.
pub fn serve(options: &InsideOptions, stop: &Arc<AtomicBool>) -> Result<(), InsideError> {
    let own = |fd: rustix::fd::BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 3);
    let no_socket = |e: rustix::io::Errno| InsideError::NoSocket(e.into());
    let control = own(rustix::stdio::stdin()).map_err(no_socket)?;
    let clients = own(rustix::stdio::stdout()).map_err(no_socket)?;
    rustix::net::sockopt::socket_type(&control).map_err(no_socket)?;
    let report = enter(options, &[&control, &clients])?;
    let (verifier, report) = restrict(options, report)?;
    let restriction =
        if report.missing.contains(&Measure::Seccomp) { Restriction::None } else { Restriction::Filter };

    let opener = Arc::new(Opener::new(Socket::new(control)));
    let Received { setup, bell, metrics } = configuration(&opener, report).map_err(InsideError::Setup)?;
    let clients = Clients { socket: Socket::new(clients), stop: Arc::clone(stop) };
    let place = Place {
        entrance: clients,
        metrics: setup.metrics.zip(metrics),
        interfaces: Interfaces::Outside(Arc::clone(&opener)),
        watching: Watching::Outside(OutsideWatch::new(Arc::clone(&opener), bell)),
        placement: Placement::Pipeline,
        restriction,
    };
    match begin(setup, place, proving(verifier), stop, &opener) {
        Ok(()) => {}
        Err(error) => opener.say(&told(&error)),
    }
    Ok(())
}

/// Gives up all but these descriptors, memory and processor time.
fn enter(options: &InsideOptions, keep: &[&OwnedFd]) -> Result<SandboxReport, InsideError> {
    // The first read of a clock looks up the vDSO, with a system call that no filter allows.
    let _ = Instant::now();
    p4shield_bpf::reserve_code_area().map_err(InsideError::CodeArea)?;
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(DESCRIPTORS);
    Ok(sandbox::enter(&sandbox::Options {
        uid: options.uid,
        allow_missing: options.allow_missing.clone(),
        keep: keep.iter().map(|fd| fd.as_raw_fd()).collect(),
        limits: Limits {
            // Addresses set aside take no memory.
            address_space: ADDRESS_SPACE + p4shield_bpf::CODE_AREA.len() as u64,
            descriptors: DESCRIPTORS.min(most),
            processes: MAX_THREADS as u64 + OTHER_THREADS,
        },
    })?)
}

/// Forks the verifier's zygote, and filters the system calls of all threads to come.
fn restrict(
    options: &InsideOptions,
    mut report: SandboxReport,
) -> Result<(Verifier, SandboxReport), InsideError> {
    // It does not stay without the process that hands ports and clients in.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(InsideError::Parent)?;
    let may_lack_filters = options.allow_missing.contains(&Measure::Seccomp);
    let verifier = Verifier::start(may_lack_filters).map_err(InsideError::Verifier)?;
    match seccomp::apply(Filter::Desk) {
        Err(error) if !may_lack_filters => return Err(error.into()),
        Err(_) => report.missing.push(Measure::Seccomp),
        Ok(()) => {}
    }
    Ok((verifier, report))
}

/// The first message of the process outside.
struct Received {
    setup: Setup,
    bell: OwnedFd,
    metrics: Option<TcpListener>,
}

fn configuration(opener: &Opener, report: SandboxReport) -> io::Result<Received> {
    let (told, descriptors) = opener.ask(&Ask::Entered(report)).map_err(io::Error::other)?;
    let mut descriptors = descriptors.into_iter();
    let (Told::Setup, Some(file), Some(bell)) = (told, descriptors.next(), descriptors.next()) else {
        return Err(io::Error::other("its first message is another one"));
    };
    let setup = serde_json::from_slice(&contents(&file)?)?;
    Ok(Received { setup, bell, metrics: descriptors.next().map(TcpListener::from) })
}

/// Reads a file from its start.
fn contents(file: &OwnedFd) -> io::Result<Vec<u8>> {
    let size = rustix::fs::fstat(file)?.st_size.cast_unsigned();
    if size > MAX_SETUP {
        return Err(io::Error::other(format!("it has {size} bytes; at most {MAX_SETUP} are read")));
    }
    let mut bytes = vec![0; usize::try_from(size).unwrap_or_default()];
    let mut at = 0;
    while at < bytes.len() {
        match rustix::io::pread(file, &mut bytes[at..], at as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => at += n,
        }
    }
    Ok(bytes)
}

/// Loads programs that a verifier proves.
pub(crate) fn proving(verifier: Verifier) -> Box<Loader> {
    let verifier = Mutex::new(verifier);
    Box::new(move |name: &str, objects: &[Object]| {
        let mut verifier = verifier.lock().unwrap_or_else(PoisonError::into_inner);
        Loaded::proven(name, objects, |linked| verifier.prove(linked))
    })
}

fn begin(
    setup: Setup,
    place: Place<Clients>,
    loader: Box<Loader>,
    stop: &AtomicBool,
    opener: &Opener,
) -> Result<(), SwitchError> {
    let (forwarding, loaded) = setup.forwarding(loader)?;
    forward(forwarding, place, loaded, stop, || opener.say(&Ask::Ready))
}

/// Returns what the process outside is told of a switch that does not start.
fn told(error: &SwitchError) -> Ask {
    let text = chain(error);
    if error.is_refusal() { Ask::Refused(text) } else { Ask::Failed(text) }
}

/// Clients that the process outside has admitted.
struct Clients {
    socket: Socket,
    stop: Arc<AtomicBool>,
}

impl Entrance for Clients {
    fn next_visitor(&mut self) -> io::Result<Visitor> {
        let Message { body, descriptors, .. } = receive::<Client>(&mut self.socket, 1).map_err(|error| {
            if matches!(error, crate::line::LineError::Socket(SocketError::Closed)) {
                // The process outside ends the switch, or has ended.
                self.stop.store(true, Ordering::Relaxed);
            }
            io::Error::other(error)
        })?;
        let stream = descriptors.into_iter().next().map(UnixStream::from);
        let stream = stream.ok_or_else(|| io::Error::other("a client came without its connection"))?;
        Ok(Visitor { stream, uid: body.uid, gid: body.gid })
    }

    fn socket(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }
}
