//! The daemon: starts the attachment and the supervisors that the configuration asks for, and stops them
//! again.

use crate::adoption::AdoptionFolder;
use crate::api;
use crate::attachment::Attachment;
use crate::config::{self, Config};
use crate::error::DaemonError;
use crate::lifecycle::reload_report::ReloadReport;
use crate::lifecycle::state::{DaemonState, Running, Starter};
use crate::lifecycle::upgrade::UPGRADE_SIGNAL;
use crate::programs::ProgramStore;
use crate::status::Status;
use crate::status::losses::RecentLosses;
use crate::status::watch::{WatchedProblems, Watcher};
use crate::switches::SwitchAttachment;
use crate::tenant_switches::TenantSwitches;
use crate::users::first_user;
use crate::wires::WireAttachment;
use p4shield_channel::Doorbell;
use p4shield_compartment::Cgroup;
use p4shield_socket::open_trusted;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// A running daemon with its supervisors and sockets. Stops them when dropped.
pub struct Daemon {
    _watcher: Watcher,
    state: Arc<DaemonState>,
    _api: p4shield_socket::Server,
}

/// Runs the daemon until SIGTERM or SIGINT. SIGHUP applies changes of the configuration. Adopts the P4 VMs of
/// a daemon that was killed or upgraded.
/// P4 VMs are started as `BINARY p4vm ...` with this process's own binary.
///
/// # Errors
/// The daemon cannot start; see [`DaemonError`].
pub fn run(path: &Path) -> Result<(), DaemonError> {
    // Handlers come first, so that a signal during the start stops everything in order.
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP, UPGRADE_SIGNAL]).map_err(DaemonError::Signals)?;
    let config = Config::load(path)?;
    // The lock comes before any process of another daemon.
    let listener = p4shield_socket::listen(&config.daemon.socket)?;
    let adoption = AdoptionFolder::beside(&config.daemon.socket)?;
    let before = adoption.running(&config).filter(|b| b.changes_for_a_restart(&config).is_empty());
    let is_changed = before.as_ref().is_some_and(|before| before.text() != config.text());
    let adopts = before.is_some();
    if !adopts {
        adoption.end_all();
    }
    let start = before.unwrap_or(config);
    let binary = Path::new("/proc/self/exe");
    let attachment: Arc<dyn Attachment> = match start.attachment {
        config::Attachment::Wire => Arc::new(WireAttachment::start(&start, binary, adopts)?),
        config::Attachment::Dpdk | config::Attachment::Xsk => Arc::new(SwitchAttachment::start(&start)?),
    };
    let daemon = Daemon::with_listener(start, Arc::clone(&attachment), binary, listener)?;
    if is_changed {
        // Switches have not connected yet; the watcher reports what is wrong once they have had time.
        daemon.reload_and_log(|report| report.problems.clear());
    }
    notify("READY=1");
    for signal in signals.forever() {
        match signal {
            SIGHUP => {
                notify("RELOADING=1");
                daemon.reload_and_log(|_| ());
                notify("READY=1");
            }
            UPGRADE_SIGNAL => daemon.state.execute_successor(),
            _ => break,
        }
    }
    notify("STOPPING=1");
    drop(daemon);
    // A thread that answers a request keeps the attachment from being dropped before this process ends.
    attachment.stop();
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
        let listener = p4shield_socket::listen(&config.daemon.socket)?;
        Self::with_listener(config, attachment, binary, listener)
    }

    fn with_listener(
        config: Config,
        attachment: Arc<dyn Attachment>,
        binary: &Path,
        listener: p4shield_socket::Listener,
    ) -> Result<Self, DaemonError> {
        let (cgroup, cgroup_status) = match Cgroup::own() {
            Ok(cgroup) => (Some(Arc::new(cgroup)), "one for each P4 VM".to_owned()),
            Err(e) => (None, e.to_string()),
        };
        let state = config.daemon.state.clone().or_else(service_state_folder);
        if let Some(state) = &state {
            open_trusted(state)?;
        }
        let adoption = Arc::new(AdoptionFolder::beside(&config.daemon.socket)?);
        if let Err(error) = adoption.save_running(&config) {
            tracing::warn!(event = "adoption_unavailable", %error, "no other daemon could adopt the P4 VMs");
        }
        let starter = Starter {
            adoption,
            binary: binary.to_owned(),
            first_uid: first_user(&config),
            cgroup,
            programs: Arc::new(ProgramStore::open(state.as_deref())),
            state,
        };
        let supervise = |(number, tenant): (usize, &config::Tenant)| {
            // A number that the daemon before left vacant.
            if tenant.is_vacant() {
                return Ok(None);
            }
            let supervisor = starter.start(&config, number, &attachment, true);
            let failed = |source| DaemonError::Supervisor { tenant: tenant.name.clone(), source };
            supervisor.map(|supervisor| Some(Arc::new(supervisor))).map_err(failed)
        };
        let supervisors = config.tenants.iter().enumerate().map(supervise).collect::<Result<Vec<_>, _>>()?;
        let running = Running { config: Arc::new(config), supervisors };
        let doorbells: Arc<Mutex<Vec<Arc<Doorbell>>>> = Arc::default();
        let woken = Arc::clone(&doorbells);
        attachment.on_change(Box::new(move || {
            for doorbell in &*woken.lock().unwrap_or_else(PoisonError::into_inner) {
                // An error means that the supervisor has ended.
                let _ = doorbell.ring();
            }
        }));
        let metrics = running.config.daemon.metrics;
        let watched = Arc::new(WatchedProblems::new());
        let tenant_switches = TenantSwitches::new(binary.to_owned(), starter.cgroup.clone());
        tenant_switches.update(&running.config).map_err(DaemonError::TenantSwitches)?;
        let state = Arc::new(DaemonState {
            running: RwLock::new(running.clone()),
            tenant_switches,
            cgroup: cgroup_status,
            attachment,
            starter,
            doorbells,
            http: Mutex::new(None),
            tenant_sockets: Mutex::default(),
            reloading: Mutex::new(()),
            watched: Arc::clone(&watched),
            losses: RecentLosses::default(),
            started_ms: now_ms(),
            path: std::env::current_exe().ok(),
            successor: Mutex::new(None),
        });
        state.set_running(running);
        let looked_at = Arc::clone(&state);
        let watcher = Watcher::start(watched, move || looked_at.status().problems);
        let watcher = watcher.map_err(DaemonError::Watcher)?;
        *state.http() = metrics.map(|a| crate::metrics::serve(a, &state)).transpose()?;
        let running = state.running();
        let serve = |tenant: &str, socket: &_| api::serve_tenant(tenant, socket, &state);
        state.tenant_sockets().update(&running.config, serve);
        let failed = DaemonError::listen(&running.config.daemon.socket);
        let api =
            p4shield_socket::Server::start(listener, api::Operator(Arc::clone(&state))).map_err(failed)?;
        Ok(Self { _watcher: watcher, state, _api: api })
    }

    /// Returns the present status of everything.
    #[must_use]
    pub fn status(&self) -> Status {
        self.state.status()
    }

    /// Reads the configuration again and applies what changed.
    ///
    /// # Errors
    /// The configuration is invalid, needs a restart, or names files or programs that are refused: nothing
    /// has changed.
    pub fn reload(&self) -> Result<ReloadReport, String> {
        self.state.reload(false)
    }

    fn reload_and_log(&self, change: impl FnOnce(&mut ReloadReport)) {
        match self.reload().map(|mut report| {
            change(&mut report);
            report
        }) {
            Ok(report) => report
                .to_string()
                .lines()
                .for_each(|line| tracing::info!(event = "reload_applied", "reload: {line}")),
            Err(error) => error
                .lines()
                .for_each(|line| tracing::error!(event = "reload_refused", "reload refused: {line}")),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Their threads must not be the last to hold the state.
        drop(self.state.http().take());
        drop(std::mem::take(&mut *self.state.tenant_sockets()));
        // All stop at once, so that the slowest determines the time.
        let supervisors = self.state.running().supervisors;
        supervisors.iter().flatten().for_each(|supervisor| supervisor.request_stop());
        supervisors.iter().flatten().for_each(|supervisor| supervisor.stop());
        self.state.starter.adoption.remove();
    }
}

/// Returns the time in milliseconds since 1970.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

/// Sends a state such as `READY=1` to the service manager, if `NOTIFY_SOCKET` names its socket
/// (`sd_notify`).
fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_bytes() {
        // A leading @ denotes the abstract namespace.
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let mut text = state.to_owned();
    if state.starts_with("RELOADING") {
        // Type=notify-reload requires the time.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        text = format!("{state}\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1_000);
    }
    let sent = address.and_then(|a| UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &a));
    if let Err(error) = sent {
        tracing::warn!(event = "notify_failed", %error, "cannot notify systemd of {state}");
    }
}
