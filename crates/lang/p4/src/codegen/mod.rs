//! The code generator: IR to eBPF. [`select`] chooses instructions over virtual registers,
//! [`alloc`] assigns machine registers, [`emit`] lays out the code, [`peephole`] removes redundant
//! instructions, [`elf`] writes the object with the [`schema`] of its state, and [`size`] warns of
//! programs that are too long to load.
//!
//! The code uses ISA version 3 (32-bit ALU and jumps), nothing of version 4.

mod alloc;
pub(crate) mod asm;
mod branches;
pub(crate) mod elf;
mod emit;
mod fusion;
mod insn;
mod liveness;
mod lookups;
mod machine;
mod moves;
mod peephole;
pub(crate) mod schema;
mod select;
pub(crate) mod size;
mod spill;

use crate::diagnostics::{Code, Sink};
use crate::ir::Function;
use crate::source::Span;
use insn::Insn;

/// Stack size of a program in bytes.
const STACK: u32 = 512;
/// Maximum number of instructions that a jump can span.
const MAX_INSNS: usize = 32_000;

/// Code with the source location of each instruction.
#[derive(Debug, Default)]
pub(crate) struct MachineCode {
    pub(crate) insns: Vec<Insn>,
    pub(crate) spans: Vec<Span>,
}

/// Generates code; reports a program that exceeds the limits of eBPF.
///
/// The errors are at the program's longest header stack if that one explains them, else at `end`.
pub(crate) fn generate(
    f: &mut Function,
    end: Span,
    stack: Option<&size::LongStack>,
    sink: &mut Sink,
) -> MachineCode {
    let at = stack.map_or(end, |s| s.at);
    let advice = |otherwise: &str| stack.map_or_else(|| otherwise.to_owned(), size::LongStack::advice);

    moves::split_edges(f);
    let mut machine = select::select(f);
    let mut frame = alloc::allocate(&machine);
    if frame.size > spill::WORTHWHILE {
        spill::provide(f, &mut machine);
        frame = alloc::allocate(&machine);
    }
    if let Some(spill_memory) = machine.spill_memory {
        spill::size(f, spill_memory, frame.memory_values);
    }
    let mut program = emit::emit(&machine, &frame);
    peephole::run(&mut program);
    if frame.size > STACK || frame.memory_values > spill::MAX_VALUES {
        let bytes = frame.size + 8 * frame.memory_values;
        let message = format!("the program needs {bytes} bytes for values that are live at once");
        let hint = "reduce the number of values in use at once, or use smaller table keys";
        sink.report(Code::TooLarge, at, message, advice(hint));
    }
    if program.insns.len() > MAX_INSNS {
        let message = format!("the program has more than {MAX_INSNS} instructions");
        sink.report(Code::TooLarge, at, message, advice("call large actions from fewer places"));
    }
    program
}

/// Returns the number of instructions on the longest path through the program; a 64-bit constant
/// counts as one.
pub(crate) fn longest_path(insns: &[Insn]) -> usize {
    let mut longest = vec![0usize; insns.len() + 1];
    for (i, insn) in insns.iter().enumerate().rev() {
        // All jumps go forward.
        let target = insn.target(i).min(insns.len());
        let rest = match insn.flow() {
            insn::ControlFlow::Next => longest[i + 1],
            insn::ControlFlow::Jump => longest[target],
            insn::ControlFlow::Branch => longest[i + 1].max(longest[target]),
            insn::ControlFlow::Exit => 0,
        };
        longest[i] = 1 + rest;
    }
    longest.first().copied().unwrap_or(0)
}
