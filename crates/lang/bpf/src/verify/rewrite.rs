//! Replacement of instructions for which PREVAIL 0.2.6 computes wrong or imprecise values.
//!
//! Wrong values, replaced by an approximation:
//!
//! * **64-bit byte swaps.** PREVAIL makes the unsigned result of a known value negative when its highest
//!   bit is set, and treats a branch on it as dead. The replacement makes PREVAIL forget the result.
//! * **Storing a negative constant of eight bytes.** The same happens to the value that is read back.
//!   The replacement stores a register that was set to the constant, which PREVAIL handles correctly.
//!
//! Imprecise values, which make PREVAIL refuse safe programs from clang (`-mcpu=v3`: 32-bit comparisons):
//!
//! * **Four-byte loads and swaps of two or four bytes.** PREVAIL forgets that the upper bits are zero.
//!   The replacement masks them, which does not change the value.
//!
//! One slot then stands for several of PREVAIL's instructions. The labels of the added ones follow the
//! program's own, see [`slot_of`].
//!
//! All labels carry [`NO_CALLBACK`], which saves most of the time of a long proof. For each label that a
//! helper could call back, PREVAIL searches a way to the exit, so the time grows with the square of the
//! program. None of our helpers calls back, and PREVAIL leaves out labels that look like jumps. A program
//! that passed such a label to a helper would be refused.

use prevail::cfg::label::Label;
use prevail::ir::syntax::{
    Bin, BinOp, Deref, Imm, Instruction, InstructionSeq, LoadMapAddress, Mem, Reg, UnOp, Value,
};
use prevail::spec::vm_isa::{AccessSize, R10_STACK_POINTER};

/// A register of PREVAIL that no program can name.
const SCRATCH: Reg = Reg { v: 11 };

/// Maximum number of instructions per slot.
const MAX_REPLACEMENTS: usize = 3;

/// [`Label::to`] of every instruction. PREVAIL's own jump labels have a target from 0 on, and its labels of
/// instructions have -1.
const NO_CALLBACK: i32 = -2;

/// Returns the label of an instruction.
const fn label_of(number: i32) -> Label {
    Label { stack_frame_prefix: String::new(), from: number, to: NO_CALLBACK, special_label: String::new() }
}

/// Returns the instructions for PREVAIL. `slots` is the length of the program, `unknown` the index of an
/// eight-byte map with unknown contents.
pub(super) fn rewrite(sequence: InstructionSeq, slots: usize, unknown: i32) -> InstructionSeq {
    let mut out = InstructionSeq::with_capacity(sequence.len());
    for (label, instruction, line) in sequence {
        let from = label.from;
        let mut line = Some(line);
        for (nth, i) in replacement(relabelled(instruction), unknown).into_iter().flatten().enumerate() {
            out.push((label_of(from + (slots * nth) as i32), i, line.take().flatten()));
        }
    }
    out
}

/// Returns the same instruction with [`label_of`] in its target.
fn relabelled(mut instruction: Instruction) -> Instruction {
    match &mut instruction {
        Instruction::Jmp(jump) => jump.target = label_of(jump.target.from),
        Instruction::CallLocal(call) => call.target = label_of(call.target.from),
        _ => {}
    }
    instruction
}

/// Returns the slots of the calls that lead to a label, from the text that PREVAIL makes of their labels:
/// `call/call`.
pub(super) fn callers(prefix: &str, slots: usize) -> Vec<usize> {
    let number = |part: &str| part.split(':').next().unwrap_or(part).parse().ok();
    prefix.split('/').filter_map(number).filter_map(|n| slot_of(n, slots)).collect()
}

/// Returns the slot of a label.
pub(super) fn slot_of(number: i32, slots: usize) -> Option<usize> {
    usize::try_from(number).ok().filter(|n| *n < slots * MAX_REPLACEMENTS).map(|n| n % slots)
}

