//! Errors of reading objects.

use p4shield_abi::context::PROGRAM_ABI_VERSION;

use super::MAX_OBJECT_BYTES;
use crate::linked::MAX_SLOTS;

/// Reason why an object cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The object is too large.
    #[error("the object has {bytes} bytes, the limit is {MAX_OBJECT_BYTES}")]
    TooLarge {
        /// Size of the object.
        bytes: usize,
    },
    /// The ELF structure is damaged.
    #[error("not a readable ELF file")]
    Elf(#[from] object::Error),
    /// The ELF file is not an eBPF object.
    #[error("not an eBPF object: compile with `p4shield compile`, or `clang -O2 -target bpf -c`")]
    NotBpf,
    /// The object was compiled for another version of the program interface.
    #[error(
        "the object was compiled for version {version} of the program interface, this is version \
         {PROGRAM_ABI_VERSION}: compile again"
    )]
    Abi {
        /// Version that the object was compiled for.
        version: u32,
    },
    /// The size of a code section is not a multiple of the instruction size.
    #[error("code section {section} has {bytes} bytes, which is not a multiple of 8: compile again")]
    CodeSize {
        /// Name of the section.
        section: String,
        /// Size of the section.
        bytes: usize,
    },
    /// The object contains too much code.
    #[error("the object has {slots} instruction slots or more, the limit is {MAX_SLOTS}")]
    TooLong {
        /// Number of slots counted so far.
        slots: usize,
    },
    /// The symbol of a function is invalid.
    #[error("function {name}: its symbol does not match the instructions of its section")]
    Function {
        /// The function.
        name: String,
    },
    /// A relocation is invalid.
    #[error("section {section}, offset {offset:#x}: {reason}")]
    Relocation {
        /// The code section.
        section: String,
        /// Offset in the section.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// Code refers to data other than maps.
    #[error(
        "section {section}, offset {offset:#x}: refers to {symbol} in section {data}: global variables, \
         constants and strings are not supported; use a map, a local variable or #define"
    )]
    Data {
        /// The code section.
        section: String,
        /// Offset in it.
        offset: u64,
        /// Name of the symbol.
        symbol: String,
        /// Section that contains the symbol.
        data: String,
    },
    /// A map definition is invalid.
    #[error("section {section}: {reason}")]
    Maps {
        /// The section.
        section: String,
        /// What is wrong.
        reason: String,
    },
    /// The initial entries are invalid.
    #[error("section .p4shield.entries, offset {offset:#x}: {reason}")]
    Entries {
        /// Offset in the section.
        offset: usize,
        /// What is wrong.
        reason: String,
    },
    /// The requirements of the program are invalid or unknown to this version.
    #[error(
        "section .p4shield.needs states a requirement that this version does not know: update P4 Shield, \
         or compile again"
    )]
    Needs,
    /// The program makes several packets of one, or judges one several times.
    #[error(
        "the program {what} (at {place}), but a P4 VM judges each packet once and makes no copies: \
         leave that to the switch, or run the program with `p4shield switch run` or `p4shield test`"
    )]
    Divided {
        /// The act, such as "clones packets".
        what: &'static str,
        /// File, line and column.
        place: String,
    },
    /// The line table is invalid.
    #[error("section .p4shield.lines is damaged: compile again")]
    Lines,
}
