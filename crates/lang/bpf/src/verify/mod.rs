//! Static verification: proves that a linked program is safe before it may run.
//!
//! An accepted program accesses only its stack, its packet, its context and the values of its maps,
//! reads only initialised data, reveals no address, and ends. The proof comes from PREVAIL, an abstract
//! interpreter (crate `prevail`), on exactly the slots that the engine runs. Our own modules close
//! PREVAIL's gaps:
//!
//! 1. `structure` checks every instruction with the engine's own decoder, and control flow, functions
//!    and maps.
//! 2. `guard` adds assertions. `rewrite` replaces instructions for which PREVAIL computes wrong values
//!    by others for which it computes less.
//!
//! The docs of these modules list the gaps. `tests/gaps.rs` attacks each of them.
//!
//! The time of the proof grows with the square of the program, and PREVAIL may panic on hostile input.
//! [`Isolated`] therefore runs the proof in a child process with limits, and [`Cache`] stores results.
//!
//! # Requirements on the engine
//! * Each function has a frame of [`STACK_FRAME_BYTES`]; up to [`MAX_FRAMES`] frames are adjacent.
//! * `data_end - data <= MAX_PACKET_BYTES` ([`MAX_PACKET_BYTES`]), also after a helper resized the packet.
//! * Helpers comply with their prototypes in `platform.rs`.
//! * An instruction budget bounds nested loops: each single loop ends after at most 100000 iterations,
//!   but nested loops multiply.

mod cache;
mod explain;
mod guard;
mod inherited;
pub mod isolated;
mod location;
mod platform;
mod prove;
mod reason;
mod refusal;
mod rewrite;
mod structure;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use p4shield_abi::object::MAX_INSTRUCTIONS;
use serde::{Deserialize, Serialize};

pub use cache::Cache;
pub use isolated::{Budget, Isolated, IsolatedError, serve_stdio};
pub use location::{Location, SourceLocation};
pub use platform::{MAX_FRAMES, MAX_PACKET_BYTES, STACK_FRAME_BYTES};
pub use reason::{Limit, Reason};
pub use refusal::{Finding, Refusal};
pub use structure::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

use crate::linked::{Linked, Verified};

/// Version of the verification rules; results of other versions are invalid. It changes with this
/// module and with the version of `prevail`.
pub const VERIFIER_VERSION: &str = "p4shield-verify 3, prevail 0.2.6";

/// Limits on the size of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Maximum number of slots.
    pub instructions: usize,
    /// Maximum number of slots of a function, with each called function counted at each call.
    pub expanded: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { instructions: MAX_INSTRUCTIONS, expanded: 2 * MAX_INSTRUCTIONS }
    }
}

/// Report on an accepted program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Number of slots of the program.
    pub instructions: usize,
    /// Maximum number of iterations of a loop; 0 without loops.
    pub max_loop_count: u32,
    /// [`VERIFIER_VERSION`] of the verifier that accepted it.
    pub verifier: String,
    /// Duration of the proof.
    pub elapsed: Duration,
}

/// Verifies a program in this thread. Only the program's size limits time and memory, so this is for
/// tests and tools; programs of tenants go through [`Isolated`].
///
/// # Errors
/// [`Refusal::Program`] if the program is not proven to be safe.
pub fn check(linked: &Linked, limits: &Limits) -> Result<Report, Refusal> {
    let start = Instant::now();
    structure::check(linked, limits)?;
    let max_loop_count = prove::prove(linked)?;
    Ok(Report {
        instructions: linked.insns.len(),
        max_loop_count,
        verifier: VERIFIER_VERSION.to_owned(),
        elapsed: start.elapsed(),
    })
}

/// Like [`check`]; also marks the program as verified.
///
/// # Errors
/// As [`check`].
pub fn verify(linked: Linked, limits: &Limits) -> Result<(Verified, Report), Refusal> {
    let report = check(&linked, limits)?;
    Ok((Verified::proven(linked), report))
}
