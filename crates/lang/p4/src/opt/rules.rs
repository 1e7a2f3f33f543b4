//! Rewrite rules for single operations.

use super::{fold, known};
use crate::ir::{BinOp, Cc, Function, Op, Opnd, Ty, mask};

/// The replacement of an operation.
pub(super) enum Rewrite {
    /// An existing operand.
    Use(Opnd),
    /// Another operation of the same type.
    Op(Op),
    /// Another operation on the result of a new one.
    Chain(Op, Ty, fn(Opnd, u64, u8) -> Op, u64, u8),
}

/// Returns a better form of an operation, or `None`.
pub(super) fn rewrite(f: &Function, op: &Op, ty: Ty) -> Option<Rewrite> {
    match op {
        Op::Bin(b, x, y) => {
            let Ty::Int(w) = ty else { return None };
            binary(f, *b, *x, *y, w)
        }
        Op::Cmp(cc, x, y, w) => compare(f, *cc, *x, *y, *w),
        Op::Swap(n, x) => match (x, f.op_of(*x)) {
            (Opnd::C(c), _) => Some(Rewrite::Use(Opnd::C(fold::swap(*n, *c)))),
            (_, Some(Op::Swap(m, y))) if m == n => Some(Rewrite::Use(*y)),
            _ => swapped_part(f, *n, *x),
        },
        Op::Phi(ins) => {
            let first = ins.first()?.1;
            ins.iter().all(|(_, o)| *o == first).then_some(Rewrite::Use(first))
        }
        Op::Offset(p, by) => offset(f, *p, *by),
        Op::InBounds { base, len, end } => constant_offset(f, *base).and_then(|(p, c)| {
            let len = len.checked_add(u32::try_from(c).ok()?)?;
            Some(Rewrite::Op(Op::InBounds { base: p, len, end: *end }))
        }),
        Op::Load { base, offset, bytes } => {
            let (base, offset) = moved(f, *base, *offset)?;
            Some(Rewrite::Op(Op::Load { base, offset, bytes: *bytes }))
        }
        Op::Store { base, offset, bytes, value } => {
            let (base, offset) = moved(f, *base, *offset)?;
            Some(Rewrite::Op(Op::Store { base, offset, bytes: *bytes, value: *value }))
        }
        _ => None,
    }
}

/// Splits a pointer into a base and a constant offset.
fn constant_offset(f: &Function, p: Opnd) -> Option<(Opnd, u64)> {
    match f.op_of(p)? {
        Op::Offset(q, Opnd::C(c)) => Some((*q, *c)),
        _ => None,
    }
}

fn moved(f: &Function, base: Opnd, offset: i32) -> Option<(Opnd, i32)> {
    let (p, c) = constant_offset(f, base)?;
    // Instructions have 16-bit offsets.
    let offset = offset.checked_add(i32::try_from(c).ok()?).filter(|o| *o < 0x7fff)?;
    Some((p, offset))
}

/// Moves constants outermost, so that bounds checks and loads can absorb them.
fn offset(f: &Function, p: Opnd, by: Opnd) -> Option<Rewrite> {
    if by == Opnd::C(0) {
        return Some(Rewrite::Use(p));
    }
    let (q, c) = constant_offset(f, p)?;
    match by {
        Opnd::C(d) => Some(Rewrite::Op(Op::Offset(q, Opnd::C(c.checked_add(d)?)))),
        Opnd::V(_) => {
            Some(Rewrite::Chain(Op::Offset(q, by), Ty::Packet, |p, c, _| Op::Offset(p, Opnd::C(c)), c, 0))
        }
    }
}

