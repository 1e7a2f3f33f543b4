//! The configuration: one TOML file, checked as a whole before anything is started.
//!
//! `file` says what may be written, `check` and `port` what makes sense; what comes out is [`Config`], in which nothing
//! is left to doubt. Every error says where in the file, which key, what is wrong and what to write instead, and all
//! errors of a file are told at once.
//!
//! It is a crate of its own because the daemon is not the only reader: a library that is preloaded into a switch reads
//! the same file ([`FILE_VARIABLE`]), so that it knows the tenants' policies while no daemon runs. Nothing here
//! depends on sandbox, engine or attachments.

#![forbid(unsafe_code)]

mod check;
mod error;
mod file;
mod port;
mod tunnel;
mod units;

pub use error::{ConfigError, Problem};
pub use port::{Port, Role, Sides, ZeroCopy};
pub use tunnel::{MAX_TUNNELS, Tunnel, TunnelKind};

use p4shield_abi::channel::Geometry;
use p4shield_abi::{Direction, FailPolicy, UnownedPolicy, Verdict, VmRef};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Environment variable that names the configuration to a library that is loaded into a switch.
pub const FILE_VARIABLE: &str = "P4SHIELD_CONFIG";
/// The most bytes of a name of a tenant or VM. The P4 VM has the same limit.
pub const MAX_NAME: usize = 64;
/// The most VMs of a tenant. The P4 VM has the same limit.
pub const MAX_VMS: usize = 256;
/// Measures of the sandbox that a kernel may lack, by their names. The P4 VM knows the same.
pub const MEASURES: [&str; 4] = ["user-namespace", "cgroup-namespace", "landlock", "seccomp"];

/// Bytes of memory of a P4 VM unless told otherwise. The P4 VM has the same default.
pub const DEFAULT_MEMORY: u64 = 2 << 30;

/// How packets of a switch reach us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attachment {
    /// An AF_XDP bump between a VM's interface and any switch.
    #[default]
    Wire,
    /// A library that is loaded into a DPDK switch.
    Dpdk,
    /// A library that is loaded into an AF_XDP switch.
    Xsk,
}

impl Attachment {
    /// Its word in the configuration and in status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Dpdk => "dpdk",
            Self::Xsk => "xsk",
        }
    }
}

/// Where programs run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// In a P4 VM of the tenant's own.
    #[default]
    P4vm,
    /// Inside the switch's process.
    Inline,
}

impl Placement {
    /// Its word in the configuration and in status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::P4vm => "p4vm",
            Self::Inline => "inline",
        }
    }
}

/// What becomes of packets of a direction without a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoProgram {
    /// The P4 VM drops them.
    #[default]
    Drop,
    /// The P4 VM passes them, and its log speaks of them.
    Pass,
    /// They pass and the P4 VM is not asked, nor does its log tell of them, where there was no program when the daemon started.
    /// Where one was refused or taken away since, they are dropped.
    Skip,
}

impl NoProgram {
    /// What a P4 VM that is asked about one answers.
    #[must_use]
    pub const fn verdict(self) -> Verdict {
        match self {
            // What is skipped is not asked about: what comes to a P4 VM all the same misses a program that should be there.
            Self::Drop | Self::Skip => Verdict::Drop,
            Self::Pass => Verdict::Pass,
        }
    }
}

/// What was configured.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file that it was read from.
    pub file: PathBuf,
    /// How packets reach us.
    pub attachment: Attachment,
    /// Where programs run.
    pub placement: Placement,
    /// The daemon itself.
    pub daemon: Daemon,
    /// The tenants; a [`VmRef`]'s numbers are indexes into them and their VMs.
    pub tenants: Vec<Tenant>,
    /// The wires, if the attachment is [`Attachment::Wire`].
    pub wires: Vec<Wire>,
    /// The ports of the switch that are known by name, if it is another.
    pub ports: Vec<Port>,
    /// Where the switch itself ends tunnels, besides those that Open vSwitch's database tells.
    pub tunnels: Vec<Tunnel>,
}

