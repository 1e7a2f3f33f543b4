//! Why a run ended before the program returned. The packet is dropped.

/// Why a program was stopped. `slot` counts instruction slots of the linked program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stop {
    /// The budget is used up: the program loops too long.
    #[error("the instruction budget is used up")]
    Budget,
    /// Eight functions were active and one more was called.
    #[error("more than 8 functions are active")]
    CallDepth,
    /// The interpreter met an access to memory that the program may not touch.
    #[error("instruction {slot}: {bytes} bytes at {address:#x} are not the program's")]
    Memory {
        /// The instruction.
        slot: usize,
        /// The address.
        address: u64,
        /// Bytes that were to be read or written.
        bytes: usize,
    },
    /// The interpreter met a helper call with an argument that is not what the helper takes.
    #[error("instruction {slot}: wrong argument for helper {helper}")]
    Argument {
        /// The instruction.
        slot: usize,
        /// The helper.
        helper: u32,
    },
    /// There is no such helper.
    #[error("instruction {slot}: helper {helper} does not exist")]
    Helper {
        /// The instruction.
        slot: usize,
        /// The helper.
        helper: u32,
    },
}

impl Stop {
    /// The word for it in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Budget => "budget",
            Self::CallDepth => "call-depth",
            Self::Memory { .. } => "memory",
            Self::Argument { .. } => "argument",
            Self::Helper { .. } => "helper",
        }
    }
}
