//! What the library is once it is needed: configuration and session. Nothing is started before the first AF_XDP socket
//! is made, so that a process that makes none, or still has to go to the background, is left alone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use p4shield_attach::{
    Facing, Kind, Options, PortId, PortInfo, Remark, Session, SessionError, log, spawn_without_signals,
};
use p4shield_config::FILE_VARIABLE;
use p4shield_mediator::FailPolicy;

use crate::judge::Verdicts;
use crate::packet::Memory;
use crate::{real, table, umem};

/// Environment variable: `relay` has rings replaced and nothing judged, to see what replacing alone costs.
const MODE_VARIABLE: &str = "P4SHIELD_XSK";

/// Why this process gets no AF_XDP sockets. The alternative would be packets that nobody is asked about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// Nobody said which tenants there are.
    #[error(
        "{FILE_VARIABLE} is not set; set it to the daemon's configuration file, or take libp4shield_xsk.so out of \
         LD_PRELOAD"
    )]
    NoConfiguration,
    /// A mode that does not exist.
    #[error("{MODE_VARIABLE} is {0:?}; the only value is \"relay\", which judges nothing")]
    Mode(String),
    /// The configuration, or the system.
    #[error("cannot start")]
    Session(#[from] SessionError),
    /// The system.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

/// All that sockets share.
#[derive(Debug)]
pub(crate) struct Library {
    /// None: nothing is judged.
    session: Option<Session>,
    /// Interfaces with sockets, and how many.
    ports: Mutex<BTreeMap<u32, (PortId, u32)>>,
}

static LIBRARY: OnceLock<Result<Library, Refusal>> = OnceLock::new();
/// The process that the sockets are of.
pub(crate) static PROCESS: OnceLock<u32> = OnceLock::new();
static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether this process was forked from one that had AF_XDP sockets.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
    table::forget_all();
    umem::separate();
}

/// An application may end and leave its sockets to the kernel (DPDK's driver does); who had their frames is told all the
/// same.
extern "C" fn at_exit() {
    if is_forked() {
        return;
    }
    // On a thread of its own: this one's storage, which logging needs, may be gone.
    if let Ok(thread) = spawn_without_signals("p4shield-exit", crate::socket::report_all) {
        let _ = thread.join();
    }
}

/// The library, started if it was not.
///
/// # Errors
/// Why it cannot be; found out and logged once.
pub(crate) fn library() -> Result<&'static Library, &'static Refusal> {
    let started = LIBRARY.get_or_init(|| {
        log::start();
        let library = Library::start();
        match &library {
            Ok(library) => library.announce(),
            Err(refusal) => {
                tracing::error!(error = refusal as &dyn std::error::Error, "no AF_XDP socket will be made");
            }
        }
        library
    });
    started.as_ref()
}

/// Whether an AF_XDP socket is let through that cannot be mediated, and why it cannot: only if no tenant wants packets
/// dropped that nobody judges. Says so either way.
pub(crate) fn lets_pass(why: &str) -> bool {
    match library() {
        Ok(library) if library.lets_pass() => {
            tracing::warn!(
                "an AF_XDP socket is let through without being mediated, since every tenant's fail is \"pass\": {why}"
            );
            if let Some(session) = &library.session {
                session.remark(None, Remark::Unmediated(format!("an AF_XDP socket is not mediated: {why}")));
            }
            true
        }
        _ => {
            tracing::error!("an AF_XDP socket is refused, since it could not be mediated: {why}");
            false
        }
    }
}

impl Library {
    fn lets_pass(&self) -> bool {
        let tenants = self.session.iter().flat_map(|s| &s.config().tenants);
        tenants.into_iter().all(|t| t.fail == FailPolicy::Pass)
    }

