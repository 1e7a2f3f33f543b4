//! Reasons why the engine stops a run. The packet is dropped.

/// Reason why the engine stopped a program. `slot` is a slot of the linked program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stop {
    /// The run exceeded its instruction budget.
    #[error("the program exceeded its instruction budget")]
    Budget,
    /// A call exceeded the limit of eight active functions.
    #[error("a call exceeds the limit of 8 active functions")]
    CallDepth,
    /// The interpreter refused an access outside the program's memory.
    #[error("instruction {slot}: access to {bytes} bytes at {address:#x}, outside the program's memory")]
    Memory {
        /// Slot of the instruction.
        slot: usize,
        /// Address of the access.
        address: u64,
        /// Size of the access in bytes.
        bytes: usize,
    },
    /// The interpreter refused an argument of a helper call.
    #[error("instruction {slot}: invalid argument for helper {helper}")]
    Argument {
        /// Slot of the call.
        slot: usize,
        /// Number of the helper.
        helper: u32,
    },
    /// The helper does not exist.
    #[error("instruction {slot}: helper {helper} does not exist")]
    Helper {
        /// Slot of the call.
        slot: usize,
        /// Number of the helper.
        helper: u32,
    },
}

impl Stop {
    /// Label of the reason in metrics.
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
