//! The state that all ports share: configuration, session, clock.
//!
//! The first port that starts creates it. A process that starts no port (a shell, `ovs-vsctl`, a
//! switch before it goes to the background) stays unchanged.

use crate::callbacks;
use crate::clock::Clock;
use crate::dpdk::{self, Dpdk, Unusable};
use crate::mbuf::{self, Mbuf};
use crate::mediated_queue::MediatedQueue;
use crate::tunnel::{self, SharedTunnels};
use p4shield_attach::{Kind, Lane, Notice, Options, PortId, Session, SessionError, log};
use p4shield_config::FILE_VARIABLE;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Acquire};
use std::sync::{Arc, OnceLock};

/// Reason why no port of this process is started. A started port would be unmediated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The process's DPDK is unusable.
    #[error(transparent)]
    Dpdk(#[from] &'static Unusable),
    /// The configuration file is not named.
    #[error(
        "{FILE_VARIABLE} is not set; set it to the daemon's configuration file, or take libp4shield_dpdk.so \
         out of LD_PRELOAD"
    )]
    NoConfiguration,
    /// The configuration or the system prevents a session.
    #[error("cannot start")]
    Session(#[from] SessionError),
    /// The application may not call receive callbacks.
    #[error(transparent)]
    Callbacks(#[from] callbacks::CallbackError),
}

/// The state that all ports share.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) session: Session,
    tunnels: Arc<SharedTunnels>,
    pub(crate) clock: Clock,
    pub(crate) dpdk: &'static Dpdk,
}

/// Returns the shared state; the first call creates it.
///
/// # Errors
/// The reason why the first call failed, which it logged.
pub(crate) fn library() -> Result<&'static Library, &'static Refusal> {
    static LIBRARY: OnceLock<Result<Library, Refusal>> = OnceLock::new();
    LIBRARY
        .get_or_init(|| {
            log::start();
            let library = Library::start();
            match &library {
                Ok(library) => tracing::info!(
                    event = "library_started",
                    configuration = %library.session.config().file.display(),
                    version = env!("CARGO_PKG_VERSION"),
                    "mediating every port of this process"
                ),
                Err(refusal) => {
                    tracing::error!(
                        event = "library_refused",
                        error = refusal as &dyn std::error::Error,
                        "no port will be started"
                    );
                }
            }
            library
        })
        .as_ref()
}

impl Library {
    fn start() -> Result<Self, Refusal> {
        let dpdk = dpdk::dpdk()?;
        callbacks::check()?;
        let config = std::env::var_os(FILE_VARIABLE).map(PathBuf::from).ok_or(Refusal::NoConfiguration)?;
        let session = Session::start(Options { config, kind: Kind::Dpdk, application: application() })?;
        if !mbuf::prepare(dpdk) {
            let text = "this DPDK has no field or flag of packets left for us: those that come \
                        through a tunnel, or whose VLAN tags the device strips, are dropped";
            session.notify(None, Notice::Note(text.to_owned()));
        }
        let tunnels = Arc::new(SharedTunnels::default());
        tunnel::follow(&session, &tunnels);
        Ok(Self { session, tunnels, clock: Clock::new(dpdk), dpdk })
    }

    /// Creates the mediated queue of a receive queue.
    pub(crate) fn mediated_queue(&self) -> &'static MediatedQueue {
        MediatedQueue::new(self.clock, self.dpdk, Arc::clone(&self.tunnels))
    }

    /// Creates the lane of a port's queue; `refused` counts the packets that the lane does not get.
    pub(crate) fn lane(&self, port: PortId, queue: u32, refused: Arc<AtomicU64>) -> Lane<Mbuf> {
        let mut lane = self.session.lane(port, queue);
        lane.check_rewrites(Arc::clone(&self.tunnels).rewrite_check());
        self.session.count_refused(lane.id(), move || refused.load(Acquire));
        lane
    }

    /// Creates the lane of what a port's queue sends, as [`Self::lane`] does. `None` if the configuration
    /// judges these packets where they enter the switch.
    pub(crate) fn transmit_lane(
        &self,
        port: PortId,
        queue: u32,
        refused: Arc<AtomicU64>,
    ) -> Option<Lane<Mbuf>> {
        let lane = self.session.transmit_lane(port, queue)?;
        self.session.count_refused(lane.id(), move || refused.load(Acquire));
        Some(lane)
    }

    /// Notifies the operator, in the log and through the daemon.
    pub(crate) fn remark(&self, port: Option<PortId>, remark: Notice) {
        match &remark {
            Notice::Bypass(text) => tracing::warn!(event = "bypass_possible", "bypass: {text}"),
            Notice::Unmediated(text) => tracing::warn!(event = "port_unmediated", "unmediated: {text}"),
            Notice::Note(text) => tracing::info!(event = "port_note", "{text}"),
        }
        self.session.notify(port, remark);
    }
}

/// Returns the process's name, for status.
fn application() -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(|p| p.file_name()).map(|n| n.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "unknown".into())
}
