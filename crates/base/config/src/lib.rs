//! The configuration: one TOML file, checked as a whole before anything is started.
//!
//! `file` defines the structure; `check`, `paths`, `port`, `topology` and `tunnel` validate the values and
//! have their defaults and limits (those of a tenant's `deadline` are in `check`); the result is [`Config`].
//! `changes` and `numbers` compare a running configuration with a new one. `reference` describes each key
//! for the documentation. Every error names line, column and key, what is invalid and what to write
//! instead. All errors of a file are reported at once.
//!
//! It is a crate of its own because the daemon is not the only reader: a library that is preloaded into a
//! switch reads the same file ([`FILE_VARIABLE`]) and so knows the tenants' policies while no daemon runs.
//! Nothing here depends on sandbox, engine or attachments.

#![forbid(unsafe_code)]

mod changes;
mod check;
mod check_bundle;
mod check_machine;
mod compartment;
mod controllers;
mod error;
mod file;
mod handshake;
mod huge_pages;
mod inner_wires;
mod levels;
mod nic_switch;
mod numbers;
mod paths;
mod port;
mod quantity;
pub mod reference;
mod source;
mod switch_kind;
mod switch_machine;
mod topology;
mod tunnel;
mod units;

pub use changes::Change;
pub use compartment::{Compartment, Machine, Tee};
pub use controllers::Controllers;
pub use error::{ConfigError, Problem};
pub use handshake::Handshake;
pub use levels::{Cores, Datapath, Level, NicSwitchKind, SwitchKind};
pub use port::{Port, Role, Sides, ZeroCopy};
pub use switch_machine::SwitchMachine;
pub use topology::{MAC_PREFIX, MAX_HOST, Topology};
pub use tunnel::{MAX_TUNNELS, Tunnel, TunnelKind};
pub use units::parse_duration;

use macaddr::MacAddr6;
use p4shield_abi::channel::Geometry;
use p4shield_abi::{Direction, FailPolicy, UnownedPolicy, Verdict, VmRef};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Environment variable with the path of the configuration, for a library that is loaded into a switch.
pub const FILE_VARIABLE: &str = "P4SHIELD_CONFIG";
/// Most bytes in the name of a tenant or VM. The P4 VM has the same limit.
pub const MAX_NAME: usize = 64;
/// Most VMs of a tenant. The P4 VM has the same limit.
pub const MAX_VMS: usize = 256;
/// Names of the sandbox measures that a kernel may lack. The P4 VM has the same list.
pub const MEASURES: [&str; 4] = ["user-namespace", "cgroup-namespace", "landlock", "seccomp"];

/// Default memory of a P4 VM in bytes. The P4 VM has the same default.
pub const DEFAULT_MEMORY: u64 = 2 << 30;

/// How packets of a switch reach P4 Shield.
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
    /// Returns its name in the configuration and in status.
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
    /// Returns its name in the configuration and in status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::P4vm => "p4vm",
            Self::Inline => "inline",
        }
    }
}

/// What happens to packets of a direction without a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoProgram {
    /// The P4 VM drops them.
    #[default]
    Drop,
    /// The P4 VM passes them and records them in its log.
    Pass,
    /// They bypass the P4 VM and its log if there is no program when the daemon starts. If a program was
    /// refused or unloaded later, they are dropped.
    Skip,
}

impl NoProgram {
    /// Returns the P4 VM's verdict on such a packet.
    #[must_use]
    pub const fn verdict(self) -> Verdict {
        match self {
            // Skipped packets never reach the P4 VM. One that does belongs to a direction whose program is
            // missing.
            Self::Drop | Self::Skip => Verdict::Drop,
            Self::Pass => Verdict::Pass,
        }
    }
}

/// A valid configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The path of its file.
    pub file: PathBuf,
    /// How packets reach P4 Shield.
    pub attachment: Attachment,
    /// Where programs run.
    pub placement: Placement,
    /// How switches are divided among tenants.
    pub level: Level,
    /// The tenants' switches, if the topology is declared; always with a level above the baseline.
    pub topology: Option<Topology>,
    /// The daemon.
    pub daemon: Daemon,
    /// The virtual machines of tenants with [`Compartment::Vm`].
    pub machine: Machine,
    /// The tenants. The numbers of a [`VmRef`] are indexes into this list and into the tenant's VMs. After
    /// [`Self::numbered_like`] entries may be vacant.
    pub tenants: Vec<Tenant>,
    /// The wires, if the attachment is [`Attachment::Wire`].
    pub wires: Vec<Wire>,
    /// The ports of the switch that are configured by name, with other attachments.
    pub ports: Vec<Port>,
    /// The endpoints of tunnels that the switch decapsulates, besides those in Open vSwitch's database.
    pub tunnels: Vec<Tunnel>,
    source: source::Source,
}

