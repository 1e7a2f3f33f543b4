//! The sandbox of a switch compartment: a user namespace that owns the compartment's network namespace, so
//! that Open vSwitch has its interfaces and no other thing of the host. The switch of the baseline has the
//! host's network, and the other layers.

use super::buffers::Buffers;
use super::machine::Prepared;
use super::{InsideError, Options, seccomp};
use crate::order::{OPENFLOW, OVSDB};
use p4shield_sandbox::{
    self as layers, Allowed, During as _, NameInside, Root, SandboxError, Step, Writable,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CpuSet, sched_setaffinity};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// Where Open vSwitch's sockets are inside.
pub(super) const RUN: &str = "/run/openvswitch";
/// Where its database is.
pub(super) const STATE: &str = "/var/lib/openvswitch";
/// The visible part of the host: programs, libraries, and what the dynamic linker reads.
const VISIBLE: &[&str] =
    &["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives"];
/// Files by which DPDK counts the processor's cores.
const CORES: &str = "/sys/devices/system/cpu";
/// Files by which it finds huge pages and the memory's nodes.
const POOLS: &str = "/sys/kernel/mm/hugepages";
const NODES: &str = "/sys/devices/system/node";
/// Files without which DPDK does not look for huge pages: there is no folder of them, and this size.
const PROC: [(&str, &str); 2] = [("/proc/mounts", ""), ("/proc/meminfo", "Hugepagesize: 2048 kB\n")];
/// Bytes of the largest of x86-64's huge pages.
const HUGEST_PAGE: u64 = 1 << 30;
const TUN: &str = "/dev/net/tun";
/// Devices. The tun device makes the bridge's own port, in the compartment's network namespace only.
const DEVICES: &[&str] = &[TUN, "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"];
/// Landlock leaves this writable.
const WRITABLE: &[&str] = &[RUN, STATE, "/tmp", "/dev"];

/// The folders of a compartment on the host, which its user owns.
#[derive(Clone, Debug)]
pub struct Paths {
    /// Its sockets.
    pub run: PathBuf,
    /// Its database.
    pub state: PathBuf,
}

/// The limits of a compartment's processes; a cgroup limits memory and processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the longest file: database, logs.
    pub file: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Processes and threads.
    pub processes: u64,
}

impl Limits {
    /// Returns those of a compartment whose switch forwards with DPDK, or without. DPDK's memory is a file,
    /// and so is each of so many bytes of huge pages.
    #[must_use]
    pub const fn of(dpdk: bool, huge_pages: u64) -> Self {
        let file = if huge_pages > 0 {
            HUGEST_PAGE
        } else if dpdk {
            128 << 20
        } else {
            64 << 20
        };
        Self { file, descriptors: 4096, processes: 64 }
    }
}

/// The possessions of a process in the sandbox.
pub(super) struct Entered {
    /// The socket for orders.
    pub(super) orders: OwnedFd,
    /// The compartment's virtual machine, to be started.
    pub(super) machine: Option<Prepared>,
    /// Room for the packets of a switch with packet sockets.
    pub(super) buffers: Option<Buffers>,
}

/// Enters the sandbox.
pub(super) fn enter(options: &Options) -> Result<Entered, InsideError> {
    layers::read_no_files();
    layers::close_all_but(&[0])?;
    let orders = std::io::stdin().as_fd().try_clone_to_owned().map_err(InsideError::Orders)?;
    join_cgroup(options.cgroup.as_deref())?;
    use_core(options.core);
    let machine = options.machine.as_ref().map(Prepared::new).transpose()?;
    layers::shed_root(options.uid, machine.as_ref().map_or(&[], |m| &m.groups))?;
    if !options.on_host {
        // Capabilities are valid for the namespaces of this one only.
        layers::own_user_namespace(NameInside::Root)?;
        layers::own_network_namespace()?;
        be_quiet();
    }
    layers::own_namespaces(&options.name)?;
    layers::own_cgroup_namespace()?;
    layers::continue_in_new_process()?;
    let Paths { run, state } = &options.paths;
    let writable = [Writable { folder: run, at: RUN }, Writable { folder: state, at: STATE }];
    let scratch = 4 << 20;
    let kind = match &machine {
        Some(machine) => Kind::Machine(machine),
        None => {
            Kind::Switch { on_host: options.on_host, dpdk: options.dpdk, huge_pages: options.huge_pages > 0 }
        }
    };
    let (visible, devices) = (kind.visible(), kind.devices());
    // Where it is missing, DPDK takes the kernel for one without modules that it could not do without.
    let empty: &[&str] = if options.dpdk { &["/sys/module"] } else { &[] };
    let files: &[_] = if options.huge_pages > 0 { &PROC } else { &[] };
    let (visible, devices, writable) = (&visible[..], &devices[..], &writable[..]);
    layers::own_root(&Root { visible, empty, files, devices, writable, scratch })?;
    limit(&options.limits)?;
    restrict_but_descriptors(&kind)?;
    let has_sockets = matches!(kind, Kind::Switch { dpdk: false, .. });
    let buffers = has_sockets.then(Buffers::start).transpose().map_err(InsideError::Thread)?;
    seccomp::deny_descriptors()?;
    Ok(Entered { orders, machine, buffers })
}

