//! The control protocol between the host daemon and a P4 VM.
//!
//! A message is an [`Envelope`] in postcard's encoding, at most [`MAX_MESSAGE`] bytes. Memory, keys,
//! programs and doorbells are resources that it names ([`ResourceId`]) and its [`Transport`] delivers. The
//! daemon sends requests. The P4 VM answers each request once, in order, and sends nothing else. Neither
//! side trusts the other: the message's size bounds its decoding, and both sides check counts and names.
//!
//! The transport on one machine is a [`Socket`]: a message is one packet of a `SOCK_SEQPACKET` socket, and
//! each resource is a descriptor. `p4shield vmm` carries messages on into a virtual machine
//! (`p4shield_line`). The daemon's side is a [`Client`]; the P4 VM's side is `p4shield_runtime::p4vm`.
//! Switch libraries carry the same requests over the same [`Socket`] to programs of placement `inline`.
#![forbid(unsafe_code)]

mod bundle;
mod client;
mod door;
mod envelope;
mod message;
mod program;
mod receive;
mod resource;
mod sandbox;
mod socket;
mod transport;

pub use bundle::{BundleLoaded, BundleRequest};
pub use client::{Client, ClientError};
pub use door::{Door, GREETING};
pub use envelope::{DecodeError, Envelope, decode, encode};
pub use message::{
    AgentDemand, ChannelStatus, DirectionStatus, HandshakeStatus, Hello, KeyStatus, MAX_BUNDLE, MAX_CHANNELS,
    MAX_NAME, MAX_OBJECTS, MAX_VALUES, MAX_VMS, PROTOCOL_VERSION, Reply, Request, STDERR, SessionStatus,
    Status, VmKeys, VmStatus, WireGeometry, verdict,
};
pub use program::{
    Entries, MAX_MAP_NAME, MAX_MAPS, MAX_PART, MapDescription, MapPart, MapQuery, ProgramDescription,
    ProgramSlot,
};
pub use receive::receive_request;
pub use resource::{Delivered, MissingResource, ResourceId, ResourceKind, Resources};
pub use sandbox::{Measure, SandboxReport};
pub use socket::{MAX_DESCRIPTORS, MAX_MESSAGE, Received, Socket, SocketError};
pub use transport::{Incoming, Transport};
