//! What library and daemon say to each other.
//!
//! One message is one packet of a `SOCK_SEQPACKET` socket, with the descriptors that its variant
//! calls for, in the encoding of the P4 VM's control protocol ([`p4shield_control`]). The library
//! speaks first ([`Report::Hello`]), the daemon answers with [`Order::Setup`]; after that each says
//! what happens when it happens. Nothing is answered, so nobody waits. Numbers of ports and lanes
//! are the library's and are never used twice in one session.

mod count;

pub use count::{Count, UnownedCounts};

use p4shield_config::{MAX_TUNNELS, Role, Tunnel};
use p4shield_control::{DecodeError, Envelope, Reply, Request, SocketError, WireGeometry};
use p4shield_mediator::VmRef;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the messages. Library and daemon are installed together; a mismatch means that one of
/// them still runs.
pub const VERSION: u32 = 6;
/// The most bytes of a name or a sentence in a message.
pub const MAX_TEXT: usize = 1024;
/// The most other names of a port.
pub const MAX_ALIASES: usize = 16;
/// The most [`Count`]s of a message.
pub const MAX_COUNTS: usize = 128;
/// The most ports, and the most lanes, of one switch.
pub const MAX_EACH: usize = 4096;

/// A port of a switch, by the library's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PortId(pub u32);

/// A lane of a switch, by the library's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LaneId(pub u32);

/// Which packets of a queue a lane has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Facing {
    /// Those that the switch receives.
    #[default]
    Receive,
    /// Those that the switch sends.
    Transmit,
}

impl Facing {
    /// Both, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Receive, Self::Transmit];
}

/// What kind of switch a library is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// One that uses DPDK.
    Dpdk,
    /// One that uses AF_XDP.
    Xsk,
}

impl Kind {
    /// Its word in status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dpdk => "dpdk",
            Self::Xsk => "xsk",
        }
    }
}

/// A port, as its library sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortInfo {
    /// What the switch calls it: a DPDK device, the path of a vhost-user socket, a network interface.
    pub name: String,
    /// What else it may be known by.
    pub aliases: Vec<String>,
    /// What programs see as `input_port`.
    pub number: u32,
}

impl PortInfo {
    /// Its names, the first one first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.name).chain(&self.aliases).map(String::as_str)
    }
}

/// Something that an operator has to know of a port or a switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Remark {
    /// Packets can go round the programs: what lets them, and what to do.
    Bypass(String),
    /// No packet of this port is mediated: why, and what to do.
    Unmediated(String),
    /// Something else.
    Note(String),
}

impl Remark {
    /// The sentence.
    #[must_use]
    pub fn text(&self) -> &str {
        let (Self::Bypass(text) | Self::Unmediated(text) | Self::Note(text)) = self;
        text
    }
}

/// What a port is, as a message carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PortRole {
    /// A VM's.
    Vm {
        /// Index of the tenant.
        tenant: u16,
        /// Index of the VM.
        vm: u16,
    },
    /// The world's.
    Uplink,
    /// Anybody's.
    Shared,
}

impl From<Role> for PortRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Vm(VmRef { tenant, vm }) => Self::Vm { tenant, vm },
            Role::Uplink => Self::Uplink,
            Role::Shared => Self::Shared,
        }
    }
}

impl From<PortRole> for Role {
    fn from(role: PortRole) -> Self {
        match role {
            PortRole::Vm { tenant, vm } => Self::Vm(VmRef { tenant, vm }),
            PortRole::Uplink => Self::Uplink,
            PortRole::Shared => Self::Shared,
        }
    }
}

/// Packet memory that a switch lets one tenant's P4 VM read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketMemory {
    /// The tenant's name: all packets in it come from its VMs, or go to them.
    pub tenant: String,
    /// Its bytes.
    pub len: u64,
}