/// The programs of a compartment, which decide about its needs.
pub(super) enum Kind<'m> {
    /// Open vSwitch runs in the sandbox.
    Switch {
        /// It has the host's network.
        on_host: bool,
        /// It forwards with DPDK.
        dpdk: bool,
        /// It has huge pages.
        huge_pages: bool,
    },
    /// QEMU does.
    Machine(&'m Prepared),
}

impl Kind<'_> {
    fn visible(&self) -> Vec<&str> {
        let more: Vec<&str> = match self {
            Self::Switch { huge_pages: true, .. } => {
                PROC.iter().map(|(path, _)| *path).chain([CORES, POOLS, NODES]).collect()
            }
            Self::Switch { dpdk: true, .. } => vec![CORES],
            Self::Switch { .. } => Vec::new(),
            Self::Machine(machine) => machine.visible.iter().filter_map(|path| path.to_str()).collect(),
        };
        VISIBLE.iter().copied().chain(more).collect()
    }

    /// Returns the devices. QEMU has its taps as descriptors.
    fn devices(&self) -> Vec<&str> {
        match self {
            Self::Switch { .. } => DEVICES.to_vec(),
            Self::Machine(machine) => {
                let more = machine.devices().iter().filter_map(|path| path.to_str());
                DEVICES.iter().copied().filter(|device| *device != TUN).chain(more).collect()
            }
        }
    }
}

/// Takes away what no process of a compartment may, in namespaces and root of its own.
/// With the host's network, it has no port there.
pub(super) fn restrict(kind: &Kind<'_>) -> Result<(), SandboxError> {
    restrict_but_descriptors(kind)?;
    seccomp::deny_descriptors()
}

/// Does the same, but for descriptors of the compartment's other processes.
fn restrict_but_descriptors(kind: &Kind<'_>) -> Result<(), SandboxError> {
    let network = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
    let (tcp, capabilities): (&[u16], _) = match kind {
        Kind::Switch { on_host: true, .. } => (&[], network),
        Kind::Switch { on_host: false, .. } => (&[OVSDB, OPENFLOW], network),
        Kind::Machine(_) => (&[], CapabilitySet::empty()),
    };
    layers::allow_only(&Allowed { readable: &kind.visible(), writable: WRITABLE, tcp })?;
    layers::keep_capabilities(capabilities)?;
    seccomp::apply(matches!(kind, Kind::Switch { huge_pages: true, .. }))
}

/// Keeps the kernel from sending packets of its own at the switch's interfaces, which the NIC switch would
/// drop and count. Without IPv6 there are none.
pub(super) fn be_quiet() {
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
}

/// Moves this process into a cgroup, which its children have, too.
///
/// # Errors
/// The kernel refuses it.
pub fn join_cgroup(folder: Option<&Path>) -> Result<(), SandboxError> {
    let Some(folder) = folder else { return Ok(()) };
    let step = Step("enter the cgroup of its compartment", "mount cgroup v2 writable");
    std::fs::write(folder.join("cgroup.procs"), "0").during(step)
}

/// Runs on this core; on any if the machine lacks it, as after a change of its processors.
pub fn use_core(core: u32) {
    let mut cores = CpuSet::new();
    cores.set(core as usize);
    let _ = sched_setaffinity(None, &cores);
}

/// Sets its resource limits.
pub(super) fn limit(limits: &Limits) -> Result<(), SandboxError> {
    let all = [
        (Resource::Fsize, limits.file),
        (Resource::Nofile, limits.descriptors),
        (Resource::Nproc, limits.processes),
        (Resource::Core, 0),
        (Resource::Nice, 0),
        (Resource::Rtprio, 0),
        (Resource::Msgqueue, 0),
        (Resource::Sigpending, 256),
    ];
    let step = Step("set its resource limits", "raise the hard limits of this command (ulimit -H)");
    for (resource, n) in all {
        setrlimit(resource, Rlimit { current: Some(n), maximum: Some(n) }).during(step)?;
    }
    Ok(())
}