fn replacement(instruction: Instruction, unknown: i32) -> [Option<Instruction>; MAX_REPLACEMENTS] {
    let known = |i: Instruction, then| [Some(i), Some(then), None];
    match instruction {
        Instruction::Un(mut un) => match un.op {
            UnOp::BE64 | UnOp::SWAP64 => {
                let address = LoadMapAddress { dst: SCRATCH, mapfd: unknown, offset: 0 };
                let forget = load_scratch(un.dst);
                let [address, forget] = [Instruction::LoadMapAddress(address), Instruction::Mem(forget)];
                // A shorter swap has the same condition, and no result below zero.
                un.op = UnOp::BE16;
                [Some(Instruction::Un(un)), Some(address), Some(forget)]
            }
            UnOp::BE16 | UnOp::LE16 | UnOp::SWAP16 => {
                let low = Bin { op: BinOp::AND, v: Value::Imm(Imm { v: 0xffff }), ..low_half(un.dst) };
                known(Instruction::Un(un), Instruction::Bin(Bin { is64: true, ..low }))
            }
            UnOp::BE32 | UnOp::LE32 | UnOp::SWAP32 => {
                let low = low_half(un.dst);
                known(Instruction::Un(un), Instruction::Bin(low))
            }
            UnOp::LE64 | UnOp::NEG => [Some(Instruction::Un(un)), None, None],
        },
        Instruction::Mem(store) if stores_negative(&store) => {
            let set = Bin { op: BinOp::MOV, dst: SCRATCH, v: store.value, is64: true, lddw: false };
            known(Instruction::Bin(set), Instruction::Mem(Mem { value: Value::Reg(SCRATCH), ..store }))
        }
        Instruction::Mem(load) => match zero_extended(&load) {
            Some(dst) => known(Instruction::Mem(load), Instruction::Bin(low_half(dst))),
            None => [Some(Instruction::Mem(load)), None, None],
        },
        other => [Some(other), None, None],
    }
}

/// Returns `w = w`.
const fn low_half(dst: Reg) -> Bin {
    Bin { op: BinOp::MOV, dst, v: Value::Reg(dst), is64: false, lddw: false }
}

fn stores_negative(mem: &Mem) -> bool {
    let negative = matches!(mem.value, Value::Imm(Imm { v }) if v.cast_signed() < 0);
    !mem.is_load && negative && mem.access.width == AccessSize::DWord
}

/// Returns the destination of a four-byte load. Stack loads are excluded: PREVAIL knows their values, and
/// they may read uninitialised padding, which may be copied but not masked.
fn zero_extended(mem: &Mem) -> Option<Reg> {
    let fits = mem.is_load && !mem.is_signed && mem.access.width == AccessSize::Word;
    match mem.value {
        Value::Reg(dst) if fits && mem.access.basereg != R10_STACK_POINTER => Some(dst),
        _ => None,
    }
}

fn load_scratch(dst: Reg) -> Mem {
    Mem {
        access: Deref { width: AccessSize::DWord, basereg: SCRATCH, offset: 0 },
        value: Value::Reg(dst),
        is_load: true,
        is_signed: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asm::assemble;
    use crate::verify::guard::AssertionSet;
    use crate::verify::prove::analyse;

    /// PREVAIL searches an exit for each of them, which took six of seven seconds for 2,000 instructions.
    #[test]
    fn prevail_searches_no_callback_targets() {
        let text = "mov r6, 1\ncall local f\njeq r6, 1, a\nmov r0, 2\na: exit\nf:\nmov r0, 1\nexit";
        let linked = assemble(text).expect("assembles");
        let targets = |set| {
            analyse(&linked, set, |a| Ok(a.context.program.callback_target_labels().len())).expect("analysed")
        };
        assert_ne!(targets(AssertionSet::PrevailOnly), 0, "PREVAIL no longer needs this");
        assert_eq!(targets(AssertionSet::All), 0);
    }

    #[test]
    fn callers_are_read_from_prevails_text() {
        assert!(callers("", 10).is_empty());
        assert_eq!(callers("3:-2/14:-2", 10), [3, 4]);
        assert_eq!(callers("3/4", 10), [3, 4]);
        assert!(callers("x:1/30:-2", 10).is_empty());
    }
}
