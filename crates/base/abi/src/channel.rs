//! The channel: one shared-memory region between a mediator and one P4 VM.
//!
//! ```text
//! offset                bytes            contents                               writer
//! 0                     4096             ChannelHeader, then the indexes below  mediator, P4 VM
//! 4096                  slots x 32       requests: Request                      mediator
//! Geometry::answers()   slots x 8        answers: Answer                        P4 VM
//! Geometry::rewrites()  slots x 8        rewrites: RewrittenHeader              P4 VM, with REWRITTEN
//! Geometry::frames()    slots x stride   frames: headroom, then the header     mediator, P4 VM
//! ```
//!
//! If the P4 VM reads headers from the switch's packet memory, a frame contains the header's offset
//! there instead, a `u64` at the start of the frame. All integers are little-endian; the layout has
//! version [`CHANNEL_VERSION`].
//!
//! The cost of a packet is the number of cache lines that move between cores, so the common records
//! are small: eight answers fill a line, and the record of a rewrite is separate.
//!
//! Both rings have the same slots, and answers come in the order of the requests: request `i` (from
//! 0), its answer and its frame are in slot `i % slots`. Each index is a free-running `u32` with one
//! writer. The mediator may reuse slot `i % slots` when it has taken answer `i`.
//!
//! ```text
//!  verdict_tail  <=  verdict_head  <=  request_head  <=  verdict_tail + slots
//!   mediator          P4 VM             mediator
//! ```
//!
//! No reader trusts these bytes: the host daemon fixes the geometry and sends it to both sides
//! separately, indexes are masked, distances over `slots` are a fault of the peer, lengths are
//! clamped, and each record is copied out once before it is checked.

/// First eight bytes of a channel.
pub const CHANNEL_MAGIC: u64 = u64::from_le_bytes(*b"P4SHCHAN");
/// Version of the layout.
pub const CHANNEL_VERSION: u32 = 4;

/// Default number of header bytes per packet.
pub const DEFAULT_HEADER_BYTES: u32 = 128;
/// Largest number of header bytes: a whole jumbo frame.
pub const MAX_HEADER_BYTES: u32 = 9728;
/// Default headroom: how much a program may grow the packet at its front.
pub const DEFAULT_HEADROOM: u32 = 128;
/// Largest headroom.
pub const MAX_HEADROOM: u32 = 1024;
/// Default number of slots.
pub const DEFAULT_SLOTS: u32 = 1024;
/// Largest number of slots; a power of two, like every number of slots.
pub const MAX_SLOTS: u32 = 65536;
/// Most requests that are published and judged together.
pub const BATCH: usize = 32;

/// Offset of an atomic `u32`: requests published; the mediator writes.
pub const REQUEST_HEAD: usize = 128;
/// Offset of an atomic `u32`: requests answered; the P4 VM writes.
pub const VERDICT_HEAD: usize = 256;
/// Offset of an atomic `u32`: answers taken; the mediator writes.
pub const VERDICT_TAIL: usize = 384;
/// Offset of the atomic `u32` by which the P4 VM announces its sleep: [`ASLEEP_AT_DOORBELL`] or
/// [`ASLEEP_AT_FUTEX`] before it sleeps, 0 when it wakes. A mediator that publishes and finds another
/// value than 0 wakes the P4 VM.
pub const P4VM_SLEEPS: usize = 512;
/// Offset of the atomic `u32` by which the mediator announces its sleep: 1 before it sleeps, 0 when
/// it wakes. The P4 VM then rings the mediator's doorbell.
pub const MEDIATOR_SLEEPS: usize = 640;

/// Offset of the atomic `u32` at which the P4 VM sleeps (futex(2)). The mediator increments it before
/// it wakes the P4 VM.
pub const P4VM_FUTEX: usize = 768;
/// Offset of the atomic `u32` that the mediator increments when passed packets have been sent: their
/// receiver may now wait for the P4 VM's core.
pub const SENT: usize = 772;

/// Flag: the end sleeps until its doorbell is rung.
pub const ASLEEP_AT_DOORBELL: u32 = 1;
/// Flag: the P4 VM sleeps until [`P4VM_FUTEX`] changes. Under a common kernel this wake-up is faster.
pub const ASLEEP_AT_FUTEX: u32 = 2;

/// Bytes before the requests.
pub const HEADER_SIZE: usize = 4096;

/// Header of a channel, at offset 0. `repr(C)`, 40 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ChannelHeader {
    /// Offset 0: [`CHANNEL_MAGIC`].
    pub magic: u64,
    /// Offset 8: [`CHANNEL_VERSION`].
    pub version: u32,
    /// Offset 12: slots, a power of two up to [`MAX_SLOTS`].
    pub slots: u32,
    /// Offset 16: most header bytes of a packet.
    pub header_bytes: u32,
    /// Offset 20: headroom in front of them.
    pub headroom: u32,
    /// Offset 24: bytes from one frame to the next: headroom plus header bytes, rounded up to a
    /// multiple of 64.
    pub frame_stride: u32,
    /// Offset 28: zero.
    pub reserved: u32,
    /// Offset 32: bytes of the region.
    pub size: u64,
}

