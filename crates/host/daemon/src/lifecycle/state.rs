//! What the daemon's threads share, and how a program is replaced while the daemon runs.
//!
//! [`crate::lifecycle::reload`] builds on this to apply a changed configuration; [`crate::status::collect`]
//! reads it.

use crate::adoption::AdoptionFolder;
use crate::api::tenant_sockets::TenantSockets;
use crate::attachment::Attachment;
use crate::config::{self, Compartment, Config, Placement};
use crate::programs::read_objects;
use crate::programs::refusal;
use crate::programs::{self, ObjectRecord, ProgramAction, ProgramKey, ProgramRecord, ProgramStore};
use crate::status::losses::RecentLosses;
use crate::status::watch::WatchedProblems;
use crate::supervisor::{Loaded, NO_PROGRAM, Supervisor, SupervisorConfig};
use crate::tenant_switches::TenantSwitches;
use p4shield_abi::Direction;
use p4shield_channel::Doorbell;
use p4shield_compartment::{Cgroup, FALLBACK_UID, P4VmCommand, Processes};
use p4shield_scrape::Server;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// The direction of a bundle in requests.
const BOTH: &str = "both";

/// Reason why no program can be loaded where `no_program = "skip"` applies.
const SKIPPED: &str = "the P4 VM does not judge these packets: with no_program = \"skip\" and no program \
                       in the configuration, they bypass it; name the program in the configuration and run \
                       `p4shield reload`";

/// Reason why no program can be loaded for a VM whose interface is a port of its tenant's switch.
const UNWIRED: &str = "this VM has no wire between its interface and its tenant's switch, where a program \
                       would judge: name its first program in the configuration (ingress or egress of \
                       [[tenant.vm]]), and run `p4shield reload`";

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
    /// Programs that commands loaded.
    pub(crate) programs: Arc<ProgramStore>,
    /// What the next daemon needs to adopt the P4 VMs.
    pub(crate) adoption: Arc<AdoptionFolder>,
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
            machine: (tenant.compartment == Compartment::Vm).then(|| config.machine.clone()),
            tee: tenant.tee,
            write_combining: false,
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
            launcher: Arc::new(Processes),
            command: self.command(config, number, &tenant),
            tenant,
            attachment: Arc::clone(attachment),
            cgroup: self.cgroup.clone(),
            state: self.state.clone(),
            programs: Arc::clone(&self.programs),
            connected,
            adoption: Arc::clone(&self.adoption),
            adoption_time: config.daemon.adoption_time,
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
    pub(crate) http: Mutex<Option<Server>>,
    /// The tenants' own switches.
    pub(crate) tenant_switches: TenantSwitches,
    /// The sockets of tenants.
    pub(crate) tenant_sockets: Mutex<TenantSockets>,
    /// Held during a reload: one at a time.
    pub(crate) reloading: Mutex<()>,
    /// The problems that were seen before, for their beginnings and for the log.
    pub(crate) watched: Arc<WatchedProblems>,
    /// When packets were lost last.
    pub(crate) losses: RecentLosses,
    /// When the daemon started, in milliseconds since 1970.
    pub(crate) started_ms: u64,
    /// The path of the daemon's binary at its start.
    pub(crate) path: Option<PathBuf>,
    /// The binary that an upgrade executes.
    pub(crate) successor: Mutex<Option<PathBuf>>,
}

