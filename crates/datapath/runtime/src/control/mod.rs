//! What the host daemon says to a P4 VM, and what it hears back.
//!
//! One message is one packet of a `SOCK_SEQPACKET` socket: a [`Frame`] in postcard's encoding, at most
//! [`MAX_MESSAGE`] bytes, with the descriptors that [`Request::descriptors`] counts. The host asks, the P4 VM answers
//! each request once, in order, and says nothing unasked. Neither believes the other: decoding is bounded by the
//! message's size, counts and names are checked, text from a P4 VM is made [`printable`] before anyone sees it.

mod client;
mod socket;
mod text;

pub use client::{Client, ClientError};
pub use socket::{MAX_DESCRIPTORS, Received, Socket, SocketError};
pub use text::{printable, printable_lines};

use crate::sandbox::Report;
use p4shield_abi::channel::Geometry;
use p4shield_abi::{Direction, Verdict};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the messages. Host and P4 VM are one binary; a mismatch means that the binary was replaced while the
/// daemon ran.
pub const PROTOCOL_VERSION: u32 = 3;
/// The most bytes of a message.
pub const MAX_MESSAGE: usize = 128 << 10;
/// The most bytes of all objects of one program.
pub const MAX_OBJECTS: usize = 4 << 20;
/// The most user VMs of one tenant.
pub const MAX_VMS: u16 = 256;
/// The most channels of one P4 VM: each receive queue of each port of a switch has one.
pub const MAX_CHANNELS: usize = 512;
/// The most bytes of a name of a tenant, VM or program.
pub const MAX_NAME: usize = 64;

/// A message with the number that its answer repeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame<T> {
    /// Chosen by whoever asks.
    pub id: u32,
    /// What is said.
    pub body: T,
}

/// What a tenant's P4 VM is told first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the host.
    pub version: u32,
    /// The tenant's name, part of what seals authenticate.
    pub tenant: String,
    /// Whether the tenant's key comes with this message.
    pub key: bool,
    /// What happens to packets of a direction that has no program, as [`Verdict`]'s number.
    pub no_program: u8,
    /// Age from which a snapshot is stale, milliseconds.
    pub age_limit_ms: u32,
    /// Time between two log records, milliseconds.
    pub log_interval_ms: u32,
    /// Instructions that a program may execute for one packet.
    pub budget: u64,
    /// The lowest epoch that logs may take: above those of the P4 VMs before. See [`p4shield_seal::Floor`].
    pub min_epoch: u64,
}

/// A user VM's direction: what a program belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Index of the VM within its tenant.
    pub vm: u16,
    /// [`Direction`] as a number.
    pub direction: u8,
}

impl Place {
    /// The place of a direction.
    #[must_use]
    pub const fn new(vm: u16, direction: Direction) -> Self {
        Self { vm, direction: direction as u8 }
    }
}

/// Geometry of a channel, as a message carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Slots.
    pub slots: u32,
    /// Header bytes a packet at most.
    pub header_bytes: u32,
    /// Head room in front of them.
    pub headroom: u32,
}

impl From<Geometry> for Shape {
    fn from(g: Geometry) -> Self {
        Self { slots: g.slots, header_bytes: g.header_bytes, headroom: g.headroom }
    }
}

impl From<Shape> for Geometry {
    fn from(s: Shape) -> Self {
        Self { slots: s.slots, header_bytes: s.header_bytes, headroom: s.headroom }
    }
}

