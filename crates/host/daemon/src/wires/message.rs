//! Messages between the daemon and the process that serves the wires.
//!
//! They use the sockets and the encoding of the protocol with P4 VMs, and its version. Both processes are of
//! one release, or of two that have the same version.

use crate::config::{Config, Wire};
use crate::status::WireStatus;
use p4shield_abi::{UnownedPolicy, VmRef};
use p4shield_attach::{Count, Setup, UnownedCounts};
use p4shield_attach_wire::WireConfig;
use p4shield_control::WireGeometry;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;

/// Most bytes of a setup.
const MAX_SETUP: u64 = 32 << 20;
/// Most wires, and most counts, of one reply.
pub(super) const PART: usize = 128;

/// What the daemon requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum WiresRequest {
    /// First message. Descriptors: memory with a [`WiresSetup`], the door.
    Start,
    /// First message of the next daemon. Descriptor: standard error from now on.
    Adopt {
        /// Version of the protocol.
        version: u32,
    },
    /// How long the process goes on without a daemon, milliseconds.
    SetPatience { ms: u32 },
    /// Whether a setup can be applied. Descriptor: memory with it.
    Check,
    /// Applies a setup. Descriptor: memory with it.
    Reconfigure,
    /// Gives the loop a channel. Descriptors: its memory, the mediator's end of its doorbell.
    AttachChannel { tenant: u32, number: u32, geometry: WireGeometry },
    /// Removes the channel to a tenant's P4 VM and clears its fault.
    DetachChannel { tenant: u32 },
    /// Reason why the mediator gave up a channel.
    Fault { tenant: u32 },
    /// Counters of VMs, from this one on in the order of tenants, VMs and directions.
    Counts { skip: u32 },
    /// Status of wires, from this one on.
    Wires { skip: u32 },
    /// Detaches all wires and ends.
    Stop,
}

impl WiresRequest {
    /// Returns the number of descriptors that come with the request.
    pub(super) const fn descriptors(&self) -> usize {
        match self {
            Self::Start | Self::AttachChannel { .. } => 2,
            Self::Adopt { .. } | Self::Check | Self::Reconfigure => 1,
            _ => 0,
        }
    }
}

/// What the process replies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum WiresReply {
    Done,
    Failed(String),
    /// To `Adopt`: the channels that work, by tenant.
    Adopted(Vec<(u32, u32)>),
    Fault(Option<String>),
    /// To `Counts`: at most [`PART`]; fewer: there are no more.
    Counts(Vec<Count>, UnownedCounts),
    /// To `Wires`: at most [`PART`]; fewer: there are no more.
    Wires(Vec<WireStatus>),
}

/// What the process must know of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WiresSetup {
    pub(super) tenants: Setup,
    pub(super) guard: bool,
    pub(super) wires: Vec<WireSetup>,
}

/// A wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WireSetup {
    vm_interface: String,
    switch_interface: String,
    tenant: u16,
    vm: u16,
    others_pass: bool,
    own_addresses_only: bool,
}

impl WireSetup {
    /// Returns the names of the interfaces, which tell it from other wires.
    pub(super) fn ends(&self) -> (&str, &str) {
        (&self.vm_interface, &self.switch_interface)
    }

    /// Returns the configuration for the loop.
    pub(super) fn config(&self) -> WireConfig {
        let vm = VmRef { tenant: self.tenant, vm: self.vm };
        WireConfig {
            others: if self.others_pass { UnownedPolicy::Pass } else { UnownedPolicy::Drop },
            own_addresses_only: self.own_addresses_only,
            ..WireConfig::new(&self.vm_interface, &self.switch_interface, vm)
        }
    }
}

impl From<&Wire> for WireSetup {
    fn from(wire: &Wire) -> Self {
        Self {
            vm_interface: wire.vm_interface.clone(),
            switch_interface: wire.switch_interface.clone(),
            tenant: wire.vm.tenant,
            vm: wire.vm.vm,
            others_pass: wire.others == UnownedPolicy::Pass,
            own_addresses_only: wire.own_addresses_only,
        }
    }
}

impl From<&Config> for WiresSetup {
    fn from(config: &Config) -> Self {
        let wires = config.wires.iter().map(WireSetup::from).collect();
        Self { tenants: Setup::from(config), guard: config.daemon.guard, wires }
    }
}

impl WiresSetup {
    /// Returns memory with the setup: with many VMs it is too long for a message.
    pub(super) fn to_memory(&self) -> io::Result<OwnedFd> {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let mut file = std::fs::File::from(rustix::fs::memfd_create("p4shield-wires", flags)?);
        file.write_all(&serde_json::to_vec(self)?)?;
        Ok(file.into())
    }

    /// Reads a setup from memory.
    pub(super) fn from_memory(memory: OwnedFd) -> io::Result<Self> {
        let mut file = std::fs::File::from(memory);
        file.rewind()?;
        let mut text = Vec::new();
        file.take(MAX_SETUP).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}
