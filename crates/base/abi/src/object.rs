//! Names and formats inside a program's ELF object (`EM_BPF`, 64-bit, little-endian).
//!
//! One loader reads objects of P4 Shield's compiler and of `clang -target bpf`; the latter lack the
//! `.p4shield` sections, and the loader then assumes nothing. All integers are little-endian.

/// Code section of a program; the entry point is its first function, or the one named
/// [`ENTRY_SYMBOL`]. Code of a tenant's C externs may be in `.text` or here, and is linked by symbol
/// name.
pub const PROGRAM_SECTION: &str = "p4";
/// The entry point's symbol.
pub const ENTRY_SYMBOL: &str = "p4_main";
/// Array of [`crate::map::MapDefinition`], with one global symbol each.
pub const MAPS_SECTION: &str = "maps";
/// Map entries to insert at load: records of an [`EntryHeader`], the key (`key_size` bytes) and the
/// value (`value_size` bytes), each record padded with zeros to a multiple of four bytes.
pub const ENTRIES_SECTION: &str = ".p4shield.entries";
/// One `u32`: [`crate::context::PROGRAM_ABI_VERSION`] of the compiler. Absent in clang's objects.
pub const ABI_SECTION: &str = ".p4shield.abi";
/// Line table. Layout: `u32` record count, [`LineRecord`]s sorted by instruction, `u32` file count,
/// then for each file `u32` length and UTF-8 bytes of its name.
pub const LINES_SECTION: &str = ".p4shield.lines";

/// [`crate::schema::Schema`]: names and types of tables, registers and counters. Absent in clang's objects
/// and in those of older compilers; no loader needs it.
pub const SCHEMA_SECTION: &str = ".p4shield.schema";

/// Trace points of a program that records what each run does ([`crate::trace`]), as JSON; absent in others.
pub const TRACE_SECTION: &str = ".p4shield.trace";

/// Maximum number of instructions of a linked program; a 64-bit constant counts as two. The compiler warns
/// of longer programs, and the verifier refuses them.
pub const MAX_INSTRUCTIONS: usize = 8192;

/// What the program needs from the engine besides one run for each packet: [`NeedRecord`]s. Without
/// the section it needs nothing. A loader refuses needs that it does not know or cannot meet.
pub const NEEDS_SECTION: &str = ".p4shield.needs";
/// Values of [`NeedRecord::need`]: what a divided program asks for, see [`crate::division`]. 1 was
/// replication by programs that older compilers divided otherwise.
pub mod need {
    /// It sends packets to multicast groups.
    pub const GROUP: u32 = 2;
    /// It clones packets.
    pub const CLONE: u32 = 3;
    /// It resubmits packets.
    pub const RESUBMIT: u32 = 4;
    /// It recirculates packets.
    pub const RECIRCULATE: u32 = 5;
    /// It reads how long packets waited in queues. A host without queues runs it, too: the values are 0.
    pub const QUEUES: u32 = 6;
    /// It calls functions that run in a compartment ([`crate::call`]).
    pub const CALLS: u32 = 7;
}

/// A need and its location in the source: 16 bytes in [`NEEDS_SECTION`], four `u32` in the order of
/// the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedRecord {
    /// The need, such as [`need::CLONE`].
    pub need: u32,
    /// Index into the file table of [`LINES_SECTION`].
    pub file: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

/// Header of a record in [`ENTRIES_SECTION`]: 8 bytes, two `u32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHeader {
    /// Offset of the map's definition in [`MAPS_SECTION`].
    pub map_offset: u32,
    /// Reserved, zero.
    pub flags: u32,
}

/// Source location of instructions: 16 bytes in [`LINES_SECTION`], four `u32` in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRecord {
    /// Index of the first instruction (in 8-byte slots of [`PROGRAM_SECTION`]) from this location.
    pub instruction: u32,
    /// Index into the file table.
    pub file: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}