impl DaemonState {
    /// Returns the configuration in force, with its supervisors.
    pub(crate) fn running(&self) -> Running {
        self.running.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the server of metrics.
    pub(crate) fn http(&self) -> MutexGuard<'_, Option<Server>> {
        self.http.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the sockets of tenants.
    pub(crate) fn tenant_sockets(&self) -> MutexGuard<'_, TenantSockets> {
        self.tenant_sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts another configuration in force.
    pub(crate) fn set_running(&self, running: Running) {
        let doorbells = running.supervisors.iter().flatten().map(|s| s.doorbell()).collect();
        *self.doorbells.lock().unwrap_or_else(PoisonError::into_inner) = doorbells;
        *self.running.write().unwrap_or_else(PoisonError::into_inner) = running;
    }

    /// Finds a direction of a VM by its names.
    fn find(&self, target: &Target<'_>) -> Result<Found, String> {
        let running = self.running();
        let Target { tenant, vm, direction } = *target;
        let (number, found) = running.config.tenant(tenant).ok_or_else(|| Self::no_tenant(tenant))?;
        let found_vm = found.numbered_vms().find(|(_, v)| v.name == vm);
        let (v, _) = found_vm.ok_or_else(|| format!("tenant {tenant:?} has no VM {vm:?}"))?;
        let direction = place(found, direction)?;
        let supervisor = running.supervisor(number).ok_or("the daemon is stopping")?;
        let (tenant, supervisor) = (found.clone(), Arc::clone(supervisor));
        Ok(Found { key: ProgramKey::new(&tenant.name, vm, direction), tenant, vm: v, direction, supervisor })
    }

    /// Returns the error for a tenant that does not exist.
    pub(crate) fn no_tenant(name: &str) -> String {
        format!("there is no tenant {name:?}")
    }

    /// Replaces a program, or unloads it if the request has no objects. The program stays in force until a
    /// command reverts it; a temporary one until the next reload or restart.
    pub(crate) fn load(&self, target: &Target<'_>, request: LoadRequest) -> Result<Loaded, String> {
        let found = self.find(target)?;
        let LoadRequest { objects: files, contents, temporary, uid } = request;
        if !files.is_empty() && found.tenant.skips(found.vm, found.direction) {
            return Err(SKIPPED.to_owned());
        }
        if !files.is_empty() && self.running().config.has_no_wire(&found.tenant.name, found.vm) {
            return Err(UNWIRED.to_owned());
        }
        let objects = if contents.is_empty() { read_objects(&files) } else { checked(&files, contents) };
        let objects = found.logged(objects)?;
        let action = if files.is_empty() { ProgramAction::Unload } else { ProgramAction::Load };
        let sha256 = objects.iter().map(|bytes| programs::digest(bytes));
        let records = files.into_iter().zip(sha256).map(|(path, sha256)| ObjectRecord { path, sha256 });
        let record =
            ProgramRecord { objects: records.collect(), ..ProgramRecord::now(action, uid, temporary) };
        self.replace(&found, record, objects)
    }

    /// Has the P4 VM verify a program. Returns its digest.
    pub(crate) fn check_program(&self, target: &Target<'_>, objects: Vec<Vec<u8>>) -> Result<String, String> {
        let found = self.find(target)?;
        found.supervisor.check_program(found.vm as u16, found.direction, objects)
    }

    /// Returns to the program of the configuration.
    pub(crate) fn revert(&self, target: &Target<'_>, uid: u32) -> Result<Loaded, String> {
        let found = self.find(target)?;
        let configured = &found.tenant.vms[found.vm].programs[found.direction as usize];
        let objects = found.logged(read_objects(configured))?;
        self.replace(&found, ProgramRecord::now(ProgramAction::Revert, uid, false), objects)
    }

    fn replace(&self, found: &Found, record: ProgramRecord, objects: Vec<Vec<u8>>) -> Result<Loaded, String> {
        let kept = if record.action == ProgramAction::Revert { Vec::new() } else { objects.clone() };
        let (programs, key) = (Arc::clone(&self.starter.programs), found.key.clone());
        // The supervisor's thread records it, so that no reload comes between.
        let recorded = move |loaded: String| {
            let program = (loaded != NO_PROGRAM).then(|| loaded.clone());
            match programs.record(&key, ProgramRecord { program, ..record }, kept) {
                Ok(()) => Loaded { program: loaded, warning: None },
                Err(why) => {
                    let warning = format!("it does not survive a restart of the daemon: {why}");
                    Loaded { program: loaded, warning: Some(warning) }
                }
            }
        };
        found.logged(found.supervisor.load(found.vm as u16, found.direction, objects, Box::new(recorded)))
    }

    /// Returns the records of commands that changed a direction's program, the newest first.
    pub(crate) fn history(&self, target: &Target<'_>) -> Result<Vec<ProgramRecord>, String> {
        Ok(self.starter.programs.history(&self.find(target)?.key))
    }
}

/// Finds the place of a program by its direction. A bundle, which has both, is in the place of ingress.
fn place(tenant: &config::Tenant, direction: &str) -> Result<Direction, String> {
    match (direction, tenant.bundle_key.is_some()) {
        (BOTH, true) => Ok(Direction::Ingress),
        (BOTH, false) => {
            Err(format!("tenant {} has no bundle_key: a program is of ingress or egress", tenant.name))
        }
        (_, true) => Err(format!(
            "tenant {} has a bundle_key: a bundle has the programs of both directions; write both in the \
             place of {direction}",
            tenant.name
        )),
        (_, false) => {
            let direction = Direction::ALL.into_iter().find(|d| d.name() == direction);
            direction.ok_or_else(|| "a direction is ingress or egress".to_owned())
        }
    }
}

/// A program to load.
pub(crate) struct LoadRequest {
    /// The files of its objects; none: the program is unloaded.
    pub(crate) objects: Vec<PathBuf>,
    /// What they contain; empty: the daemon reads them.
    pub(crate) contents: Vec<Vec<u8>>,
    pub(crate) temporary: bool,
    /// The user who requests it.
    pub(crate) uid: u32,
}

/// Returns what the files contain, as a client sent it.
fn checked(files: &[PathBuf], contents: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, String> {
    if files.len() == contents.len() {
        Ok(contents)
    } else {
        Err(format!("the request names {} objects and contains {}", files.len(), contents.len()))
    }
}

/// The names of a direction of a VM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) vm: &'a str,
    pub(crate) direction: &'a str,
}

/// A direction of a VM that exists.
struct Found {
    tenant: config::Tenant,
    vm: usize,
    direction: Direction,
    supervisor: Arc<Supervisor>,
    key: ProgramKey,
}

impl Found {
    /// Logs why a program was refused.
    fn logged<T>(&self, result: Result<T, String>) -> Result<T, String> {
        result.inspect_err(|why| {
            let meanwhile = self.supervisor.report().meanwhile(self.vm, self.direction);
            refusal::log(&self.tenant, self.vm, self.direction, meanwhile, why);
        })
    }
}
