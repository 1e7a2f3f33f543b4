//! The configuration of a loop and its wires.

use std::path::PathBuf;

use p4shield_afxdp::{Mode, UmemConfig};
use p4shield_channel::WaitPolicy;
use p4shield_mediator::{UnownedPolicy, VmRef};
use p4shield_xdp::XdpMode;

/// An end of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum WireSide {
    /// The VM's interface; its packets are the VM's egress.
    Vm = 0,
    /// The interface to the switch; its packets are the VM's ingress.
    Switch = 1,
}

impl WireSide {
    /// Both sides, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Vm, Self::Switch];

    /// Returns the opposite side.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Vm => Self::Switch,
            Self::Switch => Self::Vm,
        }
    }

    /// Returns the side's name in metrics and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vm => "vm",
            Self::Switch => "switch",
        }
    }
}

/// One wire: two interfaces between which only the loop moves frames.
#[derive(Clone, Debug)]
pub struct WireConfig {
    /// Name in metrics and messages.
    pub name: String,
    /// The VM's interface on the host: the host's end of a veth pair, or a tap. It may be removed and
    /// added again.
    pub vm_if: String,
    /// The interface to the switch: one end of a veth pair whose other end is a port of the switch. It
    /// may be removed and added again.
    pub switch_if: String,
    /// The VM that the wire belongs to.
    pub vm: VmRef,
    /// What happens to frames that belong to no VM, ARP above all.
    pub others: UnownedPolicy,
    /// Whether the VM may send only packets with one of its own source addresses.
    pub own_addresses_only: bool,
    /// How the XDP programs may be attached.
    pub xdp: XdpMode,
    /// Zero-copy or copy mode.
    pub mode: Mode,
}

impl WireConfig {
    /// Creates a configuration with defaults: ARP passes, any source address is allowed, and the sockets
    /// use the best mode of the drivers.
    #[must_use]
    pub fn new(vm_if: impl Into<String>, switch_if: impl Into<String>, vm: VmRef) -> Self {
        let (vm_if, switch_if) = (vm_if.into(), switch_if.into());
        Self {
            name: vm_if.clone(),
            vm_if,
            switch_if,
            vm,
            others: UnownedPolicy::default(),
            own_addresses_only: false,
            xdp: XdpMode::default(),
            mode: Mode::default(),
        }
    }

    /// Returns the name of a side's interface.
    #[must_use]
    pub fn interface(&self, side: WireSide) -> &str {
        match side {
            WireSide::Vm => &self.vm_if,
            WireSide::Switch => &self.switch_if,
        }
    }
}

/// Whether the interfaces are closed to the host's own network stack; see [`p4shield_xdp::guard`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guard {
    /// The guard must be in place. If the kernel refuses it, the wire is not attached.
    #[default]
    Required,
    /// No guard: what the host's stack sends bypasses every program, and after the end of this process
    /// the stack receives what the VM sends.
    Off,
}

/// One thread with its UMEM, mediator and wires.
#[derive(Clone, Debug)]
pub struct LoopConfig {
    /// Name of the thread and in messages.
    pub name: String,
    /// The UMEM that all wires share.
    pub memory: UmemConfig,
    /// Entries of each ring of each socket, a power of two.
    pub ring: u32,
    /// Frames that may wait for a full transmit ring, for each queue. Further frames are dropped and
    /// counted.
    pub backlog: u32,
    /// Tenants and their VMs.
    pub mediator: p4shield_mediator::Config,
    /// Whether the host's own network stack is kept off the interfaces.
    pub guard: Guard,
    /// The network namespace of the interfaces (a file such as `/run/netns/x`); the caller's if `None`.
    pub netns: Option<PathBuf>,
    /// How long the thread polls for packets before it sleeps.
    pub wait: WaitPolicy,
}

impl LoopConfig {
    /// Creates a configuration with defaults for these tenants.
    #[must_use]
    pub fn new(name: impl Into<String>, mediator: p4shield_mediator::Config) -> Self {
        Self {
            name: name.into(),
            memory: UmemConfig::default(),
            ring: 512,
            backlog: 256,
            mediator,
            guard: Guard::default(),
            netns: None,
            wait: WaitPolicy { min_spins: 16, max_spins: 512, yields: 2 },
        }
    }

    /// Enlarges the UMEM, if necessary, for this many wires of one queue each, with room for
    /// [`SPARE`] more of them and as many more tenants: the UMEM cannot grow while the loop runs.
    #[must_use]
    pub fn for_wires(mut self, wires: usize) -> Self {
        let sockets = u32::try_from(2 * (wires + SPARE)).unwrap_or(u32::MAX);
        let largest = self.mediator.tenants.iter().map(|t| 2 * t.max_held as u64).max().unwrap_or(0);
        let need = self.frames_needed(sockets).saturating_add(SPARE as u64 * largest);
        self.memory.frames = self.memory.frames.max(u32::try_from(need).unwrap_or(u32::MAX));
        self
    }

    /// Returns the number of frames that `sockets` sockets need (two for each wire and queue), so that
    /// no tenant can take frames that another one needs: full fill and transmit rings and backlogs, and
    /// the most packets that every tenant's P4 VM may hold.
    #[must_use]
    pub fn frames_needed(&self, sockets: u32) -> u64 {
        let held: u64 = self.mediator.tenants.iter().map(|t| 2 * t.max_held as u64).sum();
        u64::from(sockets) * u64::from(2 * self.ring + self.backlog) + held + u64::from(BURST)
    }
}

/// Wires and tenants that may be added to a running loop. A larger change needs another loop.
pub const SPARE: usize = 4;
/// Frames taken from one queue before the next queue's turn.
pub const BURST: u32 = 64;
