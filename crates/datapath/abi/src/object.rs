//! Names and formats inside a program's ELF object (`EM_BPF`, 64-bit, little-endian).
//!
//! Objects of our compiler and of `clang -target bpf` are read by the same loader; clang's lack the sections that
//! only our compiler writes, and then nothing is assumed from them.

/// Code section of a program; the entry point is the first function in it, or the one named [`ENTRY_SYMBOL`].
/// Code of a tenant's C extern may stand in `.text` (or here) and is linked by symbol name.
pub const PROGRAM_SECTION: &str = "p4";
/// The entry point's symbol.
pub const ENTRY_SYMBOL: &str = "p4_main";
/// Array of [`crate::map::MapDefinition`], one global symbol each.
pub const MAPS_SECTION: &str = "maps";
/// Map contents to install at load: records of [`EntryHeader`], the key (`key_size` bytes) and the value
/// (`value_size` bytes), each record padded with zeros to a multiple of four bytes.
pub const ENTRIES_SECTION: &str = ".p4shield.entries";
/// One little-endian `u32`: [`crate::context::PROGRAM_ABI_VERSION`] of the compiler. Absent in clang's objects.
pub const ABI_SECTION: &str = ".p4shield.abi";
/// Line table: records of [`LineRecord`], sorted by instruction, then the file names and source lines as below.
/// Layout: `u32` record count, the records, `u32` file count, then per file `u32` length and UTF-8 bytes.
pub const LINES_SECTION: &str = ".p4shield.lines";

/// What the program needs of whoever runs it, besides a run for each packet: records of [`NeedRecord`]. Without it nothing
/// is needed. A loader refuses a need that it does not know or cannot meet.
pub const NEEDS_SECTION: &str = ".p4shield.needs";
/// [`NeedRecord::need`]: the program sends packets to groups, as [`crate::context::action`] says.
pub const NEED_REPLICATION: u32 = 1;

/// A need and where in the source it arises: 16 bytes in [`NEEDS_SECTION`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedRecord {
    /// What is needed, such as [`NEED_REPLICATION`].
    pub need: u32,
    /// Index into the file table of [`LINES_SECTION`].
    pub file: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

/// Head of a record in [`ENTRIES_SECTION`]: 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHeader {
    /// Offset of the map's definition in [`MAPS_SECTION`].
    pub map_offset: u32,
    /// Zero; reserved.
    pub flags: u32,
}

/// Where an instruction comes from: 16 bytes in [`LINES_SECTION`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRecord {
    /// Index of the first instruction (in 8-byte slots of [`PROGRAM_SECTION`]) that comes from here.
    pub instruction: u32,
    /// Index into the file table.
    pub file: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}
