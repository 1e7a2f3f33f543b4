//! A bare machine: RFC 9669 and nothing of P4, **for tests and benchmarks only**.
//!
//! The public conformance suite runs programs that no verifier has seen, on one block of memory. R1 is its address
//! (0 if it is empty), R2 its length. The only helper is number 5, which returns its first argument.

use crate::env::{Env, Span};
use crate::helpers::{Arg, Helper, Inline};
use crate::linked::Verified;
use crate::program::{Core, EngineOptions, LoadError};
use crate::stop::Stop;

static HELPERS: [Helper; 1] =
    [Helper { number: 5, args: [Arg::Any; 5], function: first_argument, inline: Inline::No }];

unsafe extern "C" fn first_argument(_: *mut Env, r1: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    r1
}

/// A loaded program without a packet.
pub struct Machine {
    core: Core,
}

impl Machine {
    /// Loads a program. Programs that are not safe reach here only through [`Verified::assume`].
    ///
    /// # Errors
    /// As [`crate::Program::load`].
    pub fn load(verified: &Verified, options: &EngineOptions) -> Result<Self, LoadError> {
        Ok(Self { core: Core::load(verified.linked(), options, &HELPERS)? })
    }

    /// Executes the same program otherwise from now on; its stack stays at its address.
    ///
    /// # Errors
    /// As [`Machine::load`].
    pub fn switch(&mut self, verified: &Verified, options: &EngineOptions) -> Result<(), LoadError> {
        self.core.switch(verified.linked(), options)
    }

    /// Runs it on `memory` with an empty stack, and returns R0.
    ///
    /// # Errors
    /// If it was stopped.
    pub fn run(&mut self, memory: &mut [u8]) -> Result<u64, Stop> {
        let env = self.core.env();
        env.stack.0.fill(0);
        let len = memory.len() as u64;
        let base = if memory.is_empty() { 0 } else { memory.as_mut_ptr().expose_provenance() as u64 };
        env.memory = Span { base, len };
        // SAFETY: `memory` is borrowed for the run; whoever made the `Verified` vouches for the program.
        let result = unsafe { self.core.run(|_| [base, len]) };
        self.core.env().memory = Span::default();
        result
    }
}
