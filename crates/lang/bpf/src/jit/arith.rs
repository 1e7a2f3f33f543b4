//! Translation of arithmetic. Division and operand widths differ between Cranelift and RFC 9669.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{InstBuilder as _, Type, Value};

use super::function::Translator;
use crate::insn::{Alu, Reg, Source, Swap, Width};

/// Returns the integer type of a width.
pub(super) const fn integer(width: Width) -> Type {
    match width {
        Width::B1 => I8,
        Width::B2 => I16,
        Width::B4 => I32,
        Width::B8 => I64,
    }
}

impl Translator<'_, '_> {
    /// Zero-extends a value to 64 bits.
    pub(super) fn zero_extend(&mut self, v: Value) -> Value {
        if self.b.func.dfg.value_type(v) == I64 { v } else { self.b.ins().uextend(I64, v) }
    }

    fn reduce(&mut self, v: Value, width: Width) -> Value {
        if width == Width::B8 { v } else { self.b.ins().ireduce(integer(width), v) }
    }

    pub(super) fn alu(&mut self, op: Alu, wide: bool, dst: Reg, src: Source) {
        let b = self.operand(src, wide);
        let v = if op == Alu::Mov {
            b
        } else {
            let a = self.register(dst, wide);
            self.binary(op, a, b, src)
        };
        let v = self.zero_extend(v);
        self.set(dst, v);
    }

    /// Both operands have the same width. Cranelift's shifts are modulo the width, as in RFC 9669.
    fn binary(&mut self, op: Alu, a: Value, b: Value, src: Source) -> Value {
        match op {
            Alu::Add => self.b.ins().iadd(a, b),
            Alu::Sub => self.b.ins().isub(a, b),
            Alu::Mul => self.b.ins().imul(a, b),
            Alu::Or => self.b.ins().bor(a, b),
            Alu::And => self.b.ins().band(a, b),
            Alu::Xor => self.b.ins().bxor(a, b),
            Alu::Lsh => self.b.ins().ishl(a, b),
            Alu::Rsh => self.b.ins().ushr(a, b),
            Alu::Arsh => self.b.ins().sshr(a, b),
            Alu::Neg => self.b.ins().ineg(a),
            Alu::Mov => b,
            Alu::Div | Alu::Mod | Alu::SDiv | Alu::SMod => match src {
                Source::Imm(0) if matches!(op, Alu::Div | Alu::SDiv) => self.like(a, 0),
                Source::Imm(0) => a,
                Source::Imm(imm) if imm != -1 => self.divide(op, a, b),
                _ => self.divide_checked(op, a, b),
            },
        }
    }

    fn like(&mut self, v: Value, constant: i64) -> Value {
        let ty = self.b.func.dfg.value_type(v);
        let constant = if ty == I32 { i64::from(constant as u32) } else { constant };
        self.b.ins().iconst(ty, constant)
    }

    /// Division by a divisor that is neither 0 nor -1.
    fn divide(&mut self, op: Alu, a: Value, b: Value) -> Value {
        match op {
            Alu::Div => self.b.ins().udiv(a, b),
            Alu::Mod => self.b.ins().urem(a, b),
            Alu::SDiv => self.b.ins().sdiv(a, b),
            _ => self.b.ins().srem(a, b),
        }
    }

    /// Division by any divisor. Cranelift traps on zero and, if signed, on the smallest value divided by -1.
    /// Such divisors become 1, and the result becomes that of RFC 9669. The remainder of a division by 1
    /// equals that of a division by -1.
    fn divide_checked(&mut self, op: Alu, a: Value, b: Value) -> Value {
        let zero = self.like(b, 0);
        let one = self.like(b, 1);
        let by_zero = self.b.ins().icmp(IntCC::Equal, b, zero);
        let mut divisor = self.b.ins().select(by_zero, one, b);
        let mut by_minus_one = None;
        if matches!(op, Alu::SDiv | Alu::SMod) {
            let minus_one = self.like(b, -1);
            let is = self.b.ins().icmp(IntCC::Equal, b, minus_one);
            divisor = self.b.ins().select(is, one, divisor);
            by_minus_one = Some(is);
        }
        let mut v = self.divide(op, a, divisor);
        if let (Alu::SDiv, Some(is)) = (op, by_minus_one) {
            let negated = self.b.ins().ineg(a);
            v = self.b.ins().select(is, negated, v);
        }
        let otherwise = if matches!(op, Alu::Div | Alu::SDiv) { zero } else { a };
        self.b.ins().select(by_zero, otherwise, v)
    }

    pub(super) fn mov_sx(&mut self, wide: bool, dst: Reg, src: Reg, from: Width) {
        let v = self.get(src);
        let v = self.reduce(v, from);
        let v = self.b.ins().sextend(if wide { I64 } else { I32 }, v);
        let v = self.zero_extend(v);
        self.set(dst, v);
    }

    /// Hosts are little-endian, so `le` only truncates.
    pub(super) fn swap(&mut self, kind: Swap, dst: Reg, width: Width) {
        let v = self.get(dst);
        let v = self.reduce(v, width);
        let v = match kind {
            Swap::ToLe => v,
            Swap::ToBe | Swap::Always => self.b.ins().bswap(v),
        };
        let v = self.zero_extend(v);
        self.set(dst, v);
    }
}
