//! What a loop and its wires are told.

use std::path::PathBuf;

use p4shield_afxdp::{Mode, UmemConfig};
use p4shield_channel::WaitPolicy;
use p4shield_mediator::{UnownedPolicy, VmRef};

use crate::system::xdp::XdpMode;

/// Which end of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Side {
    /// The VM's interface: what comes from there is egress of that VM.
    Vm = 0,
    /// The interface that leads to the switch: what comes from there is ingress.
    Switch = 1,
}

impl Side {
    /// Both, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Vm, Self::Switch];

    /// The one across.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Vm => Self::Switch,
            Self::Switch => Self::Vm,
        }
    }

    /// The word for it in metrics and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vm => "vm",
            Self::Switch => "switch",
        }
    }
}

/// One wire: two interfaces between which frames go only through us.
#[derive(Clone, Debug)]
pub struct WireConfig {
    /// Its name, for metrics and messages.
    pub name: String,
    /// The VM's interface on the host: the host's end of a veth pair, or a tap. It may come and go.
    pub vm_if: String,
    /// The interface that leads to the switch: one end of a veth pair whose other end is plugged in. It may come
    /// and go.
    pub switch_if: String,
    /// Whose wire it is.
    pub vm: VmRef,
    /// What becomes of frames that are of no VM: ARP above all.
    pub others: UnownedPolicy,
    /// Whether only packets with one of the VM's own source addresses may leave the VM.
    pub own_addresses_only: bool,
    /// How the XDP programs may be attached.
    pub xdp: XdpMode,
    /// Zero-copy or copy.
    pub mode: Mode,
}

impl WireConfig {
    /// A wire with the defaults: ARP passes, any source address, the best the drivers can do.
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

    /// The interface of a side.
    #[must_use]
    pub fn interface(&self, side: Side) -> &str {
        match side {
            Side::Vm => &self.vm_if,
            Side::Switch => &self.switch_if,
        }
    }
}

/// Whether interfaces are closed to the host's own network stack; see [`crate::system::guard`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guard {
    /// They must be: where the kernel cannot, the wire is not made.
    #[default]
    Required,
    /// They are not: what the host's stack sends goes past every program, and when our process dies its stack
    /// receives what the VM sends.
    Off,
}

/// One thread with its packet memory, mediator and wires.
#[derive(Clone, Debug)]
pub struct LoopConfig {
    /// Its name, for the thread and messages.
    pub name: String,
    /// The packet memory that all wires share.
    pub memory: UmemConfig,
    /// Entries of each ring of each socket, a power of two.
    pub ring: u32,
    /// Frames that wait for a full transmit ring, for each queue; beyond it they are dropped and counted.
    pub backlog: u32,
    /// Tenants and their VMs.
    pub mediator: p4shield_mediator::Config,
    /// Whether the host's own stack is kept off.
    pub guard: Guard,
    /// The network namespace that the interfaces are in (a file such as `/run/netns/x`); the caller's if none.
    pub netns: Option<PathBuf>,
    /// How long the thread looks for traffic before it sleeps.
    pub wait: WaitPolicy,
}

impl LoopConfig {
    /// A loop with the defaults, for these tenants.
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

    /// The same with packet memory for this many wires of one queue each at least (more if it was more).
    #[must_use]
    pub fn for_wires(mut self, wires: usize) -> Self {
        let sockets = u32::try_from(2 * wires).unwrap_or(u32::MAX);
        let need = u32::try_from(self.frames_needed(sockets)).unwrap_or(u32::MAX);
        self.memory.frames = self.memory.frames.max(need);
        self
    }

    /// Frames that must be there for `sockets` (two for each wire and queue), so that nobody, whatever he does, can
    /// take a frame that another needs: full fill and transmit rings and backlogs everywhere, and all that every
    /// tenant's P4 VM may hold.
    #[must_use]
    pub fn frames_needed(&self, sockets: u32) -> u64 {
        let held: u64 = self.mediator.tenants.iter().map(|t| 2 * t.max_held as u64).sum();
        u64::from(sockets) * u64::from(2 * self.ring + self.backlog) + held + u64::from(BURST)
    }
}

/// Frames that are taken from one queue before it is the next one's turn.
pub const BURST: u32 = 64;
