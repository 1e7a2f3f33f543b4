//! Messages between `p4shield switch run` and a P4 switch in a virtual machine.
//!
//! They are frames ([`crate::FrameReader`]) on a virtio-serial port. The host sends the configuration once;
//! then each client of the switch's socket or metrics is a number, under which both sides pass its bytes on.
//! Neither side trusts the other: a frame is bounded, and so is what either keeps for a client that reads
//! nothing.

use serde::{Deserialize, Serialize};

/// Version of these messages. The host's program and the guest's are different binaries.
pub const SWITCH_VERSION: u32 = 2;
/// Most bytes of a configuration: programs, and files of entries.
pub const MAX_SETUP: usize = 64 << 20;
/// Most bytes of a client's in one message.
pub const MAX_PIECE: usize = 64 << 10;
/// Most bytes of a frame to a switch.
pub const MAX_TO_SWITCH: usize = MAX_SETUP + 64;
/// Most bytes of a frame from a switch.
pub const MAX_FROM_SWITCH: usize = MAX_PIECE + 64;
/// Most clients at a time.
pub const MAX_CLIENTS: usize = 64;

/// A message to a switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSwitch {
    /// The first one.
    Setup {
        /// The configuration, JSON.
        json: Vec<u8>,
        /// The host's clock, nanoseconds since 1970: a virtual machine starts with whole seconds only.
        unix_ns: u64,
        /// The interfaces: the address of each network device, and the name that it gets.
        interfaces: Vec<([u8; 6], String)>,
    },
    /// A client of the socket has connected, who has this number until either side closes it.
    Open(u32),
    /// As `Open`, for a client that asks for metrics over HTTP.
    OpenMetrics(u32),
    /// Bytes of a client.
    Data(u32, Vec<u8>),
    /// A client has closed its connection.
    Close(u32),
    /// The switch ends.
    Stop,
}

/// A message from a switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromSwitch {
    /// It has started and waits for its configuration.
    Booted {
        /// [`SWITCH_VERSION`] of the guest.
        version: u32,
    },
    /// It forwards packets, and answers clients.
    Forwarding,
    /// It does not start, since the program or a file is refused.
    Refused(String),
    /// It does not start, or ends, for another reason.
    Failed(String),
    /// Bytes for a client.
    Data(u32, Vec<u8>),
    /// The switch has closed a client's connection.
    Close(u32),
}
