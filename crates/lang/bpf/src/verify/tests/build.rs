//! Short functions for writing programs, and a deterministic random generator.

use crate::insn::{Alu, Op, Reg, Source};
use crate::linked::Linked;

/// xorshift64*.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        let mut r = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            r.next();
        }
        r
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }
}

pub(super) fn reg(n: u8) -> Reg {
    Reg::new(n).expect("register")
}

pub(super) fn mov(dst: u8, imm: i32) -> Op {
    Op::Alu { op: Alu::Mov, wide: true, dst: reg(dst), src: Source::Imm(imm) }
}

pub(super) fn program(ops: &[Op]) -> Linked {
    let mut insns = Vec::new();
    for op in ops {
        let (first, second) = op.encode();
        insns.push(first);
        insns.extend(second);
    }
    Linked::from_insns(insns)
}
