//! The channel: one shared-memory region between a mediator and one P4 VM.
//!
//! ```text
//!  0          ChannelHeader (4096 bytes): geometry, then one cache line for each index
//!  4096       requests   slots x Request           (the mediator writes)
//!             verdicts   slots x Answer            (the P4 VM writes)
//!             rewrites   slots x RewrittenHeader   (the P4 VM writes, for answers that say so)
//!             frames     slots x frame_stride: head room, then the header copy; or, where the P4 VM reads headers from
//!                        the switch's packet memory, their offset in it (a `u64` at the frame's start)
//! ```
//!
//! What crosses from core to core is counted in cache lines, so what most packets need is small: eight answers are a
//! line, and what a rewrite needs besides stands elsewhere.
//!
//! Both rings have the same slots and verdicts come in the order of the requests: request `i` (counted from 0, for
//! ever) stands in slot `i % slots`, so does its answer, so does its frame. Each index is a free-running `u32`
//! written by one side only. The mediator may use slot `i % slots` again when it has taken answer `i`.
//!
//! ```text
//!  verdict_tail  <=  verdict_head  <=  request_head  <=  verdict_tail + slots
//!   mediator          P4 VM             mediator
//! ```
//!
//! Nothing here is believed by its reader: geometry is fixed by whoever creates the region and passed beside it,
//! indexes are masked, distances over `slots` are an error of the other side, lengths are clamped, each record is
//! copied out once before it is looked at.

/// First eight bytes of a channel.
pub const CHANNEL_MAGIC: u64 = u64::from_le_bytes(*b"P4SHCHAN");
/// Version of the layout.
pub const CHANNEL_VERSION: u32 = 4;

/// Header bytes that are handed over by default.
pub const DEFAULT_HEADER_BYTES: u32 = 128;
/// The most header bytes: a whole jumbo frame.
pub const MAX_HEADER_BYTES: u32 = 9728;
/// Head room that is handed over by default: how much a program may grow the packet at its front.
pub const DEFAULT_HEADROOM: u32 = 128;
/// The most head room.
pub const MAX_HEADROOM: u32 = 1024;
/// Slots by default.
pub const DEFAULT_SLOTS: u32 = 1024;
/// The most slots; a power of two, like every number of slots.
pub const MAX_SLOTS: u32 = 65536;
/// Requests that are published and judged together at most.
pub const BATCH: usize = 32;

/// Offset of the atomic `u32` `request_head`: requests published; the mediator writes.
pub const REQUEST_HEAD: usize = 128;
/// Offset of the atomic `u32` `verdict_head`: requests answered; the P4 VM writes.
pub const VERDICT_HEAD: usize = 256;
/// Offset of the atomic `u32` `verdict_tail`: answers taken; the mediator writes.
pub const VERDICT_TAIL: usize = 384;
/// Offset of the atomic `u32` that the P4 VM sets to [`ASLEEP_AT_DOORBELL`] or [`ASLEEP_AT_FUTEX`] before it sleeps and to 0 when it wakes: the
/// mediator wakes it there when it publishes and finds no 0.
pub const P4VM_SLEEPS: usize = 512;
/// Offset of the atomic `u32` that the mediator sets to 1 before it sleeps: the P4 VM rings the mediator's doorbell.
pub const MEDIATOR_SLEEPS: usize = 640;

/// Offset of the atomic `u32` that the mediator counts up before it wakes a P4 VM that sleeps there (futex(2)).
pub const P4VM_FUTEX: usize = 768;
/// Offset of the atomic `u32` that the mediator counts up when packets that were passed have been sent: whoever that has woken
/// may wait for the P4 VM's core.
pub const SENT: usize = 772;

/// An end sleeps until its doorbell is rung.
pub const ASLEEP_AT_DOORBELL: u32 = 1;
/// The P4 VM sleeps until [`P4VM_FUTEX`] is counted up. Where both share a kernel this takes less time.
pub const ASLEEP_AT_FUTEX: u32 = 2;

/// Bytes before the requests.
pub const HEADER_SIZE: usize = 4096;

