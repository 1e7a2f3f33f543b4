//! Raw programs: RFC 9669 without packets, context and maps, **for tests and benchmarks only**.
//!
//! The public conformance suite runs unverified programs on one block of memory. R1 is its address
//! (0 if it is empty), R2 its length. The only helper is number 5, which returns its first argument.

use crate::env::{AddressRange, Env};
use crate::helpers::{Arg, Helper, Inline};
use crate::linked::Verified;
use crate::program::{EngineOptions, LoadError, LoadedCode};
use crate::stop::Stop;

static HELPERS: [Helper; 1] =
    [Helper { number: 5, args: [Arg::Any; 5], function: first_argument, inline: Inline::No, charges: false }];

unsafe extern "C" fn first_argument(_: *mut Env, r1: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    r1
}

/// A loaded program that runs on a block of memory.
pub struct RawProgram {
    code: LoadedCode,
}

impl RawProgram {
    /// Loads a program. An unsafe program reaches this function only through [`Verified::assume`].
    ///
    /// # Errors
    /// As [`crate::Program::load`].
    pub fn load(verified: &Verified, options: &EngineOptions) -> Result<Self, LoadError> {
        Ok(Self { code: LoadedCode::load(verified.linked(), options, &HELPERS)? })
    }

    /// Compiles the program again with other options. Its stack keeps its address.
    ///
    /// # Errors
    /// As [`RawProgram::load`].
    pub fn recompile(&mut self, verified: &Verified, options: &EngineOptions) -> Result<(), LoadError> {
        self.code.recompile(verified.linked(), options)
    }

    /// Runs the program on `memory` with a cleared stack, and returns R0.
    ///
    /// # Errors
    /// If the engine stops the program.
    pub fn run(&mut self, memory: &mut [u8]) -> Result<u64, Stop> {
        let env = self.code.env();
        env.stack.0.fill(0);
        let len = memory.len() as u64;
        let base = if memory.is_empty() { 0 } else { memory.as_mut_ptr().expose_provenance() as u64 };
        env.memory = AddressRange { base, len };
        // SAFETY: `memory` is borrowed for the run; the author of the `Verified` guarantees the rest.
        let result = unsafe { self.code.run(|_| [base, len]) };
        self.code.env().memory = AddressRange::default();
        result
    }
}
