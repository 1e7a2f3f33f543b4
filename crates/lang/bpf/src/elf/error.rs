//! Why an object cannot be read.

use p4shield_abi::context::PROGRAM_ABI_VERSION;

use super::MAX_OBJECT_BYTES;
use crate::linked::MAX_SLOTS;

/// What is wrong with an object.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// It is too large.
    #[error("the object has {bytes} bytes, the limit is {MAX_OBJECT_BYTES}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The ELF structure is damaged.
    #[error("not a readable ELF file")]
    Elf(#[from] object::Error),
    /// It is an ELF file of something else.
    #[error("not an eBPF object: compile with `p4shield compile`, or `clang -O2 -target bpf -c`")]
    NotBpf,
    /// It was compiled for another version of the program interface.
    #[error(
        "compiled for version {version} of the program interface, this is version {PROGRAM_ABI_VERSION}: compile again"
    )]
    Abi {
        /// The version that it was compiled for.
        version: u32,
    },
    /// A code section is not a whole number of instructions.
    #[error("code section {section} has {bytes} bytes, which is no whole number of instructions")]
    CodeSize {
        /// The section.
        section: String,
        /// Its size.
        bytes: usize,
    },
    /// There is too much code.
    #[error("the object has {slots} instruction slots or more, the limit is {MAX_SLOTS}")]
    TooLong {
        /// How many were counted.
        slots: usize,
    },
    /// A function's symbol makes no sense.
    #[error("function {name}: its symbol does not lie on instructions of its section")]
    Function {
        /// The function.
        name: String,
    },
    /// A relocation makes no sense.
    #[error("section {section}, offset {offset:#x}: {reason}")]
    Relocation {
        /// The code section.
        section: String,
        /// Offset in it.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// Code refers to data other than maps.
    #[error(
        "section {section}, offset {offset:#x}: refers to {symbol} in section {data}: global variables, constants and \
         strings are not supported; use a map, a local variable or #define"
    )]
    Data {
        /// The code section.
        section: String,
        /// Offset in it.
        offset: u64,
        /// What is referred to.
        symbol: String,
        /// Where that is.
        data: String,
    },
    /// A map definition makes no sense.
    #[error("section {section}: {reason}")]
    Maps {
        /// The section.
        section: String,
        /// What is wrong.
        reason: String,
    },
    /// The initial entries make no sense.
    #[error("section .p4shield.entries, offset {offset:#x}: {reason}")]
    Entries {
        /// Offset in the section.
        offset: usize,
        /// What is wrong.
        reason: String,
    },
    /// The program has needs that make no sense, or that this version does not know.
    #[error(
        "section .p4shield.needs asks for what this version does not know: update P4 Shield, or compile again"
    )]
    Needs,
    /// The program makes several packets of one.
    #[error(
        "the program multicasts (it sets standard_metadata.mcast_grp at {place}), but here one run makes one packet: leave \
         the group at 0 and let the switch replicate, or run the program under `p4shield test`"
    )]
    Replicates {
        /// File, line and column.
        place: String,
    },
    /// The line table makes no sense.
    #[error("section .p4shield.lines is damaged")]
    Lines,
}