/// Geometry of a channel, at offset 0. `repr(C)`, 40 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ChannelHeader {
    /// [`CHANNEL_MAGIC`].
    pub magic: u64,
    /// [`CHANNEL_VERSION`].
    pub version: u32,
    /// Slots, a power of two up to [`MAX_SLOTS`].
    pub slots: u32,
    /// Header bytes a packet at most.
    pub header_bytes: u32,
    /// Head room in front of them.
    pub headroom: u32,
    /// Bytes from one frame to the next: head room plus header bytes, a multiple of 64.
    pub frame_stride: u32,
    /// Zero.
    pub reserved: u32,
    /// Bytes of the region.
    pub size: u64,
}

/// One packet to be judged. `repr(C)`, 32 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Request {
    /// Chosen by the mediator; the answer repeats its low half.
    pub id: u64,
    /// When the mediator received the packet: nanoseconds of its monotonic clock.
    pub timestamp_ns: u64,
    /// Bytes of the whole packet.
    pub packet_len: u32,
    /// Port on which the switch received it, numbered by the attachment.
    pub input_port: u32,
    /// Bytes in the frame, from `headroom` on.
    pub copy_len: u16,
    /// Index of the user VM within its tenant.
    pub vm: u16,
    /// [`crate::Direction`] as a number.
    pub direction: u8,
    /// Zero.
    pub reserved: [u8; 3],
}

/// The answer to the request in the same slot. `repr(C)`, 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Answer {
    /// Low half of the request's `id`.
    pub id: u32,
    /// [`crate::Verdict`] as a number.
    pub verdict: u8,
    /// Bit 0: [`REWRITTEN`].
    pub flags: u8,
    /// Zero.
    pub reserved: [u8; 2],
}

/// What an answer with [`REWRITTEN`] says besides, in the same slot of an array of its own. `repr(C)`, 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RewrittenHeader {
    /// Bytes of the whole packet as it is to leave.
    pub packet_len: u32,
    /// First byte of the rewritten header in the frame, counted from the frame's start.
    pub start: u16,
    /// Bytes of the rewritten header, which replace the `copy_len` bytes that were handed over.
    pub copy_len: u16,
}

/// Bit of [`Answer::flags`]: the slot's [`RewrittenHeader`] counts, the frame holds new bytes.
pub const REWRITTEN: u8 = 1;

const _: () = assert!(size_of::<ChannelHeader>() == 40);
const _: () = assert!(size_of::<Request>() == 32);
const _: () = assert!(size_of::<Answer>() == 8);
const _: () = assert!(size_of::<RewrittenHeader>() == 8);

/// Geometry that both sides were told, and all that follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Geometry {
    /// Slots, a power of two.
    pub slots: u32,
    /// Header bytes a packet at most.
    pub header_bytes: u32,
    /// Head room in front of them.
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

    /// Bytes from one frame to the next.
    #[must_use]
    pub const fn frame_stride(&self) -> usize {
        (self.headroom as usize + self.header_bytes as usize).next_multiple_of(64)
    }

    /// Offset of the requests.
    #[must_use]
    pub const fn requests(&self) -> usize {
        HEADER_SIZE
    }

    /// Offset of the answers.
    #[must_use]
    pub const fn answers(&self) -> usize {
        self.requests() + self.slots as usize * size_of::<Request>()
    }

    /// Offset of what rewrites say besides.
    #[must_use]
    pub const fn rewrites(&self) -> usize {
        self.answers() + self.slots as usize * size_of::<Answer>()
    }

    /// Offset of the frames.
    #[must_use]
    pub const fn frames(&self) -> usize {
        (self.rewrites() + self.slots as usize * size_of::<RewrittenHeader>()).next_multiple_of(64)
    }

    /// Bytes of the region, a power of two (an ivshmem BAR has to be one).
    #[must_use]
    pub const fn size(&self) -> usize {
        (self.frames() + self.slots as usize * self.frame_stride()).next_power_of_two()
    }

    /// The header that says so.
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
