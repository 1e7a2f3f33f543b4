//! Selection of comparisons and branches.

use super::insn;
use super::machine::{CopySrc, MInst, Reg, Src};
use super::select::{InstSelector, imm64};
use crate::ir::{BinOp, Block, Cc, Op, Opnd, Term};

impl InstSelector<'_> {
    /// Returns the jump that is taken if a comparison holds.
    pub(super) fn comparison(&mut self, cc: Cc, a: Opnd, b: Opnd, w: u8) -> (u8, bool, Reg, Src) {
        let op = jump_op(cc);
        if cc.is_signed() && w != 32 && w != 64 {
            let (a, b) = (self.shift_to_top(a, w), self.shift_to_top(b, w));
            return (op, true, a, Src::Reg(b));
        }
        let ra = self.reg(a);
        if cc.is_signed() {
            let b = self.src(b, w == 64);
            return (op, w == 64, ra, b);
        }
        match b {
            // Values are zero-extended, so 64-bit comparisons work. Constants that do not fit them
            // may fit 32 bits.
            Opnd::C(c) => match imm64(c) {
                Some(imm) if imm >= 0 || w == 64 => (op, true, ra, Src::Imm(imm)),
                _ if w <= 32 => (op, false, ra, Src::Imm((c as u32).cast_signed())),
                _ => (op, true, ra, Src::Reg(self.reg(b))),
            },
            Opnd::V(_) => (op, true, ra, Src::Reg(self.reg(b))),
        }
    }

    /// Shifts a narrow signed value to the top of a register, where eBPF compares signs.
    fn shift_to_top(&mut self, o: Opnd, w: u8) -> Reg {
        let t = self.fresh();
        let up = 64 - u32::from(w);
        match o {
            Opnd::C(c) => self.constant(t, c << up),
            Opnd::V(_) => {
                self.copy(t, o);
                self.alu(insn::LSH, true, t, Src::Imm(up.cast_signed()));
            }
        }
        t
    }

    pub(super) fn terminator(&mut self, b: Block, next: Option<Block>) {
        match self.f.block(b).term {
            Term::Jump(to) => {
                self.phi_copies(b, to);
                self.fall_through(to, next);
            }
            Term::Branch(c, t, e) => self.branch(c, t, e, next),
            Term::Return(o) => {
                let src = self.src(o, true);
                self.push(MInst::Return(src));
            }
            Term::None => self.push(MInst::Return(Src::Imm(0))),
        }
    }

    fn phi_copies(&mut self, from: Block, to: Block) {
        let mut copies = Vec::new();
        for phi in &self.f.block(to).phis {
            let src = match self.f.phi_operand(*phi, from) {
                Some(Opnd::C(c)) => CopySrc::Const(c),
                Some(Opnd::V(v)) => CopySrc::Reg(self.reg_of(v)),
                None => continue,
            };
            copies.push((self.reg_of(*phi), src));
        }
        if !copies.is_empty() {
            self.push(MInst::Copies(copies));
        }
    }

    fn branch(&mut self, c: Opnd, t: Block, e: Block, next: Option<Block>) {
        let (cc, a, b, wide, taken, other) = match self.f.op_of(c) {
            Some(Op::Cmp(cc, x, y, w)) if self.is_fused(c) => {
                if let Some((m, value)) = self.bit_test(*cc, *x, *y) {
                    return self.test_bits(m, value, *cc == Cc::Ne, t, e, next);
                }
                let (cc, t, e) = if next == Some(t) { (cc.negate(), e, t) } else { (*cc, t, e) };
                let (op, wide, a, b) = self.comparison(cc, *x, *y, *w);
                (op, a, b, wide, t, e)
            }
            Some(Op::InBounds { base, len, end }) if self.is_fused(c) => {
                let (a, b) = self.bounds(*base, *len, *end);
                let (op, t, e) = if next == Some(e) { (insn::JLE, t, e) } else { (insn::JGT, e, t) };
                (op, a, Src::Reg(b), true, t, e)
            }
            _ => {
                let r = self.reg(c);
                let (op, t, e) = if next == Some(t) { (insn::JEQ, e, t) } else { (insn::JNE, t, e) };
                (op, r, Src::Imm(0), true, t, e)
            }
        };
        self.push(MInst::Branch { op: cc, wide, a, b, to: taken });
        self.fall_through(other, next);
    }

    /// Jumps unless the target is the next block.
    fn fall_through(&mut self, to: Block, next: Option<Block>) {
        if next != Some(to) {
            self.push(MInst::Jump(to));
        }
    }

    fn is_fused(&self, c: Opnd) -> bool {
        matches!(c, Opnd::V(v) if self.fused.contains(&v))
    }

    /// Returns the operands of `(x & y) != 0`, if the comparison has this form.
    fn bit_test(&self, cc: Cc, x: Opnd, y: Opnd) -> Option<(Opnd, Opnd)> {
        let Op::Bin(BinOp::And, a, b) = self.f.op_of(x)? else { return None };
        (matches!(cc, Cc::Eq | Cc::Ne) && y == Opnd::C(0) && self.is_fused(x)).then_some((*a, *b))
    }

    fn test_bits(&mut self, a: Opnd, b: Opnd, set: bool, t: Block, e: Block, next: Option<Block>) {
        let (taken, other) = if set { (t, e) } else { (e, t) };
        let a = self.reg(a);
        let (wide, b) = match b {
            Opnd::C(c) => match (imm64(c), u32::try_from(c)) {
                (Some(imm), _) if imm >= 0 => (true, Src::Imm(imm)),
                (_, Ok(n)) => (false, Src::Imm(n.cast_signed())),
                _ => (true, Src::Reg(self.reg(b))),
            },
            Opnd::V(_) => (true, Src::Reg(self.reg(b))),
        };
        self.push(MInst::Branch { op: insn::JSET, wide, a, b, to: taken });
        self.fall_through(other, next);
    }
}

const fn jump_op(cc: Cc) -> u8 {
    match cc {
        Cc::Eq => insn::JEQ,
        Cc::Ne => insn::JNE,
        Cc::Ult => insn::JLT,
        Cc::Ule => insn::JLE,
        Cc::Ugt => insn::JGT,
        Cc::Uge => insn::JGE,
        Cc::Slt => insn::JSLT,
        Cc::Sle => insn::JSLE,
        Cc::Sgt => insn::JSGT,
        Cc::Sge => insn::JSGE,
    }
}
