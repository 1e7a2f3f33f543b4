//! Entries for fuzzers, and for the campaigns in our own tests.

use crate::bare::Machine;
use crate::elf::Object;
use crate::insn::{INSN_SIZE, Insn};
use crate::link::link;
use crate::linked::{Linked, Verified};
use crate::program::{EngineOptions, Mode};
use crate::stop::Stop;

/// Reads an object and links it with itself alone; tells whether that worked. Must not panic, hang or allocate
/// without bound, whatever the bytes.
#[must_use]
pub fn load_and_link(bytes: &[u8]) -> bool {
    Object::parse(bytes).is_ok_and(|object| link(&[object]).is_ok_and(|linked| linked.digest() != [0; 32]))
}

/// Any bytes as what the owner of a verifier's process and that process say to each other. The process works on hostile
/// programs, so what it says may be anything. Must not panic, hang or allocate without bound.
pub fn verifier_message(bytes: &[u8]) {
    let linked = Linked::from_insns(vec![Insn::from_bytes([0x95, 0, 0, 0, 0, 0, 0, 0])]);
    crate::verify::isolated::hear_anything(bytes, &linked);
}

/// What the memory of a program is filled with.
const MEMORY: u8 = 0xa5;

/// What both engines make of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The interpreter's result.
    pub interpreter: Result<u64, Stop>,
    /// The JIT's.
    pub jit: Result<u64, Stop>,
}

/// Runs a program on both engines, with memory of 64 bytes, if it is structurally sound and the interpreter finds no
/// wrong access in it; `None` if not. The bytes are instruction slots. Both results have to be the same.
///
/// The interpreter checks every access of this very run, so the JIT, which runs the same program on equal memory, is
/// safe to run after it.
#[must_use]
pub fn run_both(bytes: &[u8]) -> Option<Pair> {
    let (slots, _) = bytes.as_chunks::<INSN_SIZE>();
    run_both_linked(Linked::from_insns(slots.iter().map(|&s| Insn::from_bytes(s)).collect()))
}

/// As [`run_both`], for a program with functions.
#[must_use]
pub fn run_both_linked(linked: Linked) -> Option<Pair> {
    let options = |mode| EngineOptions { mode, budget: 1 << 16, ..EngineOptions::default() };
    // SAFETY: the JIT runs only what the interpreter has just found to stay within its memory. Programs are
    // deterministic, and both runs see the same memory and stack at the same addresses.
    let verified = unsafe { Verified::assume(linked) };
    let mut machine = Machine::load(&verified, &options(Mode::Interpreter)).ok()?;
    let mut memory = [MEMORY; 64];
    let interpreter = machine.run(&mut memory);
    if matches!(interpreter, Err(Stop::Memory { .. } | Stop::Argument { .. } | Stop::Helper { .. })) {
        return None;
    }
    let after = memory;
    memory.fill(MEMORY);
    machine.switch(&verified, &options(Mode::Jit)).ok()?;
    let jit = machine.run(&mut memory);
    assert_eq!(memory, after, "both engines leave the same memory");
    Some(Pair { interpreter, jit })
}
