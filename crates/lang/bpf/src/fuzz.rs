//! Entry points for fuzzers and for fuzz campaigns in tests.

use crate::elf::Object;
use crate::insn::{INSN_SIZE, Insn};
use crate::link::link;
use crate::linked::{Linked, Verified};
use crate::program::{EngineOptions, Mode};
use crate::raw::RawProgram;
use crate::stop::Stop;

/// Parses an object and links it alone; returns whether both succeeded. Must not panic, hang or
/// allocate without bound, whatever the bytes.
#[must_use]
pub fn load_and_link(bytes: &[u8]) -> bool {
    Object::parse(bytes).is_ok_and(|object| link(&[object]).is_ok_and(|linked| linked.digest() != [0; 32]))
}

/// Decodes any bytes as a message between a verifier process and its owner. The process works on
/// hostile programs, so its messages are hostile, too. Must not panic, hang or allocate without bound.
pub fn verifier_message(bytes: &[u8]) {
    let linked = Linked::from_insns(vec![Insn::from_bytes([0x95, 0, 0, 0, 0, 0, 0, 0])]);
    crate::verify::isolated::decode_any_message(bytes, &linked);
}

/// Fill byte of the program's memory.
const MEMORY: u8 = 0xa5;

/// Results of both engines for one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineResults {
    /// The interpreter's result.
    pub interpreter: Result<u64, Stop>,
    /// The JIT's.
    pub jit: Result<u64, Stop>,
}

/// Runs a program on both engines with 64 bytes of memory. The bytes are instruction slots. Returns
/// `None` if the structure is invalid or the interpreter refuses an access. Both results must be equal.
///
/// The interpreter checks every access of this run. Programs are deterministic, so the JIT can safely
/// run the same program on equal memory afterwards.
#[must_use]
pub fn run_both(bytes: &[u8]) -> Option<EngineResults> {
    let (slots, _) = bytes.as_chunks::<INSN_SIZE>();
    run_both_linked(Linked::from_insns(slots.iter().map(|&s| Insn::from_bytes(s)).collect()))
}

/// Like [`run_both`], for a program with functions.
#[must_use]
pub fn run_both_linked(linked: Linked) -> Option<EngineResults> {
    let options = |mode| EngineOptions { mode, budget: 1 << 16, ..EngineOptions::default() };
    // SAFETY: the JIT runs only programs whose accesses the interpreter has just found to be safe.
    // Programs are deterministic, and both runs use equal memory and stack at the same addresses.
    let verified = unsafe { Verified::assume(linked) };
    let mut program = RawProgram::load(&verified, &options(Mode::Interpreter)).ok()?;
    let mut memory = [MEMORY; 64];
    let interpreter = program.run(&mut memory);
    if matches!(interpreter, Err(Stop::Memory { .. } | Stop::Argument { .. } | Stop::Helper { .. })) {
        return None;
    }
    let after = memory;
    memory.fill(MEMORY);
    program.recompile(&verified, &options(Mode::Jit)).ok()?;
    let jit = program.run(&mut memory);
    assert_eq!(memory, after, "both engines leave the same memory");
    Some(EngineResults { interpreter, jit })
}
