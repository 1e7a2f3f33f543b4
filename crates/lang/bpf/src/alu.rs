//! Arithmetic and conditions of RFC 9669, section 4, for both engines.
//!
//! The interpreter computes with these functions, and the JIT folds constants with them. Values are 64-bit
//! registers. A 32-bit operation takes the lower halves and clears the upper half of its result.

use crate::insn::{Alu, Cond, Swap, Width};

/// Computes `a op b`.
pub(crate) fn alu(op: Alu, wide: bool, a: u64, b: u64) -> u64 {
    if wide { alu64(op, a, b) } else { alu32(op, a as u32, b as u32).into() }
}

/// Defines `alu64` and `alu32`, which differ only in the width of their operands.
macro_rules! alu_of_width {
    ($name:ident, $unsigned:ty, $signed:ty) => {
        fn $name(op: Alu, a: $unsigned, b: $unsigned) -> $unsigned {
            match op {
                Alu::Add => a.wrapping_add(b),
                Alu::Sub => a.wrapping_sub(b),
                Alu::Mul => a.wrapping_mul(b),
                Alu::Div => a.checked_div(b).unwrap_or(0),
                Alu::SDiv if b == 0 => 0,
                Alu::SDiv => (a as $signed).wrapping_div(b as $signed) as $unsigned,
                Alu::Or => a | b,
                Alu::And => a & b,
                Alu::Lsh => a.wrapping_shl(b as u32),
                Alu::Rsh => a.wrapping_shr(b as u32),
                Alu::Neg => a.wrapping_neg(),
                Alu::Mod => a.checked_rem(b).unwrap_or(a),
                Alu::SMod if b == 0 => a,
                Alu::SMod => (a as $signed).wrapping_rem(b as $signed) as $unsigned,
                Alu::Xor => a ^ b,
                Alu::Mov => b,
                Alu::Arsh => (a as $signed).wrapping_shr(b as u32) as $unsigned,
            }
        }
    };
}

alu_of_width!(alu64, u64, i64);
alu_of_width!(alu32, u32, i32);

/// Sign-extends the lower `from` bytes of `v` to 64 bits.
pub(crate) const fn sign_extend(v: u64, from: Width) -> u64 {
    match from {
        Width::B1 => v as i8 as u64,
        Width::B2 => v as i16 as u64,
        Width::B4 => v as i32 as u64,
        Width::B8 => v,
    }
}

/// Swaps and truncates a value on a little-endian host.
pub(crate) const fn swap(kind: Swap, width: Width, v: u64) -> u64 {
    match (kind, width) {
        (Swap::ToLe, Width::B1 | Width::B8) | (_, Width::B1) => v,
        (Swap::ToLe, Width::B2) => v as u16 as u64,
        (Swap::ToLe, Width::B4) => v as u32 as u64,
        (_, Width::B2) => (v as u16).swap_bytes() as u64,
        (_, Width::B4) => (v as u32).swap_bytes() as u64,
        (_, Width::B8) => v.swap_bytes(),
    }
}

/// Returns whether `a cond b` holds.
pub(crate) const fn holds(cond: Cond, wide: bool, a: u64, b: u64) -> bool {
    let (a, b) = if wide { (a, b) } else { (a as u32 as u64, b as u32 as u64) };
    let (sa, sb) = if wide { (a as i64, b as i64) } else { (a as i32 as i64, b as i32 as i64) };
    match cond {
        Cond::Eq => a == b,
        Cond::Ne => a != b,
        Cond::Set => a & b != 0,
        Cond::Gt => a > b,
        Cond::Ge => a >= b,
        Cond::Lt => a < b,
        Cond::Le => a <= b,
        Cond::Sgt => sa > sb,
        Cond::Sge => sa >= sb,
        Cond::Slt => sa < sb,
        Cond::Sle => sa <= sb,
    }
}
