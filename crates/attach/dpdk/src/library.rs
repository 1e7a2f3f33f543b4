//! What the library is once it is needed: configuration, session, clock.
//!
//! Nothing is started before the first port is: a process that never starts one (a shell, `ovs-vsctl`, a switch that
//! still has to go to the background) is left alone.

use crate::callbacks;
use crate::cell::Cell;
use crate::clock::Clock;
use crate::dpdk::{self, Dpdk, Unusable};
use crate::mbuf::{self, Mbuf};
use crate::tunnel::{SharedTunnels, Tunnels};
use p4shield_attach::{Kind, Lane, Options, PortId, Remark, Session, SessionError, log};
use p4shield_config::FILE_VARIABLE;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Acquire};
use std::sync::{Arc, OnceLock};

/// Why no port of this process is started. The alternative would be a switch that nobody asks.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The process's DPDK.
    #[error(transparent)]
    Dpdk(#[from] &'static Unusable),
    /// Nobody said which tenants there are.
    #[error(
        "{FILE_VARIABLE} is not set; set it to the daemon's configuration file, or take libp4shield_dpdk.so out of \
         LD_PRELOAD"
    )]
    NoConfiguration,
    /// The configuration, or the system.
    #[error("cannot start")]
    Session(#[from] SessionError),
    /// The application was built without receive callbacks.
    #[error(transparent)]
    Callbacks(#[from] callbacks::Doubt),
}

/// All that ports share.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) session: Session,
    tunnels: Arc<SharedTunnels>,
    pub(crate) clock: Clock,
    pub(crate) dpdk: &'static Dpdk,
}

/// The library, started if it was not.
///
/// # Errors
/// Why it cannot be; found out and logged once.
pub(crate) fn library() -> Result<&'static Library, &'static Refusal> {
    static LIBRARY: OnceLock<Result<Library, Refusal>> = OnceLock::new();
    LIBRARY
        .get_or_init(|| {
            log::start();
            let library = Library::start();
            match &library {
                Ok(library) => tracing::info!(
                    configuration = %library.session.config().file.display(),
                    version = env!("CARGO_PKG_VERSION"),
                    "mediating every port of this process"
                ),
                Err(refusal) => {
                    tracing::error!(error = refusal as &dyn std::error::Error, "no port will be started");
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
            let text =
                "this DPDK has no field of packets left for us: those that come through a tunnel are dropped";
            session.remark(None, Remark::Note(text.to_owned()));
        }
        let tunnels = Arc::new(SharedTunnels::default());
        let current = Arc::clone(&tunnels);
        session.watch_tunnels(move |end_points, tenants| current.set(Tunnels::new(end_points, tenants)));
        Ok(Self { session, tunnels, clock: Clock::new(dpdk), dpdk })
    }

    /// A place for a queue.
    pub(crate) fn cell(&self) -> &'static Cell {
        Cell::new(self.clock, self.dpdk, Arc::clone(&self.tunnels))
    }

    /// The lane of a queue of a port; `refused` counts the packets that it never got.
    pub(crate) fn lane(&self, port: PortId, queue: u32, refused: Arc<AtomicU64>) -> Lane<Mbuf> {
        let lane = self.session.lane(port, queue);
        self.session.count_refused(lane.id(), move || refused.load(Acquire));
        lane
    }

    /// Tells the operator, here and through the daemon.
    pub(crate) fn remark(&self, port: Option<PortId>, remark: Remark) {
        match &remark {
            Remark::Bypass(text) => tracing::warn!("bypass: {text}"),
            Remark::Unmediated(text) => tracing::warn!("unmediated: {text}"),
            Remark::Note(text) => tracing::info!("{text}"),
        }
        self.session.remark(port, remark);
    }
}

/// What the process is called, for status.
fn application() -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(|p| p.file_name()).map(|n| n.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "unknown".into())
}
