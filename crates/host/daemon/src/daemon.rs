//! The daemon: starts the attachment and the supervisors that the configuration asks for, and stops them
//! again.

use crate::api;
use crate::attachment::Attachment;
use crate::cgroup::Cgroup;
use crate::config::{self, Config};
use crate::error::DaemonError;
use crate::http;
use crate::notify;
use crate::state::DaemonState;
use crate::status::Status;
use crate::supervisor::{P4VmCommand, Supervisor, SupervisorConfig};
use crate::switches::SwitchAttachment;
use crate::wire::WireAttachment;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// First user ID for P4 VMs, far from the ranges that distributions and container engines assign.
const FIRST_UID: u32 = 0x7000_0000;
/// User ID of P4 VMs where the range does not exist (a container with few users): `nobody`.
const FALLBACK_UID: u32 = 65534;

/// A running daemon with its supervisors and sockets. Stops them when dropped.
pub struct Daemon {
    state: Arc<DaemonState>,
    _http: Option<http::Server>,
    _api: api::Server,
}

/// Runs the daemon until SIGTERM or SIGINT. SIGHUP reloads the configuration's programs.
/// P4 VMs are started as `BINARY p4vm ...` with this process's own binary.
///
/// # Errors
/// The daemon cannot start; see [`DaemonError`].
pub fn run(path: &Path) -> Result<(), DaemonError> {
    // Handlers come first, so that a signal during the start stops everything in order.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(DaemonError::Signals)?;
    let config = Config::load(path)?;
    let attachment: Arc<dyn Attachment> = match config.attachment {
        config::Attachment::Wire => Arc::new(WireAttachment::start(&config)?),
        config::Attachment::Dpdk | config::Attachment::Xsk => Arc::new(SwitchAttachment::start(&config)?),
    };
    let daemon = Daemon::start(config, attachment, Path::new("/proc/self/exe"))?;
    notify::send("READY=1");
    for signal in signals.forever() {
        if signal != SIGHUP {
            break;
        }
        notify::send("RELOADING=1");
        match daemon.reload() {
            Ok(summary) => tracing::info!("configuration reloaded: {summary}"),
            Err(error) => tracing::error!("configuration not reloaded: {error}"),
        }
        notify::send("READY=1");
    }
    notify::send("STOPPING=1");
    drop(daemon);
    Ok(())
}

/// Returns the folder that systemd made for the daemon's persistent state (`StateDirectory=`).
fn service_state_folder() -> Option<PathBuf> {
    std::env::var_os("STATE_DIRECTORY").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

impl Daemon {
    /// Starts everything above the attachment; `binary` is started as `BINARY p4vm ...` for each tenant.
    ///
    /// # Errors
    /// The daemon cannot start. Whatever had been started is stopped again.
    pub fn start(
        config: Config,
        attachment: Arc<dyn Attachment>,
        binary: &Path,
    ) -> Result<Self, DaemonError> {
        let listener = api::listen(&config.daemon.socket)?;
        let (cgroup, cgroup_status) = match Cgroup::own() {
            Ok(cgroup) => (Some(Arc::new(cgroup)), "one for each P4 VM".to_owned()),
            Err(e) => (None, e.to_string()),
        };
        let first_uid = config.daemon.first_uid.unwrap_or_else(first_uid);
        let folder = config.daemon.state.clone().or_else(service_state_folder);
        let inline = config.placement == config::Placement::Inline;
        let supervise = |(index, tenant): (usize, &config::Tenant)| {
            // Where only `nobody` exists, P4 VMs share it; their namespaces still separate them.
            let offset = if first_uid == FALLBACK_UID { 0 } else { index as u32 };
            let command = P4VmCommand {
                binary: binary.to_owned(),
                uid: first_uid + offset,
                allow_missing: config.daemon.allow_missing.clone(),
                memory: tenant.memory,
                cpu: tenant.cpu,
                busy: tenant.busy,
                delay: tenant.delay,
            };
            let (attachment, cgroup) = (Arc::clone(&attachment), cgroup.clone());
            let (tenant, state) = (tenant.clone(), folder.clone());
            let name = tenant.name.clone();
            Supervisor::start(SupervisorConfig { index, tenant, inline, command, attachment, cgroup, state })
                .map_err(|source| DaemonError::Supervisor { tenant: name, source })
        };
        let supervisors = config.tenants.iter().enumerate().map(supervise).collect::<Result<Vec<_>, _>>()?;
        let doorbells: Vec<_> = supervisors.iter().map(Supervisor::doorbell).collect();
        attachment.on_change(Box::new(move || {
            for doorbell in &doorbells {
                // An error means that the supervisor has ended.
                let _ = doorbell.ring();
            }
        }));
        let metrics = config.daemon.metrics;
        let state = Arc::new(DaemonState { config, cgroup: cgroup_status, attachment, supervisors });
        let http = metrics.map(|a| http::Server::start(a, Arc::clone(&state))).transpose()?;
        let api = api::Server::start(listener, Arc::clone(&state))?;
        Ok(Self { state, _http: http, _api: api })
    }

    /// Returns the present status of everything.
    #[must_use]
    pub fn status(&self) -> Status {
        self.state.status()
    }

    /// Reads the configuration again and loads the programs that changed. Returns a summary.
    ///
    /// # Errors
    /// The configuration is invalid, or differs in more than its programs; or programs were refused.
    pub fn reload(&self) -> Result<String, String> {
        self.state.reload()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // All stop at once, so that the slowest determines the time.
        self.state.supervisors.iter().for_each(Supervisor::request_stop);
    }
}

/// Returns [`FIRST_UID`] if a range of users from there exists in this user namespace, else [`FALLBACK_UID`].
fn first_uid() -> u32 {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let contains_range = |line: &str| {
        let mut numbers = line.split_whitespace().map(|n| n.parse::<u64>().unwrap_or(0));
        let (first, _, count) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let last = first.saturating_add(count);
        (u64::from(FIRST_UID) >= first && u64::from(FIRST_UID) + 65536 <= last).then_some(())
    };
    if map.lines().any(|l| contains_range(l).is_some()) { FIRST_UID } else { FALLBACK_UID }
}
