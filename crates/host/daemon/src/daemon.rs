//! The daemon: everything that the configuration says, brought up, kept up, and taken down again.

mod reload;

use crate::api;
use crate::attachment::Attachment;
use crate::cgroup::Cgroup;
use crate::config::{self, Config, ConfigError};
use crate::http;
use crate::notify;
use crate::status::{DirectionStatus, InfoStatus, State, Status, TenantStatus, Unowned, VmStatus};
use crate::switches::Switches;
use crate::tenant::{Charge, Keeper, Known, Launch, Load};
use crate::text::{hex, read_objects};
use crate::totals::Totals;
use crate::wire::Wires;
use p4shield_abi::Direction;
use p4shield_abi::info::InfoStatus as Info;
use p4shield_attach::UnownedCounts;
use p4shield_control as control;
use p4shield_mediator::{DirectionCounts, Reason};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// First of the users that P4 VMs run as: far from those that systems and containers hand out.
const FIRST_UID: u32 = 0x7000_0000;
/// Whom a P4 VM becomes where no others exist (a container with few users): `nobody`.
const NOBODY: u32 = 65534;

/// Why a program is not loaded where nobody would ask it.
const SKIPPED: &str = "nobody is asked about these packets: no_program = \"skip\", and there was no program when the daemon \
    started; name the program in the configuration and restart the daemon";

/// Why the daemon does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The attachment.
    #[error("the wires cannot be set up")]
    Wire(#[from] p4shield_attach_wire::Error),
    /// The socket for switches.
    #[error(transparent)]
    Switches(#[from] p4shield_attach::ServerError),
    /// What watches a P4 VM.
    #[error("tenant {tenant}: the keeper of its P4 VM cannot be started")]
    Keeper {
        /// Whose.
        tenant: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A socket.
    #[error(
        "cannot listen on {place}; set another daemon.socket, daemon.attach_socket or daemon.metrics, or free it"
    )]
    Listen {
        /// The path or address.
        place: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Another daemon.
    #[error(
        "a daemon runs already on {}; stop it, or set another daemon.socket and daemon.attach_socket",
        .0.display()
    )]
    Running(PathBuf),
    /// Signals.
    #[error("cannot handle signals")]
    Signals(#[source] std::io::Error),
}

/// A daemon with everything below it. Taken down when dropped.
pub struct Daemon {
    shared: Arc<Shared>,
    _http: Option<http::Server>,
    _api: api::Server,
}

/// What the daemon's threads share.
pub(crate) struct Shared {
    config: Config,
    cgroup: String,
    attachment: Arc<dyn Attachment>,
    keepers: Vec<Keeper>,
}

/// Runs the daemon until it is told to stop by SIGTERM or SIGINT; SIGHUP reads the configuration's programs again.
/// P4 VMs are started as `BINARY p4vm ...`, the binary being this process's own.
///
/// # Errors
/// What kept it from starting.
pub fn run(path: &Path) -> Result<(), DaemonError> {
    // Before anything is started, so that a signal finds it taken down and not half up.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(DaemonError::Signals)?;
    let config = Config::load(path)?;
    let attachment: Arc<dyn Attachment> = match config.attachment {
        config::Attachment::Wire => Arc::new(Wires::start(&config)?),
        config::Attachment::Dpdk | config::Attachment::Xsk => Arc::new(Switches::start(&config)?),
    };
    let daemon = Daemon::start(config, attachment, Path::new("/proc/self/exe"))?;
    notify::send("READY=1");
    for signal in signals.forever() {
        if signal != SIGHUP {
            break;
        }
        notify::send("RELOADING=1");
        match daemon.reload() {
            Ok(text) => tracing::info!("reloaded: {text}"),
            Err(error) => tracing::error!("not reloaded: {error}"),
        }
        notify::send("READY=1");
    }
    notify::send("STOPPING=1");
    drop(daemon);
    Ok(())
}