    fn ports(&self) -> MutexGuard<'_, BTreeMap<u32, (PortId, u32)>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start() -> Result<Self, Refusal> {
        let session = match std::env::var(MODE_VARIABLE) {
            Ok(mode) if mode == "relay" => None,
            Ok(mode) => return Err(Refusal::Mode(mode)),
            Err(_) => Some(session()?),
        };
        PROCESS.get_or_init(std::process::id);
        // SAFETY: the handler stores to atomics and maps memory, which may be done in a child (see `separate`), and is never
        // unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        // SAFETY: registers a function that cannot unwind into C: what panics does so on a thread of its own.
        unsafe { libc::atexit(at_exit) };
        crate::drain::start().map_err(Refusal::Thread)?;
        Ok(Self { session, ports: Mutex::default() })
    }

    fn announce(&self) {
        let version = env!("CARGO_PKG_VERSION");
        match &self.session {
            Some(s) => tracing::info!(
                configuration = %s.config().file.display(), version, "mediating every AF_XDP socket of this process"
            ),
            None => tracing::warn!(
                version,
                "{MODE_VARIABLE}=relay: packets of AF_XDP sockets are judged by nobody"
            ),
        }
    }

    /// Whether a P4 VM may want to read packet memory.
    pub(crate) fn wants_packets(&self) -> bool {
        let config = self.session.as_ref().map(Session::config);
        config.is_some_and(|c| {
            c.ports.iter().any(|p| c.packet_memory_of([p.name.as_str()].into_iter()).is_some())
        })
    }

    /// The tenant whose are all packets of this interface, and whose P4 VM may read them where they are.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn owner(&self, interface: u32) -> Result<&str, String> {
        let name = real::interface_name(interface).unwrap_or_default();
        let config = self.session.as_ref().map(Session::config);
        let tenant = config.and_then(|c| c.packet_memory_of([name.as_str()].into_iter()));
        tenant.map(|t| t.name.as_str()).ok_or_else(|| {
            format!("a socket of it is bound to {name}, which is no port of a VM with zero_copy = \"auto\"")
        })
    }

    /// A socket was bound to this interface.
    pub(crate) fn opened(&self, interface: u32) {
        let Some(session) = &self.session else { return };
        let mut ports = self.ports();
        let (_, users) = ports.entry(interface).or_insert_with(|| {
            let name = real::interface_name(interface).unwrap_or_else(|| format!("interface {interface}"));
            (session.port_up(PortInfo { name, aliases: Vec::new(), number: interface }), 0)
        });
        *users += 1;
    }

    /// Who decides about what a queue of an interface, to which a socket was bound, receives or sends.
    pub(crate) fn judge(
        &self,
        facing: Facing,
        (interface, queue): (u32, u32),
        memory: &Arc<Memory>,
    ) -> Verdicts {
        let Some(session) = &self.session else { return Verdicts::Nobody };
        let port = self.ports().get(&interface).map(|(port, _)| *port).unwrap_or(PortId(0));
        let packets = memory.umem.packets();
        if let (Err(why), Ok(_)) = (&packets, self.owner(interface)) {
            let note = format!("header copies at queue {queue}, in spite of zero_copy = \"auto\": {why}");
            tracing::warn!(interface, "{note}");
            session.remark(Some(port), Remark::Note(note));
        }
        let Some(lane) = session.lane_in(packets.ok(), facing, port, queue) else { return Verdicts::Nobody };
        if let Some(refused) = memory.refused() {
            session.count_refused(lane.id(), refused);
        }
        Verdicts::of(lane, memory)
    }

    /// A socket that was bound to this interface is closed.
    pub(crate) fn closed(&self, interface: u32) {
        let Some(session) = &self.session else { return };
        let mut ports = self.ports();
        if let Some((port, users)) = ports.get_mut(&interface) {
            *users -= 1;
            if *users == 0 {
                session.port_down(*port);
                ports.remove(&interface);
            }
        }
    }
}

fn session() -> Result<Session, Refusal> {
    let config = std::env::var_os(FILE_VARIABLE).map(PathBuf::from).ok_or(Refusal::NoConfiguration)?;
    let application = std::env::current_exe().ok();
    let name = application.as_deref().and_then(|p| p.file_name()).unwrap_or_default();
    let application = name.to_string_lossy().into_owned();
    Ok(Session::start(Options { config, kind: Kind::Xsk, application })?)
}