/// The daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// Its UNIX socket.
    pub socket: PathBuf,
    /// The loopback address where metrics are served over HTTP, if they are.
    pub metrics: Option<SocketAddr>,
    /// Measures of the sandbox that the kernel may lack, out of [`MEASURES`].
    pub allow_missing: Vec<String>,
    /// Whether the host's own network stack is blocked on the wires.
    pub guard: bool,
    /// User ID of the first tenant's P4 VM; the others follow. `None`: chosen by the daemon.
    pub first_uid: Option<u32>,
    /// The UNIX socket where the libraries in switches connect.
    pub attach_socket: PathBuf,
    /// Users, besides root and the daemon's own, whose switches may connect there.
    pub switch_uids: Vec<u32>,
    /// Groups whose switches may connect there.
    pub switch_gids: Vec<u32>,
    /// The socket of Open vSwitch's database, which has the iface-id of each port; `None`: not read.
    pub ovsdb: Option<PathBuf>,
    /// The folder for state that outlives the daemon; `None`: the service manager's, if there is one.
    pub state: Option<PathBuf>,
    /// How long P4 VMs go on without a daemon.
    pub adoption_time: Duration,
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// What isolates its P4 VM.
    pub compartment: Compartment,
    /// What keeps its P4 VM's memory from the host.
    pub tee: Tee,
    /// The zone: at level 2, tenants of one zone share a switch compartment. `None`: one of its own.
    pub zone: Option<String>,
    /// Where controllers reach its switch; `None`: nowhere.
    pub controllers: Option<Controllers>,
    /// The file that holds its key, for VMs without one of their own.
    pub key_file: Option<PathBuf>,
    /// The file of the public key that signs its bundles; `None`: its programs come as objects.
    pub bundle_key: Option<PathBuf>,
    /// The socket where the tenant manages its own VMs and programs.
    pub socket: Option<TenantSocket>,
    /// Time after a rotation in which the previous key is accepted.
    pub key_window: Duration,
    /// The policy for packets without a verdict at the deadline.
    pub fail: FailPolicy,
    /// What happens to packets of a direction without a program.
    pub no_program: NoProgram,
    /// Longest time for which a packet is held.
    pub deadline: Duration,
    /// Time without an answer after which its P4 VM is restarted.
    pub stall: Duration,
    /// Most held packets in each direction of a VM.
    pub max_held: usize,
    /// The geometry of its channels.
    pub geometry: Geometry,
    /// Age at which a snapshot becomes stale.
    pub age_limit: Duration,
    /// Time between log records.
    pub log_interval: Duration,
    /// Most instructions of a program for one packet.
    pub budget: u64,
    /// Limit of its P4 VM's address space and cgroup in bytes, or the memory of its virtual machine.
    pub memory: u64,
    /// CPU limit of its P4 VM in percent of a core; `None`: no limit.
    pub cpu_percent: Option<u32>,
    /// The core of its P4 VM's worker; `None`: any.
    pub cpu: Option<u32>,
    /// Whether its P4 VM polls without sleeping, for a core of its own.
    pub busy: bool,
    /// Artificial delay for each packet, to measure the cost of slow programs; otherwise zero.
    pub delay: Duration,
    /// Its VMs.
    pub vms: Vec<Vm>,
}

impl Tenant {
    /// Returns whether a direction of the VM with this index bypasses the P4 VM.
    #[must_use]
    pub fn skips(&self, vm: usize, direction: Direction) -> bool {
        let program = self.vms.get(vm).map(|vm| &vm.programs[direction as usize]);
        self.no_program == NoProgram::Skip && program.is_some_and(Vec::is_empty)
    }

    /// Returns the direction in whose place the program of a direction is: a bundle, which holds both, is in
    /// that of ingress.
    #[must_use]
    pub const fn place_of(&self, direction: Direction) -> Direction {
        if self.bundle_key.is_some() { Direction::Ingress } else { direction }
    }

    /// Returns the file with the key of one of the tenant's VMs; `None` if the key comes from a handshake.
    #[must_use]
    pub fn key_file_of<'a>(&'a self, vm: &'a Vm) -> Option<&'a Path> {
        if vm.handshake.is_some() {
            return None;
        }
        vm.key_file.as_deref().or(self.key_file.as_deref())
    }

    /// Returns the files of the tenant's keys, each with the name of its VM, if it is a VM's own.
    pub fn key_files(&self) -> impl Iterator<Item = (&Path, Option<&str>)> {
        let own = self.numbered_vms().filter_map(|(_, vm)| Some((vm.key_file.as_deref()?, Some(&*vm.name))));
        self.key_file.as_deref().map(|path| (path, None)).into_iter().chain(own)
    }
}

