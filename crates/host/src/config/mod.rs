//! The configuration: one TOML file, checked as a whole before anything is started.
//!
//! `file` says what may be written, `check` what makes sense; what comes out is [`Config`], in which nothing is
//! left to doubt. Every error says where in the file, which key, what is wrong and what to write instead, and all
//! errors of a file are told at once.

mod check;
mod error;
mod file;
mod units;

pub use error::{ConfigError, Problem};

use p4shield_abi::Verdict;
use p4shield_abi::channel::Geometry;
use p4shield_mediator::{FailPolicy, Others, VmRef};
use p4shield_runtime::sandbox::Measure;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the daemon was told.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file that it was read from.
    pub file: PathBuf,
    /// The daemon itself.
    pub daemon: Daemon,
    /// The tenants; a [`VmRef`]'s numbers are indexes into them and their VMs.
    pub tenants: Vec<Tenant>,
    /// The wires.
    pub wires: Vec<Wire>,
}

/// The daemon itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// Its UNIX socket.
    pub socket: PathBuf,
    /// Where metrics are served over HTTP, if anywhere: a loopback address.
    pub metrics: Option<SocketAddr>,
    /// Measures of the sandbox that the kernel may lack.
    pub allow_missing: Vec<Measure>,
    /// Whether the host's own network stack is kept off the wires.
    pub guard: bool,
    /// User that the first tenant's P4 VM runs as; each further one takes the next. `None`: chosen.
    pub first_uid: Option<u32>,
}

/// A tenant.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// The file that holds its key.
    pub key_file: Option<PathBuf>,
    /// What becomes of packets that its P4 VM does not judge in time.
    pub fail: FailPolicy,
    /// What becomes of packets of a direction without a program.
    pub no_program: Verdict,
    /// How long a packet is held at most.
    pub deadline: Duration,
    /// How long its P4 VM may owe answers before it is restarted.
    pub stall: Duration,
    /// Packets held at most, a direction.
    pub max_held: usize,
    /// Of its channels.
    pub geometry: Geometry,
    /// Age from which a snapshot is stale.
    pub age_limit: Duration,
    /// Time between log records.
    pub log_interval: Duration,
    /// Instructions that a program may execute for one packet.
    pub budget: u64,
    /// Bytes of memory that its P4 VM may use, address space and cgroup.
    pub memory: u64,
    /// Hundredths of a core that its P4 VM may use; `None`: no limit.
    pub cpu_percent: Option<u32>,
    /// Its VMs.
    pub vms: Vec<Vm>,
}

/// A user VM.
#[derive(Clone, Debug)]
pub struct Vm {
    /// Its name, unique within the tenant.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Objects of the program of each direction, by [`p4shield_abi::Direction`]; empty: no program.
    pub programs: [Vec<PathBuf>; 2],
    /// Its info page.
    pub info_page: Option<PathBuf>,
    /// Its log page.
    pub log_page: Option<PathBuf>,
    /// User that the pages belong to; `None`: the daemon's.
    pub page_owner: Option<u32>,
}

/// A wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wire {
    /// The VM's interface.
    pub vm_interface: String,
    /// The interface that leads to the switch.
    pub switch_interface: String,
    /// Whose it is.
    pub vm: VmRef,
    /// What becomes of packets that are of no VM, such as ARP.
    pub others: Others,
    /// Whether only packets with the VM's own source addresses may leave it.
    pub own_addresses_only: bool,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// It cannot be read, or makes no sense; see [`ConfigError`].
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { file: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Checks the text of a file at `path`, against whose folder relative paths in it are resolved. Entry point of
    /// fuzzing.
    ///
    /// # Errors
    /// It makes no sense.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let refused = |problems| ConfigError::Refused { file: path.to_owned(), problems };
        let file: file::File = toml::from_str(text).map_err(|e| refused(vec![Problem::syntax(text, &e)]))?;
        check::check(path, text, &file).map_err(refused)
    }

    /// The tenant of this name, with its index.
    #[must_use]
    pub fn tenant(&self, name: &str) -> Option<(usize, &Tenant)> {
        self.tenants.iter().enumerate().find(|(_, t)| t.name == name)
    }

    /// What mediators are told.
    #[must_use]
    pub fn mediator(&self) -> p4shield_mediator::Config {
        let vm =
            |v: &Vm| p4shield_mediator::VmConfig { name: v.name.clone(), addresses: v.addresses.clone() };
        let tenant = |t: &Tenant| p4shield_mediator::TenantConfig {
            name: t.name.clone(),
            fail: t.fail,
            deadline: t.deadline,
            stall: Some(t.stall),
            max_held: t.max_held,
            vms: t.vms.iter().map(vm).collect(),
        };
        p4shield_mediator::Config { tenants: self.tenants.iter().map(tenant).collect() }
    }
}

#[cfg(test)]
mod tests;
