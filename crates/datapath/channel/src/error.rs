//! Errors of this crate.

use p4shield_abi::channel::{Geometry, MAX_HEADER_BYTES, MAX_HEADROOM, MAX_SLOTS};
use rustix::io::Errno;
use std::path::PathBuf;

/// Shared memory could not be created or mapped.
#[derive(Debug, thiserror::Error)]
pub enum ShmError {
    /// A system call failed.
    #[error("shared memory: {call} failed")]
    System {
        /// The call.
        call: &'static str,
        /// The system's error.
        #[source]
        source: Errno,
    },
    /// A page file could not be opened, created or read.
    #[error(
        "page file {}: {call} failed; check that the path exists, is not a symbolic link, and is writable",
        path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
        /// The call.
        call: &'static str,
        /// The system's error.
        #[source]
        source: Errno,
    },
    /// The size differs from the configured one.
    #[error("shared memory has {actual} bytes instead of {expected}; configure both sides alike")]
    Size {
        /// Bytes expected.
        expected: u64,
        /// Bytes it has.
        actual: u64,
    },
    /// The sender could still shrink it, which would kill every process that reads it.
    #[error("shared memory is not sealed against resizing (seals {seals:#x}); its creator has to seal it")]
    NotSealed {
        /// The seals it has (`F_SEAL_*`).
        seals: u32,
    },
    /// It is not a regular file.
    #[error("page file {}: not a regular file", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// The memory belongs to a device and has no file to share.
    #[error("shared memory without a file cannot be mapped again")]
    NoFile,
    /// A length of zero, or above `isize::MAX`.
    #[error("invalid length of shared memory: {0} bytes")]
    Length(usize),
}

/// An end of a channel or page could not be set up over a region.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// A number of the geometry is outside its limits.
    #[error(
        "channel geometry out of range: {slots} slots (a power of two up to {MAX_SLOTS}), {header_bytes} \
         header bytes (1 to {MAX_HEADER_BYTES}), headroom {headroom} (up to {MAX_HEADROOM})",
        slots = .0.slots, header_bytes = .0.header_bytes, headroom = .0.headroom
    )]
    Geometry(Geometry),
    /// The region is too small.
    #[error("shared region of {actual} bytes is too small, {needed} are needed; configure both sides alike")]
    TooSmall {
        /// Bytes needed.
        needed: usize,
        /// Bytes it has.
        actual: usize,
    },
    /// The region's header differs from the configuration.
    #[error(
        "the header of the shared region differs from the configuration ({what}); configure both sides alike"
    )]
    Header {
        /// The field that differs.
        what: &'static str,
    },
    /// The memory could not be created.
    #[error(transparent)]
    Memory(#[from] ShmError),
}

/// The peer broke the channel's protocol. Sticky: the channel has to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelFault {
    /// The peer's index is further ahead than it can be.
    #[error("index {index} is more than {open} after {base}")]
    Index {
        /// Index that the peer published.
        index: u32,
        /// Last index that was accepted.
        base: u32,
        /// Most by which an index may exceed that.
        open: u32,
    },
    /// The answer has another id than the request in its slot.
    #[error("answer to request {got} in the slot of request {expected}")]
    Id {
        /// Low half of the request's id.
        expected: u32,
        /// Id in the answer.
        got: u32,
    },
    /// The answer has unknown flags.
    #[error("unknown flags {0:#x} in an answer")]
    Flags(u8),
    /// The rewritten header lies outside its frame.
    #[error("rewritten header of {len} bytes at {start} lies outside the frame of {frame}")]
    Bounds {
        /// Its first byte.
        start: u16,
        /// Its length.
        len: u16,
        /// Bytes of a frame.
        frame: u32,
    },
    /// The packet lies outside the shared packet memory.
    #[error("{len} bytes at {offset} lie outside the packet memory")]
    Outside {
        /// Its first byte.
        offset: u64,
        /// Bytes of it that are read.
        len: u16,
    },
    /// The packet's new length contradicts the rewritten header.
    #[error("packet of {packet_len} bytes after a rewrite that allows {min} to {max}")]
    Length {
        /// Length in the answer.
        packet_len: u32,
        /// Least: the rewritten header alone.
        min: u32,
        /// Most: the rewritten header and the rest of the packet.
        max: u32,
    },
}

impl ChannelFault {
    /// Returns its name in metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Index { .. } => "index",
            Self::Id { .. } => "id",
            Self::Flags(_) => "flags",
            Self::Bounds { .. } => "bounds",
            Self::Outside { .. } => "outside",
            Self::Length { .. } => "length",
        }
    }
}

/// The channel refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushRefused {
    /// Every slot holds a request without an answer.
    #[error("the channel is full")]
    Full,
    /// The channel is faulted.
    #[error("the channel is faulted")]
    Faulted(#[source] ChannelFault),
}

/// The channel refused a response. The caller has to respond otherwise: each fetched request needs a
/// response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseRefused {
    /// Every fetched request has its response.
    #[error("there is no request to respond to")]
    NoOpenRequest,
    /// The header does not fit into a frame, or contradicts the packet's length.
    #[error(
        "invalid rewrite: header of {len} bytes (limit {frame}), packet of {packet_len} bytes \
         ({min} to {max})"
    )]
    Rewrite {
        /// Bytes of the header.
        len: usize,
        /// Length of the packet in the response.
        packet_len: u32,
        /// Bytes of a frame.
        frame: u32,
        /// Shortest packet that this header allows.
        min: u32,
        /// Longest packet that it allows.
        max: u32,
    },
}

/// A page, or a publication on it, is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageFault {
    /// The page's header was not written yet, or belongs to another kind of page.
    #[error("the page is not initialised, or is another kind of page")]
    NotAPage,
    /// The slot was being written at every attempt, or holds another publication.
    #[error("publication {0} is being written or was overwritten")]
    Torn(u64),
    /// The publication is longer than a slot.
    #[error("publication of {len} bytes in slots of {room}")]
    Length {
        /// Length in the slot.
        len: u32,
        /// Bytes that a slot holds.
        room: u32,
    },
    /// The data to publish or read does not fit.
    #[error("{len} bytes do not fit into {room}")]
    TooLong {
        /// Length of the data.
        len: usize,
        /// Room for it.
        room: usize,
    },
}
