//! Messages between a switch's library and the daemon.
//!
//! One message is one packet of a `SOCK_SEQPACKET` socket, with the descriptors that its variant
//! calls for, in the encoding of the P4 VM's control protocol ([`p4shield_control`]). The library
//! sends [`LibraryMessage::Hello`], the daemon answers with [`DaemonMessage::Setup`]; after that
//! each side reports events as they happen. Only [`DaemonMessage::Programs`] has a reply, so
//! neither side waits. The library chooses the numbers of ports and lanes, and uses none twice in
//! one session.

mod count;

pub use count::{Count, UnownedCounts};

use p4shield_config::{MAX_TUNNELS, Role, Tunnel};
use p4shield_control::{DecodeError, Envelope, Reply, Request, SocketError, WireGeometry};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the messages and of what they carry. Each change of a layout changes it, and the daemon
/// refuses a library with another one. Libraries of other releases with the same version work.
pub const VERSION: u32 = 11;
/// The most bytes of a name or a sentence in a message.
pub const MAX_TEXT: usize = 1024;
/// The most other names of a port.
pub const MAX_ALIASES: usize = 16;
/// The most [`Count`]s of a message.
pub const MAX_COUNTS: usize = 128;
/// The most [`HeldChannel`]s of a message.
pub const MAX_HELD: usize = 4096;
/// The most cores of a message.
pub const MAX_CORES: usize = 1024;
/// The most ports, and the most lanes, of one switch.
pub const MAX_EACH: usize = 4096;

/// A port of a switch, by the library's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PortId(pub u32);

/// A lane of a switch, by the library's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LaneId(pub u32);

/// The packets of a queue that a lane mediates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueSide {
    /// Packets that the switch receives.
    #[default]
    Receive,
    /// Packets that the switch sends.
    Transmit,
}

impl QueueSide {
    /// Both sides, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Receive, Self::Transmit];
}

/// Kind of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A DPDK switch.
    Dpdk,
    /// An AF_XDP switch.
    Xsk,
}

impl Kind {
    /// Returns the kind's word in status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dpdk => "dpdk",
            Self::Xsk => "xsk",
        }
    }
}

/// Description of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortInfo {
    /// The switch's name for it: a DPDK device, the path of a vhost-user socket, a network interface.
    pub name: String,
    /// Other names.
    pub aliases: Vec<String>,
    /// The number that programs read as `input_port`.
    pub number: u32,
}

impl PortInfo {
    /// Returns all names; the first is [`Self::name`].
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.name).chain(&self.aliases).map(String::as_str)
    }
}

/// A notice for the operator about a port or a switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Notice {
    /// Packets may bypass the programs: the cause and the remedy.
    Bypass(String),
    /// No packet of this port is mediated; without a port, none of some socket of the switch: the reason and
    /// the remedy.
    Unmediated(String),
    /// Anything else.
    Note(String),
}

impl Notice {
    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &str {
        let (Self::Bypass(text) | Self::Unmediated(text) | Self::Note(text)) = self;
        text
    }
}

/// Packet memory that a switch lets one tenant's P4 VM read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketMemory {
    /// The tenant's name: all packets in the memory come from its VMs or go to them.
    pub tenant: String,
    /// Bytes of the memory.
    pub len: u64,
}

/// A channel that a lane has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldChannel {
    /// Index of the tenant.
    pub tenant: u16,
    /// The channel's number, as [`DaemonMessage::Channel`] gave it.
    pub channel: u32,
    /// Whether the P4 VM reads headers from the lane's packet memory.
    pub zero_copy: bool,
}