fn binary(f: &Function, op: BinOp, x: Opnd, y: Opnd, w: u8) -> Option<Rewrite> {
    use BinOp as B;
    if let Some(o) = fold::bin(op, x, y, w) {
        // An operand that is wider than the result is not the result.
        if f.bits(o) <= w {
            return Some(Rewrite::Use(o));
        }
    }
    let commutes = matches!(op, B::Add | B::Mul | B::And | B::Or | B::Xor);
    if commutes && matches!(x, Opnd::C(_)) {
        return Some(Rewrite::Op(Op::Bin(op, y, x)));
    }
    let Opnd::C(c) = y else { return None };
    let possible = known::possible(f, x);
    let inner = f.op_of(x);
    match (op, inner) {
        (B::And, _) if possible & !c == 0 && possible & !mask(w) == 0 => Some(Rewrite::Use(x)),
        (B::And, _) if possible & c == 0 => Some(Rewrite::Use(Opnd::C(0))),
        (B::And, Some(Op::Bin(B::And, z, Opnd::C(d)))) => {
            Some(Rewrite::Op(Op::Bin(B::And, *z, Opnd::C(c & d & mask(width_of(f, x))))))
        }
        (B::Mul, _) if c.is_power_of_two() => {
            Some(Rewrite::Op(Op::Bin(B::Shl, x, Opnd::C(u64::from(c.trailing_zeros())))))
        }
        (B::Div, _) if c.is_power_of_two() => {
            Some(Rewrite::Op(Op::Bin(B::Shr, x, Opnd::C(u64::from(c.trailing_zeros())))))
        }
        (B::Mod, _) if c.is_power_of_two() => Some(Rewrite::Op(Op::Bin(B::And, x, Opnd::C(c - 1)))),
        (B::Sub, _) => Some(Rewrite::Op(Op::Bin(B::Add, x, Opnd::C(c.wrapping_neg() & mask(w))))),
        (B::Add, Some(Op::Bin(B::Add, z, Opnd::C(d)))) if width_of(f, x) == w => {
            Some(Rewrite::Op(Op::Bin(B::Add, *z, Opnd::C(c.wrapping_add(*d) & mask(w)))))
        }
        (B::Shr, _) if c >= 64 || possible >> c == 0 => Some(Rewrite::Use(Opnd::C(0))),
        (B::Shr, Some(Op::Bin(B::Shr, z, Opnd::C(d)))) if c + d < 64 && fits(f, *z, x) => {
            Some(Rewrite::Op(Op::Bin(B::Shr, *z, Opnd::C(c + d))))
        }
        (B::Shr, Some(Op::Bin(B::And, z, Opnd::C(m))))
            if c < 64 && (m >> c).wrapping_add(1).is_power_of_two() && *m <= mask(width_of(f, x)) =>
        {
            let make: fn(Opnd, u64, u8) -> Op = |o, m, _| Op::Bin(B::And, o, Opnd::C(m));
            Some(Rewrite::Chain(Op::Bin(B::Shr, *z, y), Ty::Int(width_of(f, *z).max(w)), make, m >> c, 0))
        }
        (B::Shr, Some(Op::Bin(B::Shl, z, Opnd::C(d)))) => unshift(f, *z, *d, c, width_of(f, x)),
        // The complement of a comparison is the opposite comparison.
        (B::Xor, Some(Op::Cmp(cc, a, b, cw))) if w == 1 && c == 1 => {
            Some(Rewrite::Op(Op::Cmp(cc.negate(), *a, *b, *cw)))
        }
        (B::Xor, Some(Op::Bin(B::Xor, z, Opnd::C(d)))) if fits(f, *z, x) => {
            Some(Rewrite::Op(Op::Bin(B::Xor, *z, Opnd::C(c ^ d))))
        }
        _ => None,
    }
}

