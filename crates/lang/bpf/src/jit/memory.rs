//! Translation of loads, stores and atomic operations.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder as _, MemFlagsData, Value};

use super::arith::integer;
use super::facts::Fact;
use super::function::{Translator, constant};
use crate::env::offset;
use crate::insn::{Atomic, Reg, Source, Width};

/// Flags of the program's accesses: unaligned, and without faults, as the verifier has proven.
const fn plain() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

impl Translator<'_, '_> {
    pub(super) fn load(&mut self, dst: Reg, src: Reg, off: i16, width: Width, signed: bool) {
        let base = self.get(src);
        let v = self.b.ins().load(integer(width), plain(), base, i32::from(off));
        let v = if signed { self.b.ins().sextend(I64, v) } else { self.zero_extend(v) };
        self.set(dst, v);
    }

    pub(super) fn store(&mut self, dst: Reg, off: i16, width: Width, src: Source) {
        let v = self.operand(src, true);
        let v = if width == Width::B8 { v } else { self.b.ins().ireduce(integer(width), v) };
        let base = self.get(dst);
        self.b.ins().store(plain(), v, base, i32::from(off));
        self.note_store(dst, base, off);
    }

    /// Records whether a store wrote to the packet's buffer. Stores to the stack cannot.
    fn note_store(&mut self, register: Reg, base: Value, off: i16) {
        let Some(variable) = self.rewritten.filter(|_| self.facts.get(register) != Fact::Stack) else {
            return;
        };
        let off = self.b.ins().iconst(I64, i64::from(off));
        let address = self.b.ins().iadd(base, off);
        let start = self.b.ins().load(I64, constant(), self.env, offset::BUFFER_BASE);
        let len = self.b.ins().load(I64, constant(), self.env, offset::BUFFER_LEN);
        let at = self.b.ins().isub(address, start);
        let hit = self.b.ins().icmp(IntCC::UnsignedLessThan, at, len);
        let before = self.b.use_var(variable);
        let after = self.b.ins().bor(before, hit);
        self.b.def_var(variable, after);
    }

    /// Only one thread accesses the memory of a program (packet copy, stack, context, maps), so a plain read
    /// and a plain write suffice, at any alignment and without a bus lock.
    pub(super) fn atomic(&mut self, op: Atomic, wide: bool, dst: Reg, src: Reg, off: i16, fetch: bool) {
        let ty = integer(if wide { Width::B8 } else { Width::B4 });
        let base = self.get(dst);
        let operand = self.register(src, wide);
        let old = self.b.ins().load(ty, plain(), base, i32::from(off));
        let new = match op {
            Atomic::Add => self.b.ins().iadd(old, operand),
            Atomic::Or => self.b.ins().bor(old, operand),
            Atomic::And => self.b.ins().band(old, operand),
            Atomic::Xor => self.b.ins().bxor(old, operand),
            Atomic::Xchg => operand,
            Atomic::CmpXchg => {
                let expected = self.register(Reg::R0, wide);
                let same = self.b.ins().icmp(IntCC::Equal, old, expected);
                self.b.ins().select(same, operand, old)
            }
        };
        self.b.ins().store(plain(), new, base, i32::from(off));
        let old = self.zero_extend(old);
        match op {
            Atomic::CmpXchg => self.set(Reg::R0, old),
            _ if fetch => self.set(src, old),
            _ => {}
        }
        self.note_store(dst, base, off);
    }
}