/// A message from a library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LibraryMessage {
    /// The first message.
    Hello {
        /// [`VERSION`] of the library.
        version: u32,
        /// A random number that stays for the life of the switch's process, so that the daemon
        /// counts no packet twice after a reconnection.
        session: u64,
        /// The kind of the switch.
        kind: Kind,
        /// The switch's program name.
        application: String,
        /// The release of the library.
        release: String,
    },
    /// A port appeared, or its description changed.
    PortUp {
        /// Its number.
        port: PortId,
        /// Its description.
        info: PortInfo,
    },
    /// A port disappeared, with its notices.
    PortDown {
        /// Its number.
        port: PortId,
    },
    /// A queue is mediated and needs a channel to each tenant's P4 VM. Descriptor: the packet memory, if
    /// `packets` is set.
    LaneUp {
        /// Its number.
        lane: LaneId,
        /// The port that it belongs to.
        port: PortId,
        /// The queue's number at the port.
        queue: u32,
        /// The side of the queue.
        facing: QueueSide,
        /// The packets' memory, if a P4 VM may read it.
        packets: Option<PacketMemory>,
        /// The channels that the lane has since a previous connection. At most [`MAX_HELD`].
        held: Vec<HeldChannel>,
    },
    /// A queue is no longer mediated.
    LaneDown {
        /// Its number.
        lane: LaneId,
    },
    /// The mediator detached a channel.
    Fault {
        /// The lane.
        lane: LaneId,
        /// Index of the tenant.
        tenant: u16,
        /// The channel's number, as [`DaemonMessage::Channel`] gave it.
        channel: u32,
        /// The reason.
        why: String,
    },
    /// Packet counts; counts that are missing did not change.
    Counts {
        /// The lane.
        lane: LaneId,
        /// At most [`MAX_COUNTS`].
        counts: Vec<Count>,
        /// Counts of unowned packets.
        unowned: UnownedCounts,
    },
    /// All cores to which threads that poll lanes are bound; they replace the previous ones.
    Polling {
        /// At most [`MAX_CORES`].
        cores: Vec<u32>,
    },
    /// The reply to [`DaemonMessage::Programs`].
    Programs {
        /// The request's number.
        id: u32,
        /// The reply, as a P4 VM would send it.
        reply: Box<Reply>,
    },
    /// A notice for the operator.
    Notice {
        /// The port; `None` for the whole switch.
        port: Option<PortId>,
        /// The notice.
        notice: Notice,
    },
}

impl LibraryMessage {
    /// Returns the number of descriptors that the message carries.
    #[must_use]
    pub const fn descriptors(&self) -> usize {
        matches!(self, Self::LaneUp { packets: Some(_), .. }) as usize
    }

    /// Returns the message without packet memory.
    pub(crate) fn without_packets(self) -> Self {
        match self {
            Self::LaneUp { lane, port, queue, facing, held, .. } => {
                Self::LaneUp { lane, port, queue, facing, packets: None, held }
            }
            other => other,
        }
    }
}

/// A message from the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DaemonMessage {
    /// The first message, and again whenever the tenants or the configured ports change. Descriptor:
    /// memory that holds a [`crate::Setup`].
    Setup {
        /// [`VERSION`] of the daemon.
        version: u32,
        /// Bytes of the setup.
        len: u32,
    },
    /// The role of a port.
    Role {
        /// Its number.
        port: PortId,
        /// Its role.
        role: Role,
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
        /// Whether the P4 VM reads headers from the packet memory of [`LibraryMessage::LaneUp`];
        /// else the mediator copies them.
        zero_copy: bool,
    },
    /// Detaches a lane's channel to a tenant's P4 VM.
    NoChannel {
        /// The lane.
        lane: LaneId,
        /// Index of the tenant.
        tenant: u16,
    },
    /// Placement `inline`: a request to a tenant's programs in the switch. A [`Request::Hello`]
    /// creates new programs beside the active ones, which stay active until
    /// [`DaemonMessage::Judge`]. Descriptors: the resources of the request. The library replies to this
    /// message only.
    Programs {
        /// Index of the tenant.
        tenant: u16,
        /// Number that the reply repeats.
        id: u32,
        /// Digest of the program to load, which a verifier accepted.
        approved: Option<[u8; 32]>,
        /// Bytes of a packet that programs see, as over a channel.
        geometry: WireGeometry,
        /// The request.
        request: Request,
    },
    /// Placement `inline`: activates the new programs of a tenant.
    Judge {
        /// Index of the tenant.
        tenant: u16,
    },
    /// The daemon closes the connection.
    Refused {
        /// The reason and the remedy.
        why: String,
    },
    /// All endpoints of tunnels that the switch terminates; they replace the previous ones.
    Tunnels {
        /// At most [`MAX_TUNNELS`].
        end_points: Vec<Tunnel>,
    },
}