/// A user VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vm {
    /// Its name, unique within the tenant.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The host's side of its network interface. Always present with [`Config::topology`].
    pub interface: Option<String>,
    /// The Ethernet address of its network interface. Always present with [`Config::topology`].
    pub mac: Option<MacAddr6>,
    /// By [`p4shield_abi::Direction`]: the objects of the program; empty: no program. If the tenant has a
    /// `bundle_key`, the VM's bundle is in the place of the ingress program, and holds both.
    pub programs: [Vec<PathBuf>; 2],
    /// The file that holds its own key; `None`: the tenant's.
    pub key_file: Option<PathBuf>,
    /// How it agrees on keys with its P4 VM; `None`: its key is in a file.
    pub handshake: Option<Handshake>,
    /// Its info page.
    pub info_page: Option<PathBuf>,
    /// Its log page.
    pub log_page: Option<PathBuf>,
    /// Owner of the pages; `None`: the daemon's user.
    pub page_owner: Option<u32>,
    /// Packets that the NIC switch takes from it in a second; `None`: there is no limit.
    pub packet_rate: Option<NonZero<u32>>,
    /// `external_ids:iface-id` of its interface in Open vSwitch's database.
    pub iface_id: Option<String>,
    /// The network of its addresses (VNI), which distinguishes it from VMs with the same addresses in other
    /// networks.
    pub vni: Option<u32>,
}

impl Vm {
    /// Returns the paths of its pages.
    pub fn pages(&self) -> impl Iterator<Item = &Path> {
        let handshake = self.handshake.as_ref().map(|h| &*h.page);
        [self.info_page.as_deref(), self.log_page.as_deref(), handshake].into_iter().flatten()
    }
}

/// A wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wire {
    /// The VM's interface.
    pub vm_interface: String,
    /// The interface to the switch.
    pub switch_interface: String,
    /// The other end of `switch_interface`, which is a port of the tenants' switches, if P4 Shield makes the
    /// pair. `None`: the file has the wire.
    pub port: Option<String>,
    /// The VM that it belongs to.
    pub vm: VmRef,
    /// What happens to packets that belong to no VM, such as ARP.
    pub others: UnownedPolicy,
    /// Whether the VM may send packets with its own source addresses only.
    pub own_addresses_only: bool,
}

/// The socket of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantSocket {
    /// Its path.
    pub path: PathBuf,
    /// Users that may connect, besides root and the daemon's own user.
    pub uids: Vec<u32>,
    /// Groups that may connect.
    pub gids: Vec<u32>,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file cannot be read or is invalid; see [`ConfigError`].
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { file: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Checks the text of a file at `path`, to whose folder relative paths in it refer. Entry point for
    /// fuzzing.
    ///
    /// # Errors
    /// The text is invalid.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let refused = |problems| ConfigError::Refused { file: path.to_owned(), problems };
        let file: file::File = toml::from_str(text).map_err(|e| refused(vec![Problem::syntax(text, &e)]))?;
        check::check(path, text, &file).map_err(refused)
    }

    /// Returns a problem with the file at `path`, at the place where the configuration names it.
    #[must_use]
    pub fn problem_with(&self, path: &Path, message: String) -> Problem {
        self.source.problem(path, message)
    }

    /// Returns the text of the file.
    #[must_use]
    pub fn text(&self) -> &str {
        self.source.text()
    }

    /// Returns the tenant with this name, and its index.
    #[must_use]
    pub fn tenant(&self, name: &str) -> Option<(usize, &Tenant)> {
        self.numbered_tenants().find(|(_, t)| t.name == name)
    }

    /// Returns whether the switch of a VM has its interface as a port, with no wire between, so that no
    /// program judges its packets.
    #[must_use]
    pub fn has_no_wire(&self, tenant: &str, vm: usize) -> bool {
        let Some((number, _)) = self.tenant(tenant) else { return false };
        let its = |wire: &Wire| (usize::from(wire.vm.tenant), usize::from(wire.vm.vm)) == (number, vm);
        self.topology.is_some() && !self.wires.iter().any(its)
    }

    /// Returns the role of the port with this name.
    #[must_use]
    pub fn role_of_name(&self, name: &str) -> Option<Role> {
        self.ports.iter().find(|p| p.name == name).map(|p| p.role)
    }

    /// Returns the tenant whose P4 VM may read the packet memory of a port with these names; `None`: copies
    /// only.
    #[must_use]
    pub fn packet_memory_of<'n>(&self, mut names: impl Iterator<Item = &'n str>) -> Option<&Tenant> {
        let port = names.find_map(|n| self.ports.iter().find(|p| p.name == n))?;
        let Role::Vm(vm) = port.role else { return None };
        let may = port.zero_copy == ZeroCopy::Auto && self.placement == Placement::P4vm;
        let tenant = self.tenants.get(usize::from(vm.tenant)).filter(|_| may);
        tenant.filter(|t| t.compartment == Compartment::Process)
    }

    /// Returns the role of the port with this `external_ids:iface-id`.
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
