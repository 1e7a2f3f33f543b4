//! The configuration and the session with the daemon, which all sockets share, and the choice of a
//! socket's verdicts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use p4shield_afxdp::ethtool;
use p4shield_attach::{Kind, Notice, Options, PortId, PortInfo, QueueSide, Session, SessionError, log};
use p4shield_config::FILE_VARIABLE;
use p4shield_mediator::FailPolicy;

use crate::next_libc;
use crate::packet::ApplicationMemory;
use crate::verdicts::Verdicts;

/// Environment variable. Its value `relay` replaces the rings and passes every packet, to measure the
/// cost of the rings.
const MODE_VARIABLE: &str = "P4SHIELD_XSK";

/// Reason why this process gets no AF_XDP sockets, whose packets would bypass the mediator.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The variable with the configuration file is missing.
    #[error(
        "{FILE_VARIABLE} is not set; set it to the daemon's configuration file, or remove \
         libp4shield_xsk.so from LD_PRELOAD"
    )]
    NoConfiguration,
    /// The mode does not exist.
    #[error("{MODE_VARIABLE} is {0:?}; the only value is \"relay\", which passes every packet")]
    Mode(String),
    /// The configuration is invalid, or the session cannot start.
    #[error("cannot start")]
    Session(#[from] SessionError),
    /// The system refused a thread.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

/// What all sockets share.
#[derive(Debug)]
pub(crate) struct Mediation {
    /// `None` passes every packet.
    session: Option<Session>,
    /// The interfaces with sockets, and the number of sockets of each.
    ports: Mutex<BTreeMap<u32, (PortId, u32)>>,
}

static MEDIATION: OnceLock<Result<Mediation, StartError>> = OnceLock::new();

/// Returns the mediation, if it has started.
pub(crate) fn current() -> Option<&'static Mediation> {
    MEDIATION.get()?.as_ref().ok()
}

/// Returns the mediation; the first call starts it, with `prepare` as the last step.
///
/// # Errors
/// Reason why it cannot start. The first call logs the error.
pub(crate) fn start(
    prepare: impl FnOnce() -> Result<(), StartError>,
) -> Result<&'static Mediation, &'static StartError> {
    let started = MEDIATION.get_or_init(|| {
        log::start();
        let started = Mediation::from_environment().and_then(|mediation| prepare().map(|()| mediation));
        match &started {
            Ok(mediation) => mediation.log_start(),
            Err(error) => {
                tracing::error!(
                    event = "library_refused",
                    error = error as &dyn std::error::Error,
                    "every AF_XDP socket will be refused"
                );
            }
        }
        started
    });
    started.as_ref()
}

impl Mediation {
    fn from_environment() -> Result<Self, StartError> {
        let session = match std::env::var(MODE_VARIABLE) {
            Ok(mode) if mode == "relay" => None,
            Ok(mode) => return Err(StartError::Mode(mode)),
            Err(_) => Some(session()?),
        };
        Ok(Self { session, ports: Mutex::default() })
    }

    fn log_start(&self) {
        let version = env!("CARGO_PKG_VERSION");
        match &self.session {
            Some(s) => tracing::info!(
                event = "library_started",
                configuration = %s.config().file.display(),
                version,
                "mediating every AF_XDP socket of this process"
            ),
            None => {
                tracing::warn!(
                    event = "relay_mode",
                    version,
                    "{MODE_VARIABLE}=relay: no packet of an AF_XDP socket is judged"
                );
            }
        }
    }

    /// Decides whether an AF_XDP socket that cannot be mediated, because of `why`, may be used all the
    /// same: only if every tenant prefers that packets pass. If so, reports it to the daemon.
    pub(crate) fn allows_unmediated(&self, why: &str) -> bool {
        let all_pass = |s: &Session| {
            let tenants = s.tenants();
            let mut named = tenants.tenants.iter().filter(|t| !t.name.is_empty());
            named.all(|t| t.fail == FailPolicy::Pass)
        };
        let allowed = self.session.as_ref().is_none_or(all_pass);
        if allowed {
            tracing::warn!(
                event = "socket_unmediated",
                "an AF_XDP socket is used without mediation, since every tenant's fail is \"pass\": {why}"
            );
            if let Some(session) = &self.session {
                let text = format!("an AF_XDP socket is not mediated: {why}");
                session.notify(None, Notice::Unmediated(text));
            }
        }
        allowed
    }