impl DaemonMessage {
    /// Returns the number of descriptors that the message carries.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        match self {
            Self::Setup { .. } => 1,
            Self::Channel { .. } => 2,
            Self::Programs { request, .. } => request.resources().len(),
            Self::Judge { .. }
            | Self::Role { .. }
            | Self::NoChannel { .. }
            | Self::Refused { .. }
            | Self::Tunnels { .. } => 0,
        }
    }
}

/// Reason why a message is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The bytes are not in the encoding.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A part is too long.
    #[error("a message exceeds the limit of {0}")]
    TooMuch(&'static str),
    /// The number of descriptors is wrong.
    #[error("a message needs {due} descriptors and carries {got}")]
    Descriptors {
        /// The right number.
        due: usize,
        /// The actual number.
        got: usize,
    },
}

/// Encodes a [`LibraryMessage`] or a [`DaemonMessage`].
///
/// # Errors
/// The message is too long.
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

/// Decodes a library's message. Entry point of fuzzing.
///
/// # Errors
/// The message is invalid or exceeds a limit.
pub fn decode_report(bytes: &[u8], descriptors: usize) -> Result<LibraryMessage, MessageError> {
    let report = decode(bytes, descriptors, LibraryMessage::descriptors)?;
    match &report {
        LibraryMessage::Hello { application, release, .. } => {
            text(application)?;
            text(release)?;
        }
        LibraryMessage::PortUp { info, .. } => {
            if info.aliases.len() > MAX_ALIASES {
                return Err(MessageError::TooMuch("names"));
            }
            info.names().try_for_each(text)?;
        }
        LibraryMessage::Fault { why, .. } => text(why)?,
        LibraryMessage::Notice { notice, .. } => text(notice.text())?,
        LibraryMessage::Counts { counts, .. } if counts.len() > MAX_COUNTS => {
            return Err(MessageError::TooMuch("counts"));
        }
        LibraryMessage::Polling { cores } if cores.len() > MAX_CORES => {
            return Err(MessageError::TooMuch("cores"));
        }
        // The message's length bounds it, as with a P4 VM's replies.
        LibraryMessage::Programs { .. } => {}
        LibraryMessage::LaneUp { held, .. } if held.len() > MAX_HELD => {
            return Err(MessageError::TooMuch("channels"));
        }
        LibraryMessage::LaneUp { packets, .. } => packets.iter().try_for_each(|p| text(&p.tenant))?,
        LibraryMessage::Counts { .. }
        | LibraryMessage::Polling { .. }
        | LibraryMessage::PortDown { .. }
        | LibraryMessage::LaneDown { .. } => {}
    }
    Ok(report)
}

/// Decodes a daemon's message. Entry point of fuzzing.
///
/// # Errors
/// The message is invalid or exceeds a limit.
pub fn decode_order(bytes: &[u8], descriptors: usize) -> Result<DaemonMessage, MessageError> {
    let order = decode(bytes, descriptors, DaemonMessage::descriptors)?;
    match &order {
        DaemonMessage::Refused { why } => text(why)?,
        DaemonMessage::Tunnels { end_points } if end_points.len() > MAX_TUNNELS => {
            return Err(MessageError::TooMuch("tunnels"));
        }
        _ => {}
    }
    Ok(order)
}

/// Truncates a text to [`MAX_TEXT`] bytes.
pub(crate) fn cut(text: &str) -> String {
    text.char_indices().take_while(|(at, c)| at + c.len_utf8() <= MAX_TEXT).map(|(_, c)| c).collect()
}

#[cfg(test)]
mod tests;
