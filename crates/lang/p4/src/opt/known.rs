//! Analysis of the bits of a value that are certainly zero.

use super::fold;
use crate::ir::{BinOp, Function, Op, Opnd, Ty, mask};

/// Maximum depth of operations that the analysis follows.
const DEPTH: u8 = 6;

/// Returns a mask of the bits that may be set.
pub(super) fn possible(f: &Function, o: Opnd) -> u64 {
    bits(f, o, DEPTH)
}

fn bits(f: &Function, o: Opnd, depth: u8) -> u64 {
    let v = match o {
        Opnd::C(c) => return c,
        Opnd::V(v) => v,
    };
    let Ty::Int(w) = f.inst(v).ty else { return u64::MAX };
    let all = mask(w);
    if depth == 0 {
        return all;
    }
    let get = |o: Opnd| bits(f, o, depth - 1);
    all & match &f.inst(v).op {
        Op::Bin(BinOp::And, a, b) => get(*a) & get(*b),
        Op::Bin(BinOp::Or | BinOp::Xor, a, b) => get(*a) | get(*b),
        Op::Bin(BinOp::Shl, a, Opnd::C(n)) => fold::shl(get(*a), *n),
        Op::Bin(BinOp::Shr, a, Opnd::C(n)) => fold::shr(get(*a), *n),
        Op::Bin(BinOp::Shr | BinOp::Div, a, _) => fill(get(*a)),
        // The remainder of a division by zero is the dividend, as in eBPF.
        Op::Bin(BinOp::Mod, a, Opnd::C(n)) if *n > 0 => fill(get(*a)) & fill(*n),
        Op::Bin(BinOp::Mod, a, _) => fill(get(*a)),
        Op::Bin(BinOp::Add, a, b) => {
            let (x, y) = (get(*a), get(*b));
            // The sum may be one bit longer; common trailing zeros remain.
            x.checked_add(y).map_or(u64::MAX, |s| fill(s | x | y)) & !low_zeros(x | y)
        }
        Op::Bin(BinOp::Mul, a, b) => fill(get(*a)).checked_mul(fill(get(*b))).map_or(u64::MAX, fill),
        Op::Swap(n, a) => fold::swap(*n, get(*a)),
        Op::Phi(ins) => ins.iter().fold(0, |m, (_, o)| m | get(*o)),
        _ => all,
    }
}

/// Returns a mask of all bits up to the highest one set.
const fn fill(x: u64) -> u64 {
    if x == 0 { 0 } else { u64::MAX >> x.leading_zeros() }
}

/// Returns a mask of the zeros below the lowest bit set.
const fn low_zeros(x: u64) -> u64 {
    if x == 0 { 0 } else { (1 << x.trailing_zeros()) - 1 }
}

/// Returns an upper bound of an operand.
pub(crate) fn max(f: &Function, o: Opnd) -> u64 {
    possible(f, o)
}