    fn ports(&self) -> MutexGuard<'_, BTreeMap<u32, (PortId, u32)>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the configuration lets a P4 VM read the UMEM of any port.
    pub(crate) fn wants_shared_umem(&self) -> bool {
        self.session.as_ref().is_some_and(Session::shares_packet_memory)
    }

    /// Returns the tenant that owns all packets of an interface and whose P4 VM may read the UMEM.
    ///
    /// # Errors
    /// Reason why there is no such tenant.
    pub(crate) fn umem_reader(&self, interface: u32) -> Result<String, String> {
        let name = next_libc::interface_name(interface).unwrap_or_default();
        let tenant = self.session.as_ref().and_then(|s| s.packet_memory_of(&name));
        tenant.ok_or_else(|| {
            format!(
                "one of its sockets is bound to {name}, which is not a VM's port with zero_copy = \"auto\""
            )
        })
    }

    /// Has the interface hand over packets as they were on the wire. With AF_XDP, VLAN tags that a card takes
    /// out are lost, so that a rule about VLANs would not hold.
    ///
    /// # Errors
    /// Reason why it does not.
    pub(crate) fn receive_unchanged(&self, interface: u32) -> Result<(), String> {
        let (Some(_), Some(name)) = (&self.session, next_libc::interface_name(interface)) else {
            return Ok(());
        };
        ethtool::receive_unchanged(&name).map_err(|error| {
            format!(
                "{name} takes VLAN tags out of packets or merges packets before programs see them, and this \
                 process cannot switch that off ({error}); run `ethtool -K {name} rxvlan off lro off`"
            )
        })
    }

    /// Counts a socket that was bound to an interface.
    pub(crate) fn socket_opened(&self, interface: u32) {
        let Some(session) = &self.session else { return };
        let mut ports = self.ports();
        let (_, users) = ports.entry(interface).or_insert_with(|| {
            let name =
                next_libc::interface_name(interface).unwrap_or_else(|| format!("interface {interface}"));
            (session.port_up(PortInfo { name, aliases: Vec::new(), number: interface }), 0)
        });
        *users += 1;
    }

    /// Creates the source of verdicts for one direction of a queue to which a socket was bound.
    pub(crate) fn verdicts(
        &self,
        facing: QueueSide,
        (interface, queue): (u32, u32),
        memory: &Arc<ApplicationMemory>,
    ) -> Verdicts {
        let Some(session) = &self.session else { return Verdicts::PassAll };
        let port = self.ports().get(&interface).map(|(port, _)| *port).unwrap_or(PortId(0));
        let packets = memory.umem.packets();
        if let (Err(why), Ok(_)) = (&packets, self.umem_reader(interface)) {
            let note = format!("header copies on queue {queue} despite zero_copy = \"auto\": {why}");
            tracing::warn!(event = "header_copies", interface, "{note}");
            session.notify(Some(port), Notice::Note(note));
        }
        let Some(lane) = session.lane_in(packets.ok(), facing, port, queue) else { return Verdicts::PassAll };
        if let Some(refused) = memory.claim_refused_count() {
            session.count_refused(lane.id(), refused);
        }
        Verdicts::of(lane, memory)
    }

    /// Removes a closed socket from the count of its interface.
    pub(crate) fn socket_closed(&self, interface: u32) {
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

fn session() -> Result<Session, StartError> {
    let config = std::env::var_os(FILE_VARIABLE).map(PathBuf::from).ok_or(StartError::NoConfiguration)?;
    let application = std::env::current_exe().ok();
    let name = application.as_deref().and_then(|p| p.file_name()).unwrap_or_default();
    let application = name.to_string_lossy().into_owned();
    Ok(Session::start(Options { config, kind: Kind::Xsk, application })?)
}