/// Rewrites `n` bytes of a byte-swapped number, swapped back, as bytes of the number itself.
fn swapped_part(f: &Function, n: u8, x: Opnd) -> Option<Rewrite> {
    let width = u64::from(n) * 8;
    let shifted = match f.op_of(x)? {
        Op::Bin(BinOp::And, y, Opnd::C(m)) if *m == mask(n * 8) => *y,
        _ if known::possible(f, x) <= mask(n * 8) => x,
        _ => return None,
    };
    let (swapped, k) = match f.op_of(shifted)? {
        Op::Bin(BinOp::Shr, y, Opnd::C(k)) if k % 8 == 0 => (*y, *k),
        _ => (shifted, 0),
    };
    let Op::Swap(m, y) = f.op_of(swapped)? else { return None };
    let from = (u64::from(*m) * 8).checked_sub(k + width)?;
    let make: fn(Opnd, u64, u8) -> Op = |o, m, _| Op::Bin(BinOp::And, o, Opnd::C(m));
    Some(Rewrite::Chain(Op::Bin(BinOp::Shr, *y, Opnd::C(from)), Ty::Int(m * 8), make, mask(n * 8), 0))
}

/// Whether the result `x` of an operation that keeps the width of `z` contains all its bits: every
/// operation wraps around at the width of its result, which may be narrower than an operand.
fn fits(f: &Function, z: Opnd, x: Opnd) -> bool {
    known::possible(f, z) <= mask(width_of(f, x))
}

fn width_of(f: &Function, o: Opnd) -> u8 {
    match o {
        Opnd::V(v) => {
            if let Ty::Int(w) = f.inst(v).ty {
                w
            } else {
                64
            }
        }
        Opnd::C(_) => 64,
    }
}

/// Rewrites `(z << d) >> c` if the left shift loses no bits.
fn unshift(f: &Function, z: Opnd, d: u64, c: u64, w: u8) -> Option<Rewrite> {
    let possible = known::possible(f, z);
    let lost = d >= 64 || (possible << d) >> d != possible || possible << d & !mask(w) != 0;
    if lost {
        return None;
    }
    match d.cmp(&c) {
        std::cmp::Ordering::Equal => Some(Rewrite::Use(z)),
        std::cmp::Ordering::Greater => Some(Rewrite::Op(Op::Bin(BinOp::Shl, z, Opnd::C(d - c)))),
        std::cmp::Ordering::Less => Some(Rewrite::Op(Op::Bin(BinOp::Shr, z, Opnd::C(c - d)))),
    }
}

fn compare(f: &Function, cc: Cc, x: Opnd, y: Opnd, w: u8) -> Option<Rewrite> {
    let yes = |b: bool| Some(Rewrite::Use(Opnd::C(u64::from(b))));
    match (x, y) {
        (Opnd::C(a), Opnd::C(b)) => return yes(cc.holds(a, b, w)),
        (Opnd::C(_), Opnd::V(_)) => return Some(Rewrite::Op(Op::Cmp(cc.swap(), y, x, w))),
        _ if x == y => return yes(cc.holds(0, 0, 1)),
        _ => {}
    }
    let Opnd::C(c) = y else { return None };
    if !matches!(x, Opnd::V(v) if matches!(f.inst(v).ty, Ty::Int(_))) {
        return None;
    }
    if !cc.is_signed() {
        let top = known::max(f, x);
        match cc {
            Cc::Eq if c & !top != 0 => return yes(false),
            Cc::Ne if c & !top != 0 => return yes(true),
            Cc::Ult if top < c => return yes(true),
            Cc::Ule if top <= c => return yes(true),
            Cc::Ugt if top <= c => return yes(false),
            Cc::Uge if top < c => return yes(false),
            Cc::Ult if c == 0 => return yes(false),
            Cc::Uge if c == 0 => return yes(true),
            // One form for comparisons with zero.
            Cc::Ugt if c == 0 => return Some(Rewrite::Op(Op::Cmp(Cc::Ne, x, y, w))),
            Cc::Ule if c == 0 => return Some(Rewrite::Op(Op::Cmp(Cc::Eq, x, y, w))),
            Cc::Ult if c == 1 => return Some(Rewrite::Op(Op::Cmp(Cc::Eq, x, Opnd::C(0), w))),
            Cc::Uge if c == 1 => return Some(Rewrite::Op(Op::Cmp(Cc::Ne, x, Opnd::C(0), w))),
            _ => {}
        }
    }
    if !matches!(cc, Cc::Eq | Cc::Ne) {
        return None;
    }
    equality(f, cc, x, c, w)
}