/// What a library says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The first message.
    Hello {
        /// [`VERSION`] of the library.
        version: u32,
        /// A random number that stays for the life of the switch's process: what was counted before
        /// a connection broke is not counted again.
        session: u64,
        /// What the library is in.
        kind: Kind,
        /// What the switch calls itself.
        application: String,
    },
    /// There is a port, or it is another now.
    PortUp {
        /// Its number.
        port: PortId,
        /// What it is.
        info: PortInfo,
    },
    /// A port is gone, with its lanes and remarks.
    PortDown {
        /// Its number.
        port: PortId,
    },
    /// A queue is mediated, and wants a channel to each tenant's P4 VM. Descriptor: the packet
    /// memory, if there is one to be handed over.
    LaneUp {
        /// Its number.
        lane: LaneId,
        /// The port that it belongs to.
        port: PortId,
        /// The queue's number at the port.
        queue: u32,
        /// Which of its packets.
        facing: Facing,
        /// The memory that they are in, if a P4 VM may read it.
        packets: Option<PacketMemory>,
    },
    /// A queue is mediated no longer.
    LaneDown {
        /// Its number.
        lane: LaneId,
    },
    /// The mediator took a channel away.
    Fault {
        /// The lane.
        lane: LaneId,
        /// Index of the tenant.
        tenant: u16,
        /// The channel's number, as [`Order::Channel`] gave it.
        channel: u32,
        /// Why.
        why: String,
    },
    /// What happened to packets; counts that are not there are as they were.
    Counts {
        /// The lane.
        lane: LaneId,
        /// At most [`MAX_COUNTS`].
        counts: Vec<Count>,
        /// Packets of nobody.
        unowned: UnownedCounts,
    },
    /// The answer to [`Order::Programs`].
    Programs {
        /// Its number.
        id: u32,
        /// As a P4 VM would answer.
        reply: Box<Reply>,
    },
    /// Something to know.
    Remark {
        /// Of which port; none: of the whole switch.
        port: Option<PortId>,
        /// What.
        remark: Remark,
    },
}

impl Report {
    /// Descriptors that come with it.
    #[must_use]
    pub const fn descriptors(&self) -> usize {
        matches!(self, Self::LaneUp { packets: Some(_), .. }) as usize
    }

    /// The same of a lane whose packet memory nobody is handed.
    pub(crate) fn without_packets(self) -> Self {
        match self {
            Self::LaneUp { lane, port, queue, facing, .. } => {
                Self::LaneUp { lane, port, queue, facing, packets: None }
            }
            other => other,
        }
    }
}

/// What the daemon says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// The first message. Descriptor: memory that holds a [`crate::Setup`].
    Setup {
        /// [`VERSION`] of the daemon.
        version: u32,
        /// Bytes of it.
        len: u32,
    },
    /// What a port is.
    Role {
        /// Its number.
        port: PortId,
        /// What it is.
        role: PortRole,
    },
    /// A lane's channel to a tenant's P4 VM. Descriptors: its memory, the mediator's end of its doorbell.
    Channel {
        /// The lane.
        lane: LaneId,
        /// Index of the tenant.
        tenant: u16,
        /// The daemon's number for it.
        channel: u32,
        /// Its geometry.
        geometry: WireGeometry,
        /// Whether the P4 VM reads headers from the packet memory that came with
        /// [`Report::LaneUp`]; else they are copied.
        zero_copy: bool,
    },
    /// A lane has no channel to this tenant's P4 VM any more.
    NoChannel {
        /// The lane.
        lane: LaneId,
        /// Index of the tenant.
        tenant: u16,
    },
    /// For the placement `inline`: what a tenant's P4 VM would be asked. A [`Request::Hello`]
    /// begins anew, beside what judges until [`Order::Judge`]. Descriptors: those of the request.
    /// The one order that is answered.
    Programs {
        /// Index of the tenant.
        tenant: u16,
        /// Repeated by the answer.
        id: u32,
        /// The digest of the program that is to be loaded: a verifier has accepted it.
        approved: Option<[u8; 32]>,
        /// Geometry of what programs see of a packet, as over a channel.
        geometry: WireGeometry,
        /// What is asked.
        request: Request,
    },
    /// For the placement `inline`: what was begun anew has all its programs, and judges from now on.
    Judge {
        /// Index of the tenant.
        tenant: u16,
    },
    /// The daemon hangs up.
    Refused {
        /// Why, and what to do.
        why: String,
    },
    /// Where the switch ends tunnels itself: all end points, in the place of those that were known.
    Tunnels {
        /// At most [`MAX_TUNNELS`].
        end_points: Vec<Tunnel>,
    },
}