/// What the host asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// First message. Descriptor: the key file, if `key`.
    Hello(Hello),
    /// Makes a user VM known. Descriptors: its info page, if `info`; its log page, if `log`.
    SetVm {
        /// Index within the tenant.
        vm: u16,
        /// Name, part of what seals authenticate.
        name: String,
        /// Whether an info page comes with this.
        info: bool,
        /// Whether a log page comes with this.
        log: bool,
    },
    /// Links, verifies and compiles a program, and replaces the one at `place` between two batches. One that is
    /// refused leaves the old one running. Descriptor: memory that holds the objects one after the other.
    LoadProgram {
        /// Where it is to run.
        place: Place,
        /// What to call it.
        name: String,
        /// Bytes of each object.
        objects: Vec<u32>,
    },
    /// Takes the program away.
    UnloadProgram {
        /// Where it runs.
        place: Place,
    },
    /// Serves one more channel. Descriptors: its memory, the P4 VM's end of its doorbell, the switch's packet memory if
    /// headers are to be read there.
    AttachChannel {
        /// The host's number for it.
        channel: u32,
        /// Its geometry.
        shape: Shape,
        /// Bytes of the switch's packet memory; none: headers are copied into the channel.
        packets: Option<u64>,
    },
    /// Serves a channel no longer.
    DetachChannel {
        /// The host's number for it.
        channel: u32,
    },
    /// Reads a table: one entry, or all of them from `skip` on, as many as a message holds.
    MapRead {
        /// The program's place.
        place: Place,
        /// The map's symbol.
        map: String,
        /// The entry's key; `None` for all.
        key: Option<Vec<u8>>,
        /// Entries to skip when all are read.
        skip: u32,
    },
    /// Writes or deletes a table's entry.
    MapWrite {
        /// The program's place.
        place: Place,
        /// The map's symbol.
        map: String,
        /// The entry's key.
        key: Vec<u8>,
        /// Its value; `None` deletes it.
        value: Option<Vec<u8>>,
    },
    /// How things are.
    Status,
    /// Publish last log records and end.
    Stop,
}

impl Request {
    /// Descriptors that come with it.
    #[must_use]
    pub const fn descriptors(&self) -> usize {
        match self {
            Self::Hello(h) => h.key as usize,
            Self::SetVm { info, log, .. } => *info as usize + *log as usize,
            Self::LoadProgram { .. } => 1,
            Self::AttachChannel { packets, .. } => 2 + packets.is_some() as usize,
            Self::UnloadProgram { .. }
            | Self::DetachChannel { .. }
            | Self::MapRead { .. }
            | Self::MapWrite { .. }
            | Self::Status
            | Self::Stop => 0,
        }
    }
}

/// Entries of a table: key and value of each.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// What a P4 VM answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// To `Hello`.
    Hello {
        /// [`PROTOCOL_VERSION`] of the P4 VM.
        version: u32,
        /// What its sandbox enforces.
        sandbox: Report,
    },
    /// Done as asked.
    Done,
    /// The program runs.
    Loaded {
        /// SHA-256 digest of the linked program.
        digest: [u8; 32],
        /// Instructions.
        instructions: u32,
    },
    /// The program does not run: what the linker, the verifier or the engine has against it.
    Refused(String),
    /// Entries of a table.
    Entries(Entries),
    /// How things are.
    Status(Box<Status>),
    /// What was asked cannot be done, and why.
    Failed(String),
}

/// How a P4 VM fares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its channels.
    pub channels: Vec<ChannelStatus>,
    /// Its user VMs.
    pub vms: Vec<VmStatus>,
}

/// One channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelStatus {
    /// The host's number for it.
    pub channel: u32,
    /// Requests answered.
    pub answered: u64,
    /// Why it is served no longer: what the other side broke.
    pub fault: Option<String>,
}

/// One user VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmStatus {
    /// Index within the tenant.
    pub vm: u16,
    /// [`p4shield_abi::info::InfoStatus`] as a number.
    pub info: u8,
    /// Snapshots accepted, forged, replayed, stale.
    pub info_tally: [u64; 4],
    /// Log records published.
    pub log_records: u64,
    /// By [`Direction`].
    pub directions: [DirectionStatus; 2],
}

/// One direction of a user VM. Counters as in [`p4shield_abi::log::DirectionTotals`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionStatus {
    /// Packets judged.
    pub judged: u64,
    /// Packets passed.
    pub passed: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Dropped because the program did not ask whether its information was known.
    pub undecided: u64,
    /// Dropped because the program was stopped, or there was none.
    pub failed: u64,
    /// Digest of the program that runs.
    pub program: Option<[u8; 32]>,
}