/// The daemon itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// Its UNIX socket.
    pub socket: PathBuf,
    /// Where metrics are served over HTTP, if anywhere: a loopback address.
    pub metrics: Option<SocketAddr>,
    /// Measures of the sandbox that the kernel may lack, out of [`MEASURES`].
    pub allow_missing: Vec<String>,
    /// Whether the host's own network stack is kept off the wires.
    pub guard: bool,
    /// User that the first tenant's P4 VM runs as; each further one takes the next. `None`: chosen.
    pub first_uid: Option<u32>,
    /// The UNIX socket where libraries in switches connect.
    pub attach_socket: PathBuf,
    /// Users, besides root and the daemon's own, whose switches may connect there.
    pub switch_uids: Vec<u32>,
    /// Groups whose switches may connect there.
    pub switch_gids: Vec<u32>,
    /// The socket of Open vSwitch's database, which tells whose a port is; `None`: it is not asked.
    pub ovsdb: Option<PathBuf>,
    /// The folder for what has to outlive the daemon; `None`: the one that its service manager gives it, if it does.
    pub state: Option<PathBuf>,
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
    pub no_program: NoProgram,
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
    /// The core that its P4 VM judges on; `None`: any.
    pub cpu: Option<u32>,
    /// Whether its P4 VM never sleeps: for a core that nobody else needs.
    pub busy: bool,
    /// What its P4 VM takes longer for each packet, to measure what slow programs cost; zero otherwise.
    pub delay: Duration,
    /// Its VMs.
    pub vms: Vec<Vm>,
}

impl Tenant {
    /// Whether packets of a VM pass in a direction without anybody being asked. The VM's number is its index.
    #[must_use]
    pub fn skips(&self, vm: usize, direction: Direction) -> bool {
        let program = self.vms.get(vm).map(|vm| &vm.programs[direction as usize]);
        self.no_program == NoProgram::Skip && program.is_some_and(Vec::is_empty)
    }
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
    /// What Open vSwitch's database calls it: `external_ids:iface-id` of its interface.
    pub iface_id: Option<String>,
    /// The number of the network that its addresses are of (VNI), which tells it from VMs with the same in others.
    pub vni: Option<u32>,
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
    pub others: UnownedPolicy,
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

    /// What is known of the port of this name.
    #[must_use]
    pub fn role_of_name(&self, name: &str) -> Option<Role> {
        self.ports.iter().find(|p| p.name == name).map(|p| p.role)
    }

    /// Whose P4 VM alone may read the packet memory of a port of these names; none: it is handed copies.
    #[must_use]
    pub fn packet_memory_of<'n>(&self, mut names: impl Iterator<Item = &'n str>) -> Option<&Tenant> {
        let port = names.find_map(|n| self.ports.iter().find(|p| p.name == n))?;
        let Role::Vm(vm) = port.role else { return None };
        let may = port.zero_copy == ZeroCopy::Auto && self.placement == Placement::P4vm;
        self.tenants.get(usize::from(vm.tenant)).filter(|_| may)
    }

    /// Whether a port of these names may be a VM's whose ingress is to be asked at its transmit side. A port that is not
    /// known by name may turn out to be, by its `external_ids:iface-id`.
    #[must_use]
    pub fn may_be_asked_at_transmit<'n>(&self, mut names: impl Iterator<Item = &'n str>) -> bool {
        let named = names.find_map(|n| self.ports.iter().find(|p| p.name == n));
        let may = match named {
            Some(port) => matches!(port.role, Role::Vm(_)) && port.sides == Sides::Both,
            None => self.tenants.iter().flat_map(|t| &t.vms).any(|vm| vm.iface_id.is_some()),
        };
        may && self.attachment == Attachment::Xsk
    }

    /// What is known of the port with this `external_ids:iface-id`.
    #[must_use]
    pub fn role_of_iface_id(&self, iface_id: &str) -> Option<Role> {
        let vms = self
            .tenants
            .iter()
            .zip(0..)
            .flat_map(|(t, n)| t.vms.iter().zip(0..).map(move |(v, m)| (n, m, v)));
        let mut named = vms.filter(|(.., vm)| vm.iface_id.as_deref() == Some(iface_id));
        named.next().map(|(tenant, vm, _)| Role::Vm(VmRef { tenant, vm }))
    }
}

#[cfg(test)]
mod tests;
