//! What can go wrong, by name.

use p4shield_abi::channel::{Geometry, MAX_HEADER_BYTES, MAX_HEADROOM, MAX_SLOTS};
use rustix::io::Errno;
use std::path::PathBuf;

/// Shared memory could not be made, or what was received is not fit to be mapped.
#[derive(Debug, thiserror::Error)]
pub enum ShmError {
    /// A system call refused.
    #[error("shared memory: {call} failed")]
    System {
        /// The call.
        call: &'static str,
        /// What it said.
        #[source]
        source: Errno,
    },
    /// A page file could not be opened, made or read.
    #[error("page file {}: {call} failed; check that the path exists, is no symbolic link and is writable", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The call.
        call: &'static str,
        /// What it said.
        #[source]
        source: Errno,
    },
    /// The size is not what both sides agreed on.
    #[error("shared memory has {actual} bytes, expected {expected}; both sides must be configured alike")]
    Size {
        /// Bytes expected.
        expected: u64,
        /// Bytes it has.
        actual: u64,
    },
    /// The sender could still shrink it, which would kill whoever reads it.
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
    /// The memory belongs to a device and has no file to be shared.
    #[error("shared memory that is no file's cannot be mapped again")]
    NoFile,
    /// A length of zero, or one that no mapping can have.
    #[error("shared memory of {0} bytes cannot be mapped")]
    Length(usize),
}

/// An end of a channel or page could not be set up over a region.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// A number of the geometry is out of its limits.
    #[error(
        "channel geometry out of range: {slots} slots (a power of two up to {MAX_SLOTS}), {header_bytes} header \
         bytes (1 to {MAX_HEADER_BYTES}), head room {headroom} (up to {MAX_HEADROOM})",
        slots = .0.slots, header_bytes = .0.header_bytes, headroom = .0.headroom
    )]
    Geometry(Geometry),
    /// The region is too small.
    #[error(
        "region of {actual} bytes is too small, {needed} are needed; both sides must be configured alike"
    )]
    TooSmall {
        /// Bytes needed.
        needed: usize,
        /// Bytes it has.
        actual: usize,
    },
    /// The region's own header says something else.
    #[error(
        "the region's header does not say what was agreed on ({what}); both sides must be configured alike"
    )]
    Header {
        /// The field that differs.
        what: &'static str,
    },
    /// The memory could not be made.
    #[error(transparent)]
    Memory(#[from] ShmError),
}

/// The other side of a channel broke the protocol. Sticky: the channel is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelFault {
    /// The peer's index is further on than it can be.
    #[error("index {index} is out of the window of {open} after {base}")]
    Index {
        /// What the peer published.
        index: u32,
        /// The last index that was accepted.
        base: u32,
        /// How far it may be after that.
        open: u32,
    },
    /// The answer is not to the request that was asked in this slot.
    #[error("answer to request {got}, which is not the one asked ({asked})")]
    Id {
        /// Low half of the identity of the request in the slot.
        asked: u32,
        /// What the answer has.
        got: u32,
    },
    /// The answer has flags that no version defines.
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
    /// The packet lies outside the packet memory that was handed over.
    #[error("{len} bytes at {offset} lie outside the packet memory")]
    Outside {
        /// Its first byte.
        offset: u64,
        /// Its length, as far as it is looked at.
        len: u16,
    },
    /// The packet's new length does not fit to the header that was rewritten.
    #[error("packet of {packet_len} bytes after a rewrite, which allows {min} to {max}")]
    Length {
        /// The length claimed.
        packet_len: u32,
        /// The least: the rewritten header alone.
        min: u32,
        /// The most: it, and all that was not handed over.
        max: u32,
    },
}

impl ChannelFault {
    /// A word for metrics.
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

/// A request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushRefused {
    /// Every slot holds a request that is not answered yet.
    #[error("the channel is full")]
    Full,
    /// The channel is faulted.
    #[error("the channel is faulted")]
    Faulted(#[source] ChannelFault),
}

/// A reply was not taken. The caller has to reply otherwise: each request that was fetched needs its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseRefused {
    /// Every request that was fetched has its reply already.
    #[error("there is no request to reply to")]
    NoOpenRequest,
    /// The header does not fit into a frame, or contradicts the packet's length.
    #[error(
        "rewritten header of {len} bytes in a packet of {packet_len} cannot be handed back (frame {frame}, packet {min} to {max})"
    )]
    Rewrite {
        /// Bytes of the header.
        len: usize,
        /// Claimed bytes of the packet.
        packet_len: u32,
        /// Bytes of a frame.
        frame: u32,
        /// The shortest packet that this header allows.
        min: u32,
        /// The longest.
        max: u32,
    },
}

/// What is on a page cannot be a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageFault {
    /// The page's header was not written yet, or is not of this kind of page.
    #[error("not initialised, or not a page of this kind")]
    NotAPage,
    /// The slot was being written at each try, or holds another publication by now.
    #[error("publication {0} is being written or was overwritten")]
    Torn(u64),
    /// The publication's length is impossible.
    #[error("publication of {len} bytes in slots of {room}")]
    Length {
        /// Length claimed.
        len: u32,
        /// Bytes that a slot holds.
        room: u32,
    },
    /// What is to be published or read does not fit.
    #[error("{len} bytes do not fit into {room}")]
    TooLong {
        /// Bytes there are.
        len: usize,
        /// Bytes there is room for.
        room: usize,
    },
}
