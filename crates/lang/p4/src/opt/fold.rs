//! Constant folding, and identities that do not depend on how the operands are computed.

use crate::ir::{BinOp, Opnd, mask};

/// Evaluates `a op b` at width `w`.
pub(crate) fn constant(op: BinOp, a: u64, b: u64, w: u8) -> u64 {
    let r = match op {
        BinOp::Add => a.wrapping_add(b),
        BinOp::Sub => a.wrapping_sub(b),
        BinOp::Mul => a.wrapping_mul(b),
        // As eBPF defines it.
        BinOp::Div => a.checked_div(b).unwrap_or(0),
        BinOp::Mod => a.checked_rem(b).unwrap_or(a),
        BinOp::And => a & b,
        BinOp::Or => a | b,
        BinOp::Xor => a ^ b,
        BinOp::Shl => shl(a, b),
        BinOp::Shr => shr(a, b),
        BinOp::Sar => {
            let up = 64 - u32::from(w.max(1));
            (((a << up).cast_signed() >> up) >> b.min(63)).cast_unsigned()
        }
    };
    r & mask(w)
}

/// Shifts left; bits beyond 64 are lost.
pub(crate) const fn shl(a: u64, by: u64) -> u64 {
    if by < 64 { a << by } else { 0 }
}

/// Shifts right without the sign.
pub(crate) const fn shr(a: u64, by: u64) -> u64 {
    if by < 64 { a >> by } else { 0 }
}

/// Returns `c` with its lowest `bytes` bytes swapped.
pub(crate) const fn swap(bytes: u8, c: u64) -> u64 {
    c.swap_bytes() >> (64 - 8 * bytes as u32)
}

/// Returns the result if it needs no instruction.
pub(crate) fn bin(op: BinOp, a: Opnd, b: Opnd, w: u8) -> Option<Opnd> {
    use BinOp as B;
    let zero = Some(Opnd::C(0));
    match (op, a, b) {
        (_, Opnd::C(x), Opnd::C(y)) => Some(Opnd::C(constant(op, x, y, w))),
        (B::Add | B::Or | B::Xor, x, Opnd::C(0)) | (B::Add | B::Or | B::Xor, Opnd::C(0), x) => Some(x),
        (B::Sub | B::Shl | B::Shr | B::Sar, x, Opnd::C(0)) => Some(x),
        (B::And | B::Mul, _, Opnd::C(0)) | (B::And | B::Mul, Opnd::C(0), _) => zero,
        (B::Shl | B::Shr | B::Sar | B::Div | B::Mod, Opnd::C(0), _) => zero,
        (B::Mul | B::Div, x, Opnd::C(1)) | (B::Mul, Opnd::C(1), x) => Some(x),
        (B::And, x, Opnd::C(m)) | (B::And, Opnd::C(m), x) if w == 64 && m == u64::MAX => Some(x),
        (B::Or, _, Opnd::C(m)) | (B::Or, Opnd::C(m), _) if m == mask(w) => Some(Opnd::C(m)),
        (B::And | B::Or, x, y) if x == y => Some(x),
        (B::Sub | B::Xor, x, y) if x == y => zero,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_wrap_at_their_width() {
        assert_eq!(constant(BinOp::Add, 15, 1, 4), 0);
        assert_eq!(constant(BinOp::Sub, 0, 1, 24), 0xff_ffff);
        assert_eq!(constant(BinOp::Sar, 0b1000, 1, 4), 0b1100);
        assert_eq!(constant(BinOp::Shl, 1, 48, 48), 0);
        assert_eq!(swap(2, 0x1234), 0x3412);
        assert_eq!(swap(4, 0x1234_5678), 0x7856_3412);
    }
}