/// Request for the verdict of one packet. `repr(C)`, 32 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Request {
    /// Offset 0: chosen by the mediator; the answer repeats its low half.
    pub id: u64,
    /// Offset 8: when the mediator received the packet, in nanoseconds of its monotonic clock. A P4 VM reads
    /// its own clock instead.
    pub timestamp_ns: u64,
    /// Offset 16: length of the whole packet.
    pub packet_len: u32,
    /// Offset 20: port on which the switch received it, numbered by the attachment.
    pub input_port: u32,
    /// Offset 24: bytes in the frame, from `headroom` on.
    pub copy_len: u16,
    /// Offset 26: index of the user VM within its tenant.
    pub vm: u16,
    /// Offset 28: [`crate::Direction`] as a number.
    pub direction: u8,
    /// Offset 29: zero.
    pub reserved: [u8; 3],
}

/// The answer to the request in the same slot. `repr(C)`, 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Answer {
    /// Offset 0: low half of the request's `id`.
    pub id: u32,
    /// Offset 4: [`crate::Verdict`] as a number.
    pub verdict: u8,
    /// Offset 5: flags; bit 0 is [`REWRITTEN`].
    pub flags: u8,
    /// Offset 6: zero.
    pub reserved: [u8; 2],
}

/// Record of the new header of an answer with [`REWRITTEN`], in the same slot. `repr(C)`, 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RewrittenHeader {
    /// Offset 0: length of the whole packet after the rewrite.
    pub packet_len: u32,
    /// Offset 4: offset of the new header in the frame.
    pub start: u16,
    /// Offset 6: length of the new header, which replaces the request's `copy_len` bytes.
    pub copy_len: u16,
}

/// Bit of [`Answer::flags`]: the slot's [`RewrittenHeader`] is valid, and the frame contains the new header.
pub const REWRITTEN: u8 = 1;

const _: () = assert!(size_of::<ChannelHeader>() == 40);
const _: () = assert!(size_of::<Request>() == 32);
const _: () = assert!(size_of::<Answer>() == 8);
const _: () = assert!(size_of::<RewrittenHeader>() == 8);

/// Geometry of a channel, which both sides are configured with, and the offsets that follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Geometry {
    /// Slots, a power of two.
    pub slots: u32,
    /// Most header bytes of a packet.
    pub header_bytes: u32,
    /// Headroom in front of them.
    pub headroom: u32,
}

impl Default for Geometry {
    fn default() -> Self {
        Self { slots: DEFAULT_SLOTS, header_bytes: DEFAULT_HEADER_BYTES, headroom: DEFAULT_HEADROOM }
    }
}

impl Geometry {
    /// Whether every number is within its limits.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.slots.is_power_of_two()
            && self.slots <= MAX_SLOTS
            && self.header_bytes >= 1
            && self.header_bytes <= MAX_HEADER_BYTES
            && self.headroom <= MAX_HEADROOM
    }

    /// Returns the bytes from one frame to the next.
    #[must_use]
    pub const fn frame_stride(&self) -> usize {
        (self.headroom as usize + self.header_bytes as usize).next_multiple_of(64)
    }

    /// Returns the offset of the requests.
    #[must_use]
    pub const fn requests(&self) -> usize {
        HEADER_SIZE
    }

    /// Returns the offset of the answers.
    #[must_use]
    pub const fn answers(&self) -> usize {
        self.requests() + self.slots as usize * size_of::<Request>()
    }

    /// Returns the offset of the records of rewrites.
    #[must_use]
    pub const fn rewrites(&self) -> usize {
        self.answers() + self.slots as usize * size_of::<Answer>()
    }

    /// Returns the offset of the frames.
    #[must_use]
    pub const fn frames(&self) -> usize {
        (self.rewrites() + self.slots as usize * size_of::<RewrittenHeader>()).next_multiple_of(64)
    }

    /// Returns the size of the region, a power of two as an ivshmem BAR requires.
    #[must_use]
    pub const fn size(&self) -> usize {
        (self.frames() + self.slots as usize * self.frame_stride()).next_power_of_two()
    }

    /// Returns the header with this geometry.
    #[must_use]
    pub const fn header(&self) -> ChannelHeader {
        ChannelHeader {
            magic: CHANNEL_MAGIC,
            version: CHANNEL_VERSION,
            slots: self.slots,
            header_bytes: self.header_bytes,
            headroom: self.headroom,
            frame_stride: self.frame_stride() as u32,
            reserved: 0,
            size: self.size() as u64,
        }
    }
}
