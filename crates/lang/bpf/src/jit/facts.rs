//! Compile-time knowledge about registers within a basic block.
//!
//! It recognises the patterns that every compiler emits: a map or a constant loaded directly before a
//! call, and stores to the stack. Nothing is carried from one block to another.

use crate::alu::{alu, sign_extend};
use crate::insn::{Alu, Atomic, Op, Reg, Source};

/// Compile-time knowledge about one register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    /// Anything.
    Unknown,
    /// This number.
    Const(u64),
    /// The handle of this map.
    Map(u32),
    /// A stack address, provided that the program is verified.
    Stack,
}

/// One fact per register.
#[derive(Debug)]
pub(super) struct Facts([Fact; Reg::COUNT]);

impl Facts {
    /// The facts at the start of a block.
    pub(super) const fn new() -> Self {
        let mut facts = [Fact::Unknown; Reg::COUNT];
        facts[Reg::FRAME.index()] = Fact::Stack;
        Self(facts)
    }

    pub(super) const fn get(&self, r: Reg) -> Fact {
        self.0[r.index()]
    }

    /// Updates the facts after an instruction.
    pub(super) fn learn(&mut self, op: &Op) {
        match *op {
            Op::Alu { op, wide, dst, src } => self.0[dst.index()] = self.arithmetic(op, wide, dst, src),
            Op::MovSx { wide, dst, src, from } => {
                self.0[dst.index()] = match self.get(src) {
                    Fact::Const(v) if wide => Fact::Const(sign_extend(v, from)),
                    Fact::Const(v) => Fact::Const((sign_extend(v, from) as u32).into()),
                    _ => Fact::Unknown,
                };
            }
            Op::LoadImm { dst, value } => self.0[dst.index()] = Fact::Const(value),
            Op::LoadMap { dst, map } => self.0[dst.index()] = Fact::Map(map),
            Op::Swap { dst, .. } | Op::Load { dst, .. } => self.0[dst.index()] = Fact::Unknown,
            Op::Atomic { op: Atomic::CmpXchg, .. } => self.0[0] = Fact::Unknown,
            Op::Atomic { src, fetch: true, .. } => self.0[src.index()] = Fact::Unknown,
            Op::Call { .. } | Op::CallLocal { .. } => self.0[..6].fill(Fact::Unknown),
            Op::Atomic { .. } | Op::Store { .. } | Op::Jump { .. } | Op::Branch { .. } | Op::Exit => {}
        }
    }

    fn arithmetic(&self, op: Alu, wide: bool, dst: Reg, src: Source) -> Fact {
        let src = match src {
            Source::Reg(r) => self.get(r),
            Source::Imm(imm) => Fact::Const(imm as u64),
        };
        match (op, self.get(dst), src) {
            (Alu::Mov, _, Fact::Const(v)) => Fact::Const(alu(Alu::Mov, wide, 0, v)),
            (Alu::Mov, _, src) if wide => src,
            (Alu::Add | Alu::Sub, Fact::Stack, Fact::Const(_)) if wide => Fact::Stack,
            (op, Fact::Const(a), Fact::Const(b)) => Fact::Const(alu(op, wide, a, b)),
            _ => Fact::Unknown,
        }
    }
}
