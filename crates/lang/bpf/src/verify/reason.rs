//! Categories of refusals.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Category of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Reason {
    /// An instruction that does not exist or is not supported.
    Instruction,
    /// A jump or call that leaves its function or lands inside an instruction; code without an end.
    ControlFlow,
    /// Too many instructions, with each function counted at each call.
    Size,
    /// A helper that does not exist.
    Helper,
    /// A map that does not exist or whose definition is invalid.
    Map,
    /// A packet access that is not proven to lie before `data_end`.
    PacketBounds,
    /// A stack access outside the function's frame.
    StackBounds,
    /// An access outside the context.
    ContextBounds,
    /// An access outside a map's value.
    MapValueBounds,
    /// A write to `data` or `data_end`.
    ContextPointer,
    /// A use of a map value that may be null.
    Null,
    /// A use of an uninitialised register or of uninitialised stack bytes.
    Uninitialised,
    /// An address that would become visible as a number, or a number that is used as an address.
    PointerLeak,
    /// A register whose type does not fit the operation.
    Type,
    /// A comparison or subtraction of values without a common origin.
    Comparison,
    /// A loop that is not proven to end.
    Loop,
    /// Recursion, or too many active functions.
    CallDepth,
    /// The verifier reached a limit or failed internally, so there is no proof.
    Unproven,
}

/// The limit that ended a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Limit {
    /// CPU time.
    Cpu,
    /// Memory.
    Memory,
    /// Elapsed time.
    Wall,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "CPU time",
            Self::Memory => "memory",
            Self::Wall => "time",
        })
    }
}
