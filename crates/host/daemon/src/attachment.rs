//! The interface between the daemon and an attachment.
//!
//! `wire` implements it for wires, `switches` for switches that a library is preloaded into. The supervisor
//! of each P4 VM (`supervisor`) uses it to connect channels.

use crate::config::Config;
use crate::status::problem::Problem;
use crate::status::totals::Totals;
use crate::status::{PortStatus, SwitchStatus, WireStatus};
use p4shield_abi::channel::Geometry;
use p4shield_channel::{ChannelError, Doorbell, Requester, SharedMemory};
use p4shield_control::{ClientError, Reply, Request, Resources, SocketError};
use p4shield_mediator::P4VmChannel;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Identifies a lane: a mediator with a channel of its own to each tenant's P4 VM. The loop of all wires is
/// one lane; in a switch with a preloaded library, each direction of each queue of a port is one. Never used
/// twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneKey(pub u64);

/// Identifies a switch that runs programs itself (placement `inline`). Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SwitchKey(pub u64);

/// A control request to a switch that runs programs itself, as a P4 VM would receive it.
#[derive(Debug)]
pub struct InlineRequest<'a> {
    /// Index of the tenant.
    pub tenant: usize,
    /// The digest of the program to load, which a P4 VM has verified.
    pub approved: Option<[u8; 32]>,
    /// What programs see of a packet.
    pub geometry: Geometry,
    /// The request.
    pub request: Request,
    /// The resources that it names.
    pub resources: &'a Resources<'a>,
    /// Longest time for the reply.
    pub timeout: Duration,
}

/// The mediator's end of a new channel.
#[derive(Debug)]
pub struct ChannelEnd {
    /// The daemon's number for the channel, unique for a tenant.
    pub number: u32,
    /// The channel's memory.
    pub memory: SharedMemory,
    /// The channel's geometry.
    pub geometry: Geometry,
    /// The mediator's end of the doorbell.
    pub doorbell: Doorbell,
    /// Whether the P4 VM reads headers from the lane's packet memory; otherwise the mediator copies them.
    pub zero_copy: bool,
}

impl ChannelEnd {
    /// Converts the end for a mediator in this process.
    ///
    /// # Errors
    /// The memory does not fit the geometry.
    pub fn into_channel(self) -> Result<P4VmChannel, ChannelError> {
        Ok(P4VmChannel { requester: Requester::new(self.memory, self.geometry)?, doorbell: self.doorbell })
    }
}

/// The file behind a switch's packet memory.
#[derive(Clone, Debug)]
pub struct PacketMemoryFile {
    /// The file.
    pub memory: Arc<OwnedFd>,
    /// Length of the memory in bytes.
    pub len: u64,
}

/// The switches that libraries are preloaded into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchesStatus {
    /// Those that are connected.
    pub connected: Vec<SwitchStatus>,
    /// Ports that the configuration names and none of them has.
    pub absent: Vec<PortStatus>,
    /// What is wrong.
    pub problems: Vec<Problem>,
}

/// The switch side: mediators and what feeds them. All methods may be called from any thread; none is called
/// per packet.
pub trait Attachment: Send + Sync {
    /// Checks whether a configuration can be applied.
    ///
    /// # Errors
    /// Reason why it cannot, with a remedy.
    fn check(&self, _config: &Config) -> Result<(), String> {
        Ok(())
    }

    /// Returns what a configuration would name that is absent, and the other way round.
    fn preview(&self, _config: &Config) -> Vec<Problem> {
        Vec::new()
    }

    /// Applies a configuration: tenants, VMs, addresses, policies, ports and wires. Tenants and VMs that keep
    /// number and name keep their channels and held packets.
    ///
    /// # Errors
    /// Reason why a part of it could not be applied.
    fn reconfigure(&self, config: &Config) -> Result<(), String>;

    /// Returns the present lanes. Each gets a channel to every tenant's P4 VM.
    fn lanes(&self) -> Vec<LaneKey>;

    /// Registers a function to call whenever lanes or faults may have changed.
    fn on_change(&self, wake: Box<dyn Fn() + Send + Sync>);

    /// Returns the memory that a lane's packets are in, if it holds packets of this tenant only, so that the
    /// tenant's P4 VM may read it.
    fn packet_memory(&self, _lane: LaneKey, _tenant: usize) -> Option<PacketMemoryFile> {
        None
    }

    /// Gives a lane a channel to a tenant's P4 VM. It replaces the previous channel.
    ///
    /// # Errors
    /// The attachment has ended. A lane that is gone meanwhile is no error.
    fn attach_channel(&self, lane: LaneKey, tenant: usize, end: ChannelEnd) -> Result<(), String>;

    /// Keeps the channel to a tenant's P4 VM that a lane has from the daemon before, if `serves` says of its
    /// number that the P4 VM serves it. Returns the number; `None`: the lane needs another channel.
    fn keep_channel(&self, _lane: LaneKey, _tenant: usize, _serves: &dyn Fn(u32) -> bool) -> Option<u32> {
        None
    }

    /// Removes all channels to a tenant's P4 VM and clears their faults. A tenant of a change that was undone
    /// has none.
    fn detach_channels(&self, tenant: usize);

    /// Returns why a mediator gave up a lane's channel to this tenant's P4 VM, until that channel is
    /// replaced.
    fn fault(&self, tenant: usize) -> Option<String>;

    /// Returns the cores to which polling threads of switches are bound.
    fn polling_cores(&self) -> BTreeSet<u32> {
        BTreeSet::new()
    }

    /// Returns the counters of all lanes since the attachment started.
    fn totals(&self) -> Totals;

    /// Returns the switches that run programs themselves.
    fn inline_switches(&self) -> Vec<SwitchKey> {
        Vec::new()
    }

    /// Sends a control request to such a switch and waits for the reply.
    ///
    /// # Errors
    /// Those of a P4 VM's control socket; [`SocketError::Closed`] if the switch is gone.
    fn request_inline(&self, _switch: SwitchKey, _request: InlineRequest<'_>) -> Result<Reply, ClientError> {
        Err(SocketError::Closed.into())
    }

    /// Activates the programs that such a switch received since the last `Hello`.
    fn activate_inline(&self, _switch: SwitchKey, _tenant: usize) {}

    /// Ends the attachment, its files and its processes, while threads that answer a request may still have
    /// it.
    fn stop(&self) {}

    /// Returns the status of the wires.
    fn wires(&self) -> Vec<WireStatus> {
        Vec::new()
    }

    /// Returns the status of the switches that libraries are preloaded into, and what is wrong with them.
    fn switches(&self) -> SwitchesStatus {
        SwitchesStatus::default()
    }
}
