//! What the daemon's threads share, and how a program is replaced while the daemon runs.
//!
//! [`crate::reload`] builds on this to apply a changed configuration; [`crate::collect_status`] reads it.

use crate::attachment::Attachment;
use crate::cgroup::Cgroup;
use crate::config::{self, Config, Placement};
use crate::http;
use crate::refusal;
use crate::supervisor::{P4VmCommand, Supervisor, SupervisorConfig};
use crate::text::read_objects;
use crate::watch::WatchedProblems;
use p4shield_abi::Direction;
use p4shield_channel::Doorbell;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// User ID of P4 VMs where the range does not exist (a container with few users): `nobody`.
pub(crate) const FALLBACK_UID: u32 = 65534;

/// Why no program can be loaded where `no_program = "skip"` applies.
const SKIPPED: &str = "the P4 VM does not judge these packets: with no_program = \"skip\" and no program \
                       in the configuration, they bypass it; name the program in the configuration and run \
                       `p4shield reload`";

/// The configuration that is in force, with the supervisors of its tenants.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) config: Arc<Config>,
    /// By the tenant's number; `None`: the number is vacant.
    pub(crate) supervisors: Vec<Option<Arc<Supervisor>>>,
}

impl Running {
    /// Returns the supervisor of the tenant with this number.
    pub(crate) fn supervisor(&self, tenant: usize) -> Option<&Arc<Supervisor>> {
        self.supervisors.get(tenant)?.as_ref()
    }
}

/// What the daemon starts P4 VMs with.
pub(crate) struct Starter {
    pub(crate) binary: PathBuf,
    pub(crate) first_uid: u32,
    pub(crate) cgroup: Option<Arc<Cgroup>>,
    /// The folder for state that outlives the daemon.
    pub(crate) state: Option<PathBuf>,
}

impl Starter {
    /// Returns the command line of a tenant's P4 VM.
    pub(crate) fn command(&self, config: &Config, number: usize, tenant: &config::Tenant) -> P4VmCommand {
        // Where only `nobody` exists, P4 VMs share it; their namespaces still separate them.
        let offset = if self.first_uid == FALLBACK_UID { 0 } else { number as u32 };
        P4VmCommand {
            binary: self.binary.clone(),
            uid: self.first_uid + offset,
            allow_missing: config.daemon.allow_missing.clone(),
            memory: tenant.memory,
            cpu: tenant.cpu,
            busy: tenant.busy,
            delay: tenant.delay,
        }
    }

    /// Starts the supervisor of a tenant, which the switch knows if `connected`.
    pub(crate) fn start(
        &self,
        config: &Config,
        number: usize,
        attachment: &Arc<dyn Attachment>,
        connected: bool,
    ) -> std::io::Result<Supervisor> {
        let tenant = config.tenants[number].clone();
        Supervisor::start(SupervisorConfig {
            index: number,
            inline: config.placement == Placement::Inline,
            command: self.command(config, number, &tenant),
            tenant,
            attachment: Arc::clone(attachment),
            cgroup: self.cgroup.clone(),
            state: self.state.clone(),
            connected,
        })
    }
}

/// What the daemon's threads share.
pub(crate) struct DaemonState {
    pub(crate) running: RwLock<Running>,
    /// Whether P4 VMs have cgroups, or why not.
    pub(crate) cgroup: String,
    pub(crate) attachment: Arc<dyn Attachment>,
    pub(crate) starter: Starter,
    /// The doorbells of the supervisors, which ring when lanes change.
    pub(crate) doorbells: Arc<Mutex<Vec<Arc<Doorbell>>>>,
    /// The server of metrics.
    pub(crate) http: Mutex<Option<http::Server>>,
    /// Held during a reload: one at a time.
    pub(crate) reloading: Mutex<()>,
    /// The problems that were seen before, for their beginnings and for the log.
    pub(crate) watched: Arc<WatchedProblems>,
}

impl DaemonState {
    /// Returns the configuration in force, with its supervisors.
    pub(crate) fn running(&self) -> Running {
        self.running.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the server of metrics.
    pub(crate) fn http(&self) -> MutexGuard<'_, Option<http::Server>> {
        self.http.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts another configuration in force.
    pub(crate) fn set_running(&self, running: Running) {
        let doorbells = running.supervisors.iter().flatten().map(|s| s.doorbell()).collect();
        *self.doorbells.lock().unwrap_or_else(PoisonError::into_inner) = doorbells;
        *self.running.write().unwrap_or_else(PoisonError::into_inner) = running;
    }

    /// Replaces a program by the one that the objects in `files` link to, or unloads it if there are none.
    pub(crate) fn load(
        &self,
        tenant: &str,
        vm: &str,
        direction: &str,
        files: &[PathBuf],
    ) -> Result<String, String> {
        let running = self.running();
        let (t, found) =
            running.config.tenant(tenant).ok_or_else(|| format!("there is no tenant {tenant:?}"))?;
        let v = found.numbered_vms().find(|(_, v)| v.name == vm);
        let (v, _) = v.ok_or_else(|| format!("tenant {tenant:?} has no VM {vm:?}"))?;
        let direction = Direction::ALL.into_iter().find(|d| d.name() == direction);
        let direction = direction.ok_or_else(|| "a direction is ingress or egress".to_owned())?;
        if !files.is_empty() && found.skips(v, direction) {
            return Err(SKIPPED.to_owned());
        }
        let supervisor = running.supervisor(t).ok_or("the daemon is stopping")?;
        let loaded = read_objects(files).and_then(|objects| supervisor.load(v as u16, direction, objects));
        loaded.inspect_err(|why| {
            let meanwhile = supervisor.report().meanwhile(v, direction);
            refusal::log(found, v, direction, meanwhile, why);
        })
    }
}