/// Rewrites `x == c` or `x != c`: undoes operations between the comparison and a load, mainly byte swaps.
fn equality(f: &Function, cc: Cc, x: Opnd, c: u64, w: u8) -> Option<Rewrite> {
    let with = |z: Opnd, c: u64, w: u8| Some(Rewrite::Op(Op::Cmp(cc, z, Opnd::C(c), w)));
    let masked = |z: Opnd, m: u64, c: u64, w: u8| {
        let and = Op::Bin(BinOp::And, z, Opnd::C(m));
        let make: fn(Opnd, u64, u8) -> Op = if cc == Cc::Eq {
            |o, c, w| Op::Cmp(Cc::Eq, o, Opnd::C(c), w)
        } else {
            |o, c, w| Op::Cmp(Cc::Ne, o, Opnd::C(c), w)
        };
        Some(Rewrite::Chain(and, Ty::Int(w), make, c, w))
    };
    if width_of(f, x) == 1 && (c == 1) == (cc == Cc::Eq) {
        return Some(Rewrite::Use(x));
    }
    match f.op_of(x)? {
        Op::Swap(n, z) if width_of(f, *z) == n * 8 => with(*z, fold::swap(*n, c), n * 8),
        // The comparison of a comparison with 0 is its complement.
        Op::Cmp(inner, a, b, cw) => Some(Rewrite::Op(Op::Cmp(inner.negate(), *a, *b, *cw))),
        Op::Bin(BinOp::Add, z, Opnd::C(d)) if width_of(f, *z) == w && width_of(f, x) == w => {
            with(*z, c.wrapping_sub(*d) & mask(w), w)
        }
        Op::Bin(BinOp::Xor, z, Opnd::C(d)) if fits(f, *z, x) => with(*z, c ^ d, w),
        // The comparison of a difference with zero.
        Op::Bin(BinOp::Sub, a, b) if c == 0 && width_of(f, x) == w && f.bits(*a).max(f.bits(*b)) <= w => {
            Some(Rewrite::Op(Op::Cmp(cc, *a, *b, w)))
        }
        Op::Bin(BinOp::Shl, z, Opnd::C(n)) if *n < 64 => {
            // The shift wraps around at its own width, which may be less than that of the comparison.
            let (possible, own) = (known::possible(f, *z), mask(width_of(f, x)) & mask(w));
            let exact = possible << n >> n == possible && possible << n & !own == 0;
            exact.then(|| with(*z, c >> n, w)).flatten()
        }
        Op::Bin(BinOp::Shr, z, Opnd::C(n)) if *n < 32 => {
            let zw = width_of(f, *z);
            let m = mask(zw) & !mask(*n as u8);
            // Masks of more than 32 bits do not fit an instruction.
            let whole = known::possible(f, *z) >> n <= mask(width_of(f, x));
            (zw <= 32 && whole && c << n <= mask(zw)).then(|| masked(*z, m, c << n, zw)).flatten()
        }
        Op::Bin(BinOp::And, z, Opnd::C(m)) => match f.op_of(*z)? {
            Op::Swap(n, y) if *n <= 4 && width_of(f, *y) == n * 8 => {
                masked(*y, fold::swap(*n, *m), fold::swap(*n, c), n * 8)
            }
            Op::Bin(BinOp::Shr, y, Opnd::C(n)) if *n < 32 && width_of(f, *y) <= 32 => {
                let zw = width_of(f, *y);
                let (m, c) = ((m & mask(width_of(f, *z))) << n, c << n);
                (m <= mask(zw) && c <= mask(zw)).then(|| masked(*y, m, c, zw)).flatten()
            }
            _ => None,
        },
        _ => None,
    }
}