/// The folder that the service manager made for what has to outlive the daemon (systemd's `StateDirectory=`).
fn state_of_service() -> Option<PathBuf> {
    std::env::var_os("STATE_DIRECTORY").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

impl Daemon {
    /// Starts everything above the attachment; `binary` is started as `BINARY p4vm ...` for each tenant.
    ///
    /// # Errors
    /// What kept it from starting. What had been started is taken down again.
    pub fn start(
        config: Config,
        attachment: Arc<dyn Attachment>,
        binary: &Path,
    ) -> Result<Self, DaemonError> {
        let listener = api::listen(&config.daemon.socket)?;
        let (cgroup, division) = match Cgroup::own() {
            Ok(cgroup) => (Some(Arc::new(cgroup)), "each P4 VM has its own".to_owned()),
            Err(e) => (None, e.to_string()),
        };
        let first_uid = config.daemon.first_uid.unwrap_or_else(first_uid);
        let state = config.daemon.state.clone().or_else(state_of_service);
        let inline = config.placement == config::Placement::Inline;
        let keep = |(index, tenant): (usize, &config::Tenant)| {
            // Where only `nobody` exists, all are nobody; namespaces separate them all the same.
            let own = if first_uid == NOBODY { 0 } else { index as u32 };
            let launch = Launch {
                binary: binary.to_owned(),
                uid: first_uid + own,
                allow_missing: config.daemon.allow_missing.clone(),
                memory: tenant.memory,
                cpu: tenant.cpu,
                busy: tenant.busy,
                delay: tenant.delay,
            };
            let (attachment, cgroup) = (Arc::clone(&attachment), cgroup.clone());
            let (tenant, state) = (tenant.clone(), state.clone());
            let name = tenant.name.clone();
            Keeper::start(Charge { index, tenant, inline, launch, attachment, cgroup, state })
                .map_err(|source| DaemonError::Keeper { tenant: name, source })
        };
        let keepers = config.tenants.iter().enumerate().map(keep).collect::<Result<Vec<_>, _>>()?;
        let bells: Vec<_> = keepers.iter().map(Keeper::bell).collect();
        attachment.on_change(Box::new(move || {
            for bell in &bells {
                // One that nobody hears is a keeper's that has ended.
                let _ = bell.ring();
            }
        }));
        let metrics = config.daemon.metrics;
        let shared = Arc::new(Shared { config, cgroup: division, attachment, keepers });
        let http = metrics.map(|a| http::Server::start(a, Arc::clone(&shared))).transpose()?;
        let api = api::Server::start(listener, Arc::clone(&shared))?;
        Ok(Self { shared, _http: http, _api: api })
    }

    /// How everything is.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Reads the configuration again and loads its programs.
    ///
    /// # Errors
    /// The configuration is wrong, or has changed in more than programs; or programs were refused.
    pub fn reload(&self) -> Result<String, String> {
        self.shared.reload()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // All at once, so that the slowest counts and not the sum.
        self.shared.keepers.iter().for_each(Keeper::stop_soon);
    }
}

/// The first user of a range that exists in this user namespace.
fn first_uid() -> u32 {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let holds = |line: &str| {
        let mut numbers = line.split_whitespace().map(|n| n.parse::<u64>().unwrap_or(0));
        let (first, _, count) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let last = first.saturating_add(count);
        (u64::from(FIRST_UID) >= first && u64::from(FIRST_UID) + 65536 <= last).then_some(())
    };
    if map.lines().any(|l| holds(l).is_some()) { FIRST_UID } else { NOBODY }
}

impl Shared {
    /// Replaces a program by what the objects in these files link to; no file: takes it away.
    pub(crate) fn load(
        &self,
        tenant: &str,
        vm: &str,
        direction: &str,
        files: &[PathBuf],
        load: Load,
    ) -> Result<String, String> {
        let (t, found) =
            self.config.tenant(tenant).ok_or_else(|| format!("there is no tenant {tenant:?}"))?;
        let v = found.vms.iter().position(|v| v.name == vm);
        let v = v.ok_or_else(|| format!("tenant {tenant:?} has no VM {vm:?}"))?;
        let direction = Direction::ALL.into_iter().find(|d| d.name() == direction);
        let direction = direction.ok_or_else(|| "a direction is ingress or egress".to_owned())?;
        if !files.is_empty() && found.skips(v, direction) {
            return Err(SKIPPED.to_owned());
        }
        let keeper = self.keepers.get(t).ok_or("the daemon stops")?;
        keeper.load(v as u16, direction, read_objects(files)?, load)
    }

    pub(crate) fn status(&self) -> Status {
        let totals = self.attachment.totals();
        let tenants: Vec<_> = (0..self.keepers.len()).map(|t| self.tenant(t, &totals)).collect();
        let (wires, switches) = (self.attachment.wires(), self.attachment.switches());
        let mut advice: Vec<_> = tenants.iter().flat_map(TenantStatus::advice).collect();
        for side in wires.iter().flat_map(|w| [&w.vm, &w.switch]) {
            if let Some(remark) = side.remark.as_ref().filter(|_| !side.up) {
                advice.push(format!("interface {}: {remark}", side.interface));
            }
        }
        advice.extend(switches.advice);
        let UnownedCounts { passed, dropped, spoofed, refused } = totals.unowned;
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config: self.config.file.display().to_string(),
            pid: std::process::id(),
            cgroup: self.cgroup.clone(),
            tenants,
            attachment: self.config.attachment.name().to_owned(),
            placement: self.config.placement.name().to_owned(),
            wires,
            switches: switches.connected,
            unowned: Unowned { passed, dropped, spoofed, refused },
            advice,
        }
    }

    fn tenant(&self, t: usize, totals: &Totals) -> TenantStatus {
        let (tenant, known) = (&self.config.tenants[t], self.keepers[t].known().clone());
        let vm = |(v, vm): (usize, &config::Vm)| {
            let p4vm = known.p4vm.as_ref().and_then(|p| p.vms.iter().find(|p| usize::from(p.vm) == v));
            let direction = |d: Direction| DirectionStatus {
                skipped: tenant.skips(v, d),
                ..direction(&known, v, d, &totals.tally(t, v, d), p4vm)
            };
            VmStatus {
                name: vm.name.clone(),
                info: info(vm.info_page.is_some(), p4vm),
                log_records: p4vm.map_or(0, |p| p.log_records),
                ingress: direction(Direction::Ingress),
                egress: direction(Direction::Egress),
            }
        };
        let sandbox = known.sandbox.as_ref().filter(|_| known.state == State::Running);
        TenantStatus {
            name: tenant.name.clone(),
            state: known.state,
            pid: known.pid,
            uid: sandbox.map(|s| s.uid),
            restarts: known.restarts,
            error: known.error.clone(),
            channels: known.channels.clone(),
            inline: known.inline.clone(),
            missing: sandbox.map(|s| s.missing.iter().map(ToString::to_string).collect()).unwrap_or_default(),
            landlock_abi: sandbox.map_or(0, |s| s.landlock_abi),
            vms: tenant.vms.iter().enumerate().map(vm).collect(),
        }
    }
}

