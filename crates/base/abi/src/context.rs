//! The program context: the one argument (`R1`) of every program.
//!
//! A program finds its packet only through `data` and `data_end`: no helper returns a packet pointer,
//! because PREVAIL cannot follow one. Packet pointers become stale when a helper resizes the packet,
//! and have to be loaded again. `data` and `data_end` are read-only; `output_action` and
//! `output_port` may be written; writes to the other fields have no effect.
//!
//! A program returns its verdict in `R0`: 1 is `pass`, everything else is `drop` (see [`crate::Verdict`]).

/// Version of the context and of the helper table. Section [`crate::object::ABI_SECTION`] of a
/// program contains the version that it was compiled for; the engine refuses any other. Each version
/// is described by a file in `versions/`, which never changes: a changed interface needs a new
/// version, and a test fails until it has one.
pub const PROGRAM_ABI_VERSION: u32 = 2;

/// The program context. `repr(C)`, 48 bytes, pointers are 64 bits wide; [`offset`] has the offsets.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Context {
    /// Address of the packet's first byte: of the private header copy, which starts at the Ethernet header.
    pub data: u64,
    /// Address behind the header copy.
    pub data_end: u64,
    /// Port on which the switch received the packet, numbered by the attachment.
    pub input_port: u32,
    /// Length of the whole packet in bytes; the header copy may be shorter.
    pub packet_length: u32,
    /// Written by programs that choose a port; in a divided program, see [`crate::division`].
    pub output_action: u32,
    /// See `output_action`.
    pub output_port: u32,
    /// [`crate::Direction`] as a number.
    pub direction: u32,
    /// Index of the user VM within its tenant.
    pub vm: u32,
    /// When the P4 VM fetched the packet, in nanoseconds of the P4 VM's clock since boot; with the placement
    /// `inline`, when the mediator received it, in nanoseconds of the mediator's monotonic clock.
    pub timestamp_ns: u64,
}

/// Offsets of the fields of [`Context`], for code generators.
pub mod offset {
    /// `data`, 8 bytes.
    pub const DATA: i16 = 0;
    /// `data_end`, 8 bytes.
    pub const DATA_END: i16 = 8;
    /// `input_port`, 4 bytes.
    pub const INPUT_PORT: i16 = 16;
    /// `packet_length`, 4 bytes.
    pub const PACKET_LENGTH: i16 = 20;
    /// `output_action`, 4 bytes.
    pub const OUTPUT_ACTION: i16 = 24;
    /// `output_port`, 4 bytes.
    pub const OUTPUT_PORT: i16 = 28;
    /// `direction`, 4 bytes.
    pub const DIRECTION: i16 = 32;
    /// `vm`, 4 bytes.
    pub const VM: i16 = 36;
    /// `timestamp_ns`, 8 bytes.
    pub const TIMESTAMP_NS: i16 = 40;
}

/// Bytes in a [`Context`].
pub const CONTEXT_SIZE: usize = 48;

const _: () = assert!(size_of::<Context>() == CONTEXT_SIZE);
const _: () = assert!(core::mem::offset_of!(Context, timestamp_ns) == offset::TIMESTAMP_NS as usize);
const _: () = assert!(core::mem::offset_of!(Context, direction) == offset::DIRECTION as usize);
