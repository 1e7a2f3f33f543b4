//! The program context: the one argument (`R1`) of every program.
//!
//! A program finds its packet only through `data` and `data_end`: no helper returns a packet pointer, because
//! PREVAIL cannot follow one. Packet pointers become stale when a helper resizes the packet and have to be loaded
//! again. `data` and `data_end` are read-only; `output_action` and `output_port` may be written; writes to the
//! other fields are allowed and have no effect.
//!
//! A program returns its verdict in `R0`: 1 is `pass`, everything else is `drop` (see [`crate::Verdict`]).

/// Version of the context and of the helper table. A program carries the version that it was compiled for in
/// section [`crate::object::ABI_SECTION`]; the engine refuses any other. What a version means is written down in
/// `versions/`, one file each, which never changes again: whoever changes the interface makes a new version, and a test
/// fails until then.
pub const PROGRAM_ABI_VERSION: u32 = 2;

/// What a program sees. `repr(C)`, 48 bytes, pointers are 64 bits wide.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Context {
    /// First byte of the packet (of the private header copy, which starts at the Ethernet header).
    pub data: u64,
    /// First byte behind the header copy.
    pub data_end: u64,
    /// Port on which the switch received the packet, numbered by the attachment.
    pub input_port: u32,
    /// Length of the whole packet in bytes, of which the header copy may be a prefix.
    pub packet_length: u32,
    /// Written by programs that choose a port; read only for the verdict `redirect`, which no attachment offers yet.
    pub output_action: u32,
    /// See `output_action`.
    pub output_port: u32,
    /// [`crate::Direction`] as a number.
    pub direction: u32,
    /// Index of the user VM within its tenant.
    pub vm: u32,
    /// When the mediator received the packet: nanoseconds of the mediator's monotonic clock.
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

/// Values of `output_action` in programs that need replication ([`crate::object::NEED_REPLICATION`]); whoever cannot
/// replicate packets does not load them. One run makes one packet, so a program is run again for each copy.
pub mod action {
    /// Behind a run, with the verdict `drop`: the packet goes to the group whose number is in `output_port`.
    pub const REPLICATE: u32 = 0x100;
    /// Before a run: it makes one copy. `output_port` holds the copy's port in its lower 16 bits, and above them which copy it
    /// is, as the group has it.
    pub const COPY: u32 = 0x101;
}

/// Bytes in a [`Context`].
pub const CONTEXT_SIZE: usize = 48;

const _: () = assert!(size_of::<Context>() == CONTEXT_SIZE);
const _: () = assert!(core::mem::offset_of!(Context, timestamp_ns) == offset::TIMESTAMP_NS as usize);
const _: () = assert!(core::mem::offset_of!(Context, direction) == offset::DIRECTION as usize);