fn info(page: bool, p4vm: Option<&control::VmStatus>) -> InfoStatus {
    let Some(p) = p4vm.filter(|_| page) else {
        return InfoStatus {
            status: if page { "unknown" } else { "none" }.to_owned(),
            ..InfoStatus::default()
        };
    };
    let all = [Info::Known, Info::Missing, Info::Stale, Info::Forged, Info::Replayed];
    let status = all.into_iter().find(|s| *s as u8 == p.info).map_or("unknown", Info::name);
    let [accepted, forged, replayed, stale] = p.info_tally;
    InfoStatus { status: status.to_owned(), accepted, forged, replayed, stale }
}

fn direction(
    known: &Known,
    vm: usize,
    direction: Direction,
    tally: &DirectionCounts,
    p4vm: Option<&control::VmStatus>,
) -> DirectionStatus {
    let reasons = |counts: &[u64]| {
        let named = Reason::ALL.iter().zip(counts).filter(|(_, n)| **n > 0);
        named.map(|(r, n)| (r.name().to_owned(), *n)).collect()
    };
    let judged = p4vm.map(|p| &p.directions[direction as usize]);
    DirectionStatus {
        program: judged.and_then(|j| j.program).map(|digest| hex(&digest)),
        error: known.refusals.get(vm).and_then(|r| r[direction as usize].clone()),
        packets: tally.packets_in,
        bytes: tally.bytes_in,
        passed: tally.passed,
        rewritten: tally.rewritten,
        dropped: reasons(&tally.dropped),
        let_through: reasons(&tally.let_through),
        held: tally.held,
        judged: judged.map_or(0, |j| j.judged),
        undecided: judged.map_or(0, |j| j.undecided),
        failed: judged.map_or(0, |j| j.failed),
        ..DirectionStatus::default()
    }
}
