//! Puts other instructions before PREVAIL where it computes wrongly, or less than it could.
//!
//! Wrong in 0.2.6, and replaced by something that says less:
//!
//! * **64-bit byte swaps.** Of a known value, the unsigned result comes out negative when its highest bit is set, and
//!   a branch on it that is taken counts as dead. We have the result forgotten.
//! * **Storing a negative constant of eight bytes.** The same, for the value that is read back. We have a register
//!   stored that was set to the constant, which PREVAIL does right.
//!
//! Less than is known, so that programs as clang writes them (`-mcpu=v3`: 32-bit comparisons) are refused for nothing:
//!
//! * **Four-byte loads and swaps of two or four bytes.** PREVAIL forgets that the upper bits are zero. We have them
//!   masked, which changes nothing.
//!
//! One slot then stands for several of PREVAIL's instructions. The added ones are numbered behind the program's own,
//! see [`slot_of`].

use prevail::cfg::label::Label;
use prevail::ir::syntax::{
    Bin, BinOp, Deref, Imm, Instruction, InstructionSeq, LoadMapAddress, Mem, Reg, UnOp, Value,
};
use prevail::spec::vm_isa::{AccessSize, R10_STACK_POINTER};

/// A register of PREVAIL's own, which no program can name.
const SCRATCH: Reg = Reg { v: 11 };

/// The most instructions that one slot becomes.
const MOST: usize = 3;

/// The instructions as PREVAIL shall see them. `slots` is the length of the program, `unknown` the number of a map of
/// eight bytes of which nothing is known.
pub(super) fn rewrite(sequence: InstructionSeq, slots: usize, unknown: i32) -> InstructionSeq {
    let mut out = InstructionSeq::with_capacity(sequence.len());
    for (label, instruction, line) in sequence {
        let from = label.from;
        let mut line = Some(line);
        for (nth, i) in replacement(instruction, unknown).into_iter().flatten().enumerate() {
            out.push((Label::new(from + (slots * nth) as i32), i, line.take().flatten()));
        }
    }
    out
}

/// The slot that the number of a label stands for.
pub(super) fn slot_of(number: i32, slots: usize) -> Option<usize> {
    usize::try_from(number).ok().filter(|n| *n < slots * MOST).map(|n| n % slots)
}

fn replacement(instruction: Instruction, unknown: i32) -> [Option<Instruction>; MOST] {
    let known = |i: Instruction, then| [Some(i), Some(then), None];
    match instruction {
        Instruction::Un(un) => match un.op {
            UnOp::BE64 | UnOp::SWAP64 => {
                let address = LoadMapAddress { dst: SCRATCH, mapfd: unknown, offset: 0 };
                let forget = load_scratch(un.dst);
                let [address, forget] = [Instruction::LoadMapAddress(address), Instruction::Mem(forget)];
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

/// `w = w`
const fn low_half(dst: Reg) -> Bin {
    Bin { op: BinOp::MOV, dst, v: Value::Reg(dst), is64: false, lddw: false }
}

fn stores_negative(mem: &Mem) -> bool {
    let negative = matches!(mem.value, Value::Imm(Imm { v }) if v.cast_signed() < 0);
    !mem.is_load && negative && mem.access.width == AccessSize::DWord
}

/// What a four-byte load writes. On the stack PREVAIL knows better, and there may be padding that was never written,
/// which may be copied, but not masked.
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
