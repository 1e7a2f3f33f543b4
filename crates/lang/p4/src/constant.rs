//! Integers of any size, for compile-time evaluation.

use num_bigint::{BigInt, BigUint, Sign};
use num_traits::{One, Signed, ToPrimitive, Zero};

/// The widest integer type. The compiler refuses wider literals and shifts, so that no input makes
/// it compute with numbers of excessive size.
pub(crate) const MAX_WIDTH: u32 = 4096;

/// An integer literal: its value, and its width and signedness if specified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Literal {
    pub(crate) value: BigInt,
    pub(crate) width: Option<(u32, bool)>,
}

/// Parses `123`, `0xFF`, `8w5`, `4s0b1010`, `0o17`, `0d9`, with `_` between digits.
pub(crate) fn parse_literal(text: &str) -> Option<Literal> {
    if text.len() > 2 * MAX_WIDTH as usize {
        return None;
    }
    let prefix = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (width, digits) = match text.as_bytes().get(prefix) {
        Some(k @ (b'w' | b's')) if prefix > 0 => {
            let w: u32 = text[..prefix].parse().ok().filter(|w| *w <= MAX_WIDTH)?;
            (Some((w, *k == b's')), &text[prefix + 1..])
        }
        _ => (None, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        Some("0d") => (10, &lower[2..]),
        _ => (10, lower.as_str()),
    };
    let digits = digits.replace('_', "");
    let value = BigUint::parse_bytes(digits.as_bytes(), radix)?;
    (value.bits() <= u64::from(MAX_WIDTH)).then(|| Literal { value: value.into(), width })
}

/// Returns `2^w - 1`.
pub(crate) fn mask(w: u32) -> BigInt {
    (BigInt::one() << w) - 1
}

/// Returns `v` modulo `2^w`: in `0..2^w`, or in `-2^(w-1)..2^(w-1)` if signed.
pub(crate) fn wrap(v: &BigInt, w: u32, signed: bool) -> BigInt {
    if w == 0 {
        return BigInt::zero();
    }
    let r: BigInt = v & mask(w);
    if signed && r.bit(u64::from(w) - 1) { r - (BigInt::one() << w) } else { r }
}

/// Whether `v` is a value of `bit<w>` or `int<w>`.
pub(crate) fn fits(v: &BigInt, w: u32, signed: bool) -> bool {
    wrap(v, w, signed) == *v
}

/// Returns the nearest value of `bit<w>` or `int<w>`.
pub(crate) fn saturate(v: &BigInt, w: u32, signed: bool) -> BigInt {
    let (min, max) = if signed {
        let half = BigInt::one() << w.saturating_sub(1);
        (-half.clone(), half - 1)
    } else {
        (BigInt::zero(), mask(w))
    };
    v.clone().clamp(min, max)
}

/// Returns the 64-bit limbs of `v` modulo `2^w`, lowest first.
pub(crate) fn limbs(v: &BigInt, w: u32) -> Vec<u64> {
    let u = wrap(v, w, false);
    let count = w.div_ceil(64).max(1) as usize;
    let mut digits = u.iter_u64_digits().collect::<Vec<_>>();
    digits.resize(count, 0);
    digits
}

/// Returns a shift distance or index; `None` if it is negative or excessively large.
pub(crate) fn small(v: &BigInt) -> Option<u32> {
    (v.sign() != Sign::Minus).then(|| v.to_u32()).flatten()
}

/// Whether `v` is within the compiler's own limit.
pub(crate) fn bounded(v: &BigInt) -> bool {
    v.abs().bits() <= u64::from(MAX_WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_in_all_notations() {
        let v = |t: &str| parse_literal(t).map(|l| (l.value.to_i64().unwrap(), l.width));
        assert_eq!(v("1_000"), Some((1000, None)));
        assert_eq!(v("8w0xfF"), Some((255, Some((8, false)))));
        assert_eq!(v("4s0b0101"), Some((5, Some((4, true)))));
        assert_eq!(v("0o17"), Some((15, None)));
        assert_eq!(v("0d19"), Some((19, None)));
        for bad in ["0x", "8w", "1z", "99999w1", "0b2"] {
            assert_eq!(parse_literal(bad), None, "{bad}");
        }
    }

    #[test]
    fn wrapping_and_saturating() {
        let b = |n: i64| BigInt::from(n);
        assert_eq!(wrap(&b(16), 4, false), b(0));
        assert_eq!(wrap(&b(-1), 4, false), b(15));
        assert_eq!(wrap(&b(8), 4, true), b(-8));
        assert_eq!(saturate(&b(99), 4, true), b(7));
        assert_eq!(saturate(&b(-99), 4, false), b(0));
        assert!(fits(&b(-8), 4, true) && !fits(&b(8), 4, true));
        assert_eq!(limbs(&b(-1), 72), vec![u64::MAX, 0xff]);
    }
}
