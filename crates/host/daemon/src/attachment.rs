//! What the daemon needs of an attachment, whichever it is.

use crate::totals::Totals;
use p4shield_abi::channel::Geometry;
use p4shield_channel::{ChannelError, Doorbell, Requester, SharedMemory};
use p4shield_control::{ClientError, Reply, Request, SocketError};
use p4shield_mediator::P4VmChannel;
use serde::{Deserialize, Serialize};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// A lane: a mediator that has a channel of its own to each tenant's P4 VM. The loop of all wires is one, and so is each
/// queue of each port of a switch that a library is preloaded into. The attachment's number, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneKey(pub u64);

/// A switch that runs programs itself (placement `inline`). The attachment's number, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SwitchKey(pub u64);

/// What such a switch is asked, as a P4 VM would be.
#[derive(Debug)]
pub struct Ask<'a> {
    /// Index of the tenant.
    pub tenant: usize,
    /// The digest of the program that is to be loaded, which a verifier accepted.
    pub approved: Option<[u8; 32]>,
    /// What programs see of a packet.
    pub geometry: Geometry,
    /// What is asked.
    pub request: Request,
    /// What comes with it.
    pub descriptors: &'a [BorrowedFd<'a>],
    /// How long an answer may take.
    pub timeout: Duration,
}

/// The mediator's end of a fresh channel.
#[derive(Debug)]
pub struct ChannelEnd {
    /// The daemon's number for the channel, unique for a tenant.
    pub number: u32,
    /// Its memory.
    pub memory: SharedMemory,
    /// Its geometry.
    pub geometry: Geometry,
    /// The end of its doorbell.
    pub doorbell: Doorbell,
    /// Whether the P4 VM reads headers from the lane's packet memory; else they are copied.
    pub zero_copy: bool,
}

impl ChannelEnd {
    /// For a mediator in this process.
    ///
    /// # Errors
    /// The memory does not fit the geometry.
    pub fn into_link(self) -> Result<P4VmChannel, ChannelError> {
        Ok(P4VmChannel { requester: Requester::new(self.memory, self.geometry)?, doorbell: self.doorbell })
    }
}

/// A switch's packet memory.
#[derive(Clone, Debug)]
pub struct Packets {
    /// The memory.
    pub memory: Arc<OwnedFd>,
    /// Its bytes.
    pub len: u64,
}

/// The switch side: mediators and what feeds them. All methods may be called from any thread; none is called for a
/// packet.
pub trait Attachment: Send + Sync {
    /// The lanes that there are. Each wants a channel to every tenant's P4 VM.
    fn lanes(&self) -> Vec<LaneKey>;

    /// Has `wake` called whenever there may be other lanes or a fault.
    fn on_change(&self, wake: Box<dyn Fn() + Send + Sync>);

    /// The memory that a lane's packets are in, if this tenant's P4 VM may read it: nobody else's packets are there.
    fn packets(&self, _lane: LaneKey, _tenant: usize) -> Option<Packets> {
        None
    }

    /// Gives a lane a channel to a tenant's P4 VM, in place of the one that it has.
    ///
    /// # Errors
    /// The attachment has ended. A lane that is gone meanwhile is no error.
    fn attach(&self, lane: LaneKey, tenant: usize, end: ChannelEnd) -> Result<(), String>;

    /// Takes all channels to a tenant's P4 VM away, and forgets its faults.
    fn detach(&self, tenant: usize);

    /// Why a lane's channel to this tenant's P4 VM was taken away by its mediator, if one was and has not been replaced.
    fn fault(&self, tenant: usize) -> Option<String>;

    /// What happened to packets, in all lanes since the attachment began.
    fn totals(&self) -> Totals;

    /// The switches that run programs themselves.
    fn inline(&self) -> Vec<SwitchKey> {
        Vec::new()
    }

    /// Asks such a switch, and waits for the answer.
    ///
    /// # Errors
    /// As of a P4 VM; a switch that is gone is [`SocketError::Closed`].
    fn ask(&self, _switch: SwitchKey, _ask: Ask<'_>) -> Result<Reply, ClientError> {
        Err(SocketError::Closed.into())
    }

    /// Has such a switch judge with the programs that it was given since it was last greeted.
    fn judge(&self, _switch: SwitchKey, _tenant: usize) {}

    /// How its wires are.
    fn wires(&self) -> Vec<WireStatus> {
        Vec::new()
    }

    /// How the switches are that libraries are preloaded into, and what is wrong with them.
    fn switches(&self) -> Switches {
        Switches::default()
    }
}

/// Switches that libraries are preloaded into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Those that are connected.
    pub connected: Vec<SwitchStatus>,
    /// What is wrong, and what to do.
    pub advice: Vec<String>,
}

/// How a wire is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireStatus {
    /// Its name: its VM's interface.
    pub name: String,
    /// The VM's side.
    pub vm: SideStatus,
    /// The switch's side.
    pub switch: SideStatus,
}

/// How one side of a wire is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideStatus {
    /// Its interface.
    pub interface: String,
    /// Whether packets are received and sent there.
    pub up: bool,
    /// What is wrong or to be known.
    pub remark: Option<String>,
    /// Frames received.
    pub rx_packets: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Frames dropped because there was no room or no interface to send them.
    pub tx_dropped: u64,
}

/// How a switch is that a library is preloaded into.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchStatus {
    /// `dpdk` or `xsk`.
    pub kind: String,
    /// What it calls itself.
    pub application: String,
    /// Its process.
    pub pid: i32,
    /// The user that it runs as.
    pub uid: u32,
    /// How packets of any port can go round the programs.
    pub bypasses: Vec<String>,
    /// What else there is to know.
    pub notes: Vec<String>,
    /// Its ports.
    pub ports: Vec<PortStatus>,
}

/// How a port of such a switch is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatus {
    /// What the library calls it.
    pub name: String,
    /// What Open vSwitch calls it, if its database knows it.
    pub interface: Option<String>,
    /// What programs see as `input_port`.
    pub number: u32,
    /// Whether its packets are mediated.
    pub mediated: bool,
    /// Why they are not.
    pub why: Option<String>,
    /// `vm`, `uplink` or `shared`.
    pub role: String,
    /// The tenant whose it is, if it is a VM's.
    pub tenant: Option<String>,
    /// The VM whose it is.
    pub vm: Option<String>,
    /// Queues where what the switch receives is mediated.
    pub queues: usize,
    /// Queues where what the switch sends is mediated, too.
    pub transmit_queues: usize,
    /// How many of both, taken together, have a P4 VM that reads packets where the switch has them.
    #[serde(default)]
    pub zero_copy_queues: usize,
    /// How packets of this port can go round the programs.
    pub bypasses: Vec<String>,
    /// What else there is to know.
    pub notes: Vec<String>,
}
