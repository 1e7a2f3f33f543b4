//! Static verification: proves that a linked program is safe before it may run.
//!
//! A program that [`verify`] accepts touches no memory but its stack, its packet, its context and the values of its
//! maps, reads nothing that it did not write, shows no address to anyone, and ends. The proof is PREVAIL's, an abstract
//! interpreter (crate `prevail`), on exactly the slots that the engine runs, plus what PREVAIL leaves open:
//!
//! 1. `structure` looks at each instruction with the engine's own decoder, at control flow, functions and maps.
//! 2. `guard` adds assertions, `rewrite` replaces what PREVAIL computes wrongly by something that says less.
//!
//! Which gaps these close is told there, gap by gap, and attacked one by one in `tests/gaps.rs` beside it.
//!
//! The proof takes time that grows with the square of the program, and PREVAIL may panic on hostile input, so
//! [`Isolated`] runs it in a child process with limits, and [`Cache`] remembers what came out.
//!
//! # What the engine has to keep to
//! * Frames of [`STACK_FRAME_BYTES`] for each function, one below the other without gaps, [`MAX_FRAMES`] of them.
//! * `data_end - data <= MAX_PACKET_BYTES` ([`MAX_PACKET_BYTES`]), also after a helper resized the packet.
//! * Helpers do what their prototypes in `platform.rs` say.
//! * A budget of instructions for nested loops: each loop alone ends after at most 100000 rounds, but nested ones
//!   multiply.

mod cache;
mod explain;
mod guard;
mod inherited;
pub mod isolated;
mod platform;
mod prove;
mod refusal;
mod rewrite;
mod structure;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use cache::Cache;
pub use isolated::{Budget, Isolated, IsolatedError, serve_stdio};
pub use platform::{MAX_FRAMES, MAX_PACKET_BYTES, STACK_FRAME_BYTES};
pub use refusal::{Finding, Limit, Place, Reason, Refusal, SourcePlace};
pub use structure::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

use crate::linked::{Linked, Verified};

/// Names the rules that a program was judged by: results of other versions do not count. Changes whenever this module
/// or the version of `prevail` does.
pub const VERIFIER_VERSION: &str = "p4shield-verify 2, prevail 0.2.6";

/// How large a program may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The most slots.
    pub instructions: usize,
    /// The most slots of a function when each function that it calls is counted at each call.
    pub expanded: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { instructions: 4096, expanded: 8192 }
    }
}

/// What is known of a program that was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Slots of the program.
    pub instructions: usize,
    /// The most rounds that any one loop takes; 0 without loops.
    pub max_loop_count: u32,
    /// [`VERIFIER_VERSION`] of the verifier that accepted it.
    pub verifier: String,
    /// How long the proof took.
    pub elapsed: Duration,
}

/// Judges a program in this thread, with no limit on time and memory but the program's size: for tests and tools. What
/// judges the programs of others uses [`Isolated`].
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

/// Like [`check`], and gives the program the right to run.
///
/// # Errors
/// As [`check`].
pub fn verify(linked: Linked, limits: &Limits) -> Result<(Verified, Report), Refusal> {
    let report = check(&linked, limits)?;
    Ok((Verified::proven(linked), report))
}