/// Why a message cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Not postcard, or not of this type.
    #[error("a control message of {len} bytes is not in the protocol's encoding")]
    Encoding {
        /// Bytes of the message.
        len: usize,
        /// Where decoding stopped.
        #[source]
        source: postcard::Error,
    },
    /// Bytes are left over.
    #[error("a control message ends {0} bytes before the packet that carries it")]
    Trailing(usize),
}

/// Encodes a message.
///
/// # Errors
/// It is longer than [`MAX_MESSAGE`].
pub fn encode<T: Serialize>(frame: &Frame<T>) -> Result<Vec<u8>, SocketError> {
    let bytes = postcard::to_stdvec(frame).map_err(|e| SocketError::Encode { source: e })?;
    if bytes.len() > MAX_MESSAGE {
        return Err(SocketError::TooLong { len: bytes.len() });
    }
    Ok(bytes)
}

/// Decodes a message. Memory use is bounded by a small multiple of the message's size. Entry point of fuzzing, with
/// [`Request`] and [`Reply`].
///
/// # Errors
/// The bytes are not exactly one message of this type.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<Frame<T>, DecodeError> {
    match postcard::take_from_bytes(bytes) {
        Ok((frame, [])) => Ok(frame),
        Ok((_, rest)) => Err(DecodeError::Trailing(rest.len())),
        Err(source) => Err(DecodeError::Encoding { len: bytes.len(), source }),
    }
}

/// The verdict that a policy number stands for.
#[must_use]
pub const fn verdict(number: u8) -> Verdict {
    Verdict::from_u64(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Request> {
        let place = Place::new(3, Direction::Egress);
        vec![
            Request::Hello(Hello {
                version: PROTOCOL_VERSION,
                tenant: "red".into(),
                key: true,
                no_program: 0,
                age_limit_ms: 1000,
                log_interval_ms: 100,
                budget: 1 << 20,
                min_epoch: 1 << 60,
            }),
            Request::SetVm { vm: 3, name: "web".into(), info: true, log: false },
            Request::LoadProgram { place, name: "guard".into(), objects: vec![100, 200] },
            Request::AttachChannel { channel: 1, shape: Geometry::default().into(), packets: Some(1 << 24) },
            Request::MapWrite { place, map: "ports".into(), key: vec![1; 4], value: Some(vec![2; 8]) },
            Request::Status,
        ]
    }

    #[test]
    fn messages_read_back() {
        for body in samples() {
            let frame = Frame { id: 7, body };
            assert_eq!(decode::<Request>(&encode(&frame).unwrap()).unwrap(), frame);
        }
    }

    #[test]
    fn cut_and_extended_messages_are_refused() {
        for body in samples() {
            let mut bytes = encode(&Frame { id: 7, body }).unwrap();
            for n in 0..bytes.len() {
                assert!(decode::<Request>(&bytes[..n]).is_err(), "the first {n} bytes");
            }
            bytes.push(0);
            assert!(matches!(decode::<Request>(&bytes), Err(DecodeError::Trailing(1))));
        }
    }

    #[test]
    fn a_length_that_lies_allocates_nothing() {
        // Reply::Refused with a string of 2^60 bytes.
        let mut bytes = vec![1, 4];
        bytes.extend([0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10]);
        assert!(decode::<Reply>(&bytes).is_err());
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut seeds: Vec<_> =
            samples().into_iter().map(|body| encode(&Frame { id: 7, body }).unwrap()).collect();
        let status = Status { vms: vec![VmStatus::default(); 2], ..Status::default() };
        let hello = Reply::Hello { version: PROTOCOL_VERSION, sandbox: Report::default() };
        let entries = Reply::Entries(vec![(vec![1; 4], vec![2; 8])]);
        for body in [hello, entries, Reply::Status(Box::new(status)), Reply::Refused("no".to_owned())] {
            seeds.push(encode(&Frame { id: 7, body }).unwrap());
        }
        p4shield_testbed::campaign(&seeds, |bytes| {
            let _ = decode::<Request>(bytes);
            let _ = decode::<Reply>(bytes);
        });
    }
}