impl Order {
    /// Descriptors that come with it.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        match self {
            Self::Setup { .. } => 1,
            Self::Channel { .. } => 2,
            Self::Programs { request, .. } => request.descriptors(),
            Self::Judge { .. }
            | Self::Role { .. }
            | Self::NoChannel { .. }
            | Self::Refused { .. }
            | Self::Tunnels { .. } => 0,
        }
    }
}

/// Why a message is not one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// It is not in the encoding.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// Something in it is longer than it may be.
    #[error("a message holds more {0} than it may")]
    TooMuch(&'static str),
    /// It came with other descriptors than it calls for.
    #[error("{due} descriptors are due with a message, {got} came")]
    Descriptors {
        /// How many it calls for.
        due: usize,
        /// How many came.
        got: usize,
    },
}

/// Encodes a [`Report`] or an [`Order`].
///
/// # Errors
/// It is too long.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, SocketError> {
    p4shield_control::encode(&Envelope { id: 0, body: message })
}

fn decode<T: DeserializeOwned>(
    bytes: &[u8],
    descriptors: usize,
    due: fn(&T) -> usize,
) -> Result<T, MessageError> {
    let message = p4shield_control::decode::<T>(bytes)?.body;
    let due = due(&message);
    if due == descriptors { Ok(message) } else { Err(MessageError::Descriptors { due, got: descriptors }) }
}

fn text(text: &str) -> Result<(), MessageError> {
    if text.len() <= MAX_TEXT { Ok(()) } else { Err(MessageError::TooMuch("text")) }
}

/// Decodes what a library says. Entry point of fuzzing.
///
/// # Errors
/// It is no report within the bounds.
pub fn decode_report(bytes: &[u8], descriptors: usize) -> Result<Report, MessageError> {
    let report = decode(bytes, descriptors, Report::descriptors)?;
    match &report {
        Report::Hello { application, .. } => text(application)?,
        Report::PortUp { info, .. } => {
            if info.aliases.len() > MAX_ALIASES {
                return Err(MessageError::TooMuch("names"));
            }
            info.names().try_for_each(text)?;
        }
        Report::Fault { why, .. } => text(why)?,
        Report::Remark { remark, .. } => text(remark.text())?,
        Report::Counts { counts, .. } if counts.len() > MAX_COUNTS => {
            return Err(MessageError::TooMuch("counts"));
        }
        // Bounded by the message's own length, as a P4 VM's answers are.
        Report::Programs { .. } => {}
        Report::LaneUp { packets, .. } => packets.iter().try_for_each(|p| text(&p.tenant))?,
        Report::Counts { .. } | Report::PortDown { .. } | Report::LaneDown { .. } => {}
    }
    Ok(report)
}

/// Decodes what a daemon says. Entry point of fuzzing.
///
/// # Errors
/// It is no order within the bounds.
pub fn decode_order(bytes: &[u8], descriptors: usize) -> Result<Order, MessageError> {
    let order = decode(bytes, descriptors, Order::descriptors)?;
    match &order {
        Order::Refused { why } => text(why)?,
        Order::Tunnels { end_points } if end_points.len() > MAX_TUNNELS => {
            return Err(MessageError::TooMuch("tunnels"));
        }
        _ => {}
    }
    Ok(order)
}

/// Cuts a text to what a message may hold.
pub(crate) fn cut(text: &str) -> String {
    text.char_indices().take_while(|(at, c)| at + c.len_utf8() <= MAX_TEXT).map(|(_, c)| c).collect()
}

#[cfg(test)]
mod tests;
