//! Arithmetic on values of any width, in limbs of 64 bits.

use super::Lowering;
use super::storage::{limb_count, limb_width};
use crate::ast::BinaryOp;
use crate::hir::Expr;
use crate::ir::{BinOp, Cc, Opnd};

impl Lowering<'_> {
    /// Returns bits `lo` to `lo + width - 1` of a value.
    pub(super) fn extract_bits(&mut self, limbs: &[Opnd], lo: u32, width: u32) -> Vec<Opnd> {
        (0..limb_count(width))
            .map(|i| {
                let w = limb_width(width, i);
                self.extract_word(limbs, lo + 64 * i as u32, w)
            })
            .collect()
    }

    /// Returns at most 64 bits of a value, from bit `lo`; bits beyond the value are zero.
    pub(super) fn extract_word(&mut self, limbs: &[Opnd], lo: u32, width: u8) -> Opnd {
        let (i, shift) = ((lo / 64) as usize, lo % 64);
        let limb = limbs.get(i).copied().unwrap_or(Opnd::C(0));
        let low = self.b.bin(BinOp::Shr, limb, Opnd::C(u64::from(shift)), 64);
        let have = 64 - shift;
        let word = match limbs.get(i + 1) {
            Some(high) if u32::from(width) > have => {
                let high = self.b.bin(BinOp::Shl, *high, Opnd::C(u64::from(have)), 64);
                self.b.bin(BinOp::Or, low, high, 64)
            }
            _ => low,
        };
        self.b.truncate(word, width)
    }

    /// Lowers `high ++ low`.
    pub(super) fn concat(
        &mut self,
        high: &[Opnd],
        high_width: u32,
        low: &[Opnd],
        low_width: u32,
    ) -> Vec<Opnd> {
        let total = high_width + low_width;
        (0..limb_count(total))
            .map(|i| {
                let (at, w) = (64 * i as u32, limb_width(total, i));
                let mut word = if at < low_width { self.extract_word(low, at, w) } else { Opnd::C(0) };
                if at + u32::from(w) > low_width {
                    let part = if at >= low_width {
                        self.extract_word(high, at - low_width, w)
                    } else {
                        let shift = low_width - at;
                        let bits = self.extract_word(high, 0, w - shift as u8);
                        self.b.bin(BinOp::Shl, bits, Opnd::C(u64::from(shift)), w)
                    };
                    word = self.b.bin(BinOp::Or, word, part, w);
                }
                word
            })
            .collect()
    }

    /// Converts to another width: truncates, or extends with zeros or the sign.
    pub(super) fn resize(&mut self, limbs: &[Opnd], from: u32, to: u32, signed: bool) -> Vec<Opnd> {
        if to <= from || !signed || from == 0 {
            return self.extract_bits(limbs, 0, to);
        }
        if to <= 64 {
            let shift = Opnd::C(u64::from(to - from));
            let up = self.b.bin(BinOp::Shl, limbs[0], shift, to as u8);
            return vec![self.b.bin(BinOp::Sar, up, shift, to as u8)];
        }
        let sign = self.extract_word(limbs, from - 1, 1);
        let ones = self.b.bin(BinOp::Sub, Opnd::C(0), sign, 64);
        let fill = vec![ones; limb_count(to - from)];
        let fill = self.extract_bits(&fill, 0, to - from);
        self.concat(&fill, to - from, limbs, from)
    }

    /// Lowers and, or and xor, limb by limb.
    pub(super) fn bitwise(&mut self, op: BinOp, a: &[Opnd], b: &[Opnd], width: u32) -> Vec<Opnd> {
        let each = |(i, (x, y)): (usize, (&Opnd, &Opnd))| self.b.bin(op, *x, *y, limb_width(width, i));
        a.iter().zip(b).enumerate().map(each).collect()
    }

    /// Lowers addition and subtraction with carry.
    pub(super) fn add_sub(&mut self, op: BinOp, a: &[Opnd], b: &[Opnd], width: u32) -> Vec<Opnd> {
        let mut carry = Opnd::C(0);
        let mut out = Vec::new();
        for (i, (x, y)) in a.iter().zip(b).enumerate() {
            let w = limb_width(width, i);
            let sum = self.b.bin(op, *x, *y, w);
            let total = self.b.bin(op, sum, carry, w);
            if i + 1 < a.len() {
                let (over, over_carry) = if op == BinOp::Add {
                    (self.b.cmp(Cc::Ult, sum, *x, 64), self.b.cmp(Cc::Ult, total, sum, 64))
                } else {
                    (self.b.cmp(Cc::Ult, *x, *y, 64), self.b.cmp(Cc::Ult, sum, carry, 64))
                };
                carry = self.b.bin(BinOp::Or, over, over_carry, 1);
            }
            out.push(total);
        }
        out
    }

    pub(super) fn equal(&mut self, a: &[Opnd], b: &[Opnd], width: u32) -> Opnd {
        let mut all = Opnd::C(1);
        for (i, (x, y)) in a.iter().zip(b).enumerate() {
            let same = self.b.cmp(Cc::Eq, *x, *y, limb_width(width, i));
            all = if i == 0 { same } else { self.b.bin(BinOp::And, all, same, 1) };
        }
        all
    }

    /// Lowers `a < b` (or another order), from the most significant limb.
    pub(super) fn ordered(&mut self, cc: Cc, a: &[Opnd], b: &[Opnd], width: u32) -> Opnd {
        let Some(top) = a.len().checked_sub(1) else {
            return Opnd::C(u64::from(cc.holds(0, 0, 1)));
        };
        // Only the top limb has a sign, and only the lowest limb decides about equality.
        let unsigned = match cc {
            Cc::Slt => Cc::Ult,
            Cc::Sle => Cc::Ule,
            Cc::Sgt => Cc::Ugt,
            Cc::Sge => Cc::Uge,
            other => other,
        };
        let mut result = self.b.cmp(if top == 0 { cc } else { unsigned }, a[0], b[0], limb_width(width, 0));
        for i in 1..=top {
            let w = limb_width(width, i);
            let strict = match if i == top { cc } else { unsigned } {
                Cc::Ule => Cc::Ult,
                Cc::Uge => Cc::Ugt,
                Cc::Sle => Cc::Slt,
                Cc::Sge => Cc::Sgt,
                other => other,
            };
            let more = self.b.cmp(strict, a[i], b[i], w);
            let same = self.b.cmp(Cc::Eq, a[i], b[i], w);
            let below = self.b.bin(BinOp::And, same, result, 1);
            result = self.b.bin(BinOp::Or, more, below, 1);
        }
        result
    }

    /// Shifts by a constant distance.
    pub(super) fn shift_const(
        &mut self,
        left: bool,
        a: &[Opnd],
        distance: u32,
        width: u32,
        signed: bool,
    ) -> Vec<Opnd> {
        if left {
            if distance >= width {
                return vec![Opnd::C(0); limb_count(width)];
            }
            let kept = self.extract_bits(a, 0, width - distance);
            let zeros = vec![Opnd::C(0); limb_count(distance)];
            return self.concat(&kept, width - distance, &zeros, distance);
        }
        let distance = if signed { distance.min(width - 1) } else { distance };
        if distance >= width {
            return vec![Opnd::C(0); limb_count(width)];
        }
        let kept = self.extract_bits(a, distance, width - distance);
        self.resize(&kept, width - distance, width, signed)
    }

    /// Shifts by a distance that is known only at run time; bits shifted out are lost.
    pub(super) fn shift_by(
        &mut self,
        left: bool,
        x: &[Opnd],
        distance: Opnd,
        width: u32,
        signed: bool,
    ) -> Vec<Opnd> {
        if width == 0 {
            return Vec::new();
        }
        if let Opnd::C(n) = distance {
            return self.shift_const(left, x, n.min(u64::from(width)) as u32, width, signed);
        }
        let far = self.b.cmp(Cc::Uge, distance, Opnd::C(u64::from(width)), 64);
        let limit = Opnd::C(u64::from(width) - 1);
        let safe = self.select(far, limit, distance, 64);
        let shifted = if width <= 64 {
            // eBPF takes the distance modulo the register's width; P4 shifts everything out.
            let op = match (left, signed) {
                (true, _) => BinOp::Shl,
                (false, false) => BinOp::Shr,
                (false, true) => BinOp::Sar,
            };
            vec![self.b.bin(op, x[0], safe, width as u8)]
        } else {
            self.shift_wide(left, x, safe, width, signed)
        };
        if signed && !left {
            return shifted;
        }
        let each = |(i, v): (usize, Opnd)| self.select(far, Opnd::C(0), v, limb_width(width, i));
        shifted.into_iter().enumerate().map(each).collect()
    }

    /// Shifts by a power of two for each set bit of the distance.
    fn shift_wide(&mut self, left: bool, x: &[Opnd], distance: Opnd, width: u32, signed: bool) -> Vec<Opnd> {
        let mut value = x.to_vec();
        for k in 0..(32 - (width - 1).leading_zeros()) {
            let bit = self.b.bin(BinOp::Shr, distance, Opnd::C(u64::from(k)), 64);
            let bit = self.b.bin(BinOp::And, bit, Opnd::C(1), 1);
            let moved = self.shift_const(left, &value, 1 << k, width, signed);
            let each = |(i, (m, v)): (usize, (Opnd, Opnd))| self.select(bit, m, v, limb_width(width, i));
            value = moved.into_iter().zip(value).enumerate().map(each).collect();
        }
        value
    }

    /// Multiplies in digits of 32 bits, whose products fit in a word.
    pub(super) fn multiply(&mut self, x: &[Opnd], y: &[Opnd], width: u32) -> Vec<Opnd> {
        let digits = |l: &mut Self, v: &[Opnd]| -> Vec<Opnd> {
            (0..width.div_ceil(32))
                .map(|i| l.extract_word(v, 32 * i, (width - 32 * i).min(32) as u8))
                .collect()
        };
        let (a, b) = (digits(self, x), digits(self, y));
        let n = a.len();
        let mut sum = vec![Opnd::C(0); n];
        for (i, p) in a.iter().enumerate() {
            let mut carry = Opnd::C(0);
            for (j, q) in b.iter().enumerate().take(n - i) {
                // No overflow: (2^32 - 1)^2 + 2 (2^32 - 1) = 2^64 - 1.
                let product = self.b.bin(BinOp::Mul, *p, *q, 64);
                let total = self.b.bin(BinOp::Add, product, sum[i + j], 64);
                let total = self.b.bin(BinOp::Add, total, carry, 64);
                sum[i + j] = self.b.truncate(total, 32);
                carry = self.b.bin(BinOp::Shr, total, Opnd::C(32), 64);
            }
        }
        let word = |l: &mut Self, i: usize| {
            let w = limb_width(width, i);
            let low = l.b.truncate(sum[2 * i], w);
            match sum.get(2 * i + 1) {
                Some(high) => {
                    let high = l.b.bin(BinOp::Shl, *high, Opnd::C(32), w);
                    l.b.bin(BinOp::Or, low, high, w)
                }
                None => low,
            }
        };
        (0..limb_count(width)).map(|i| word(self, i)).collect()
    }

    /// Adds or subtracts with one more bit, which shows whether the result fits.
    pub(super) fn saturating_wide(
        &mut self,
        op: BinaryOp,
        x: &[Opnd],
        y: &[Opnd],
        width: u32,
        signed: bool,
    ) -> Vec<Opnd> {
        let (x, y) = (self.resize(x, width, width + 1, signed), self.resize(y, width, width + 1, signed));
        let add = op == BinaryOp::AddSat;
        let exact = self.add_sub(if add { BinOp::Add } else { BinOp::Sub }, &x, &y, width + 1);
        let top = self.extract_word(&exact, width, 1);
        let below = self.extract_word(&exact, width - 1, 1);
        let over = if signed { self.b.bin(BinOp::Xor, top, below, 1) } else { top };
        let value = self.extract_bits(&exact, 0, width);
        let last = value.len() - 1;
        let mut out = Vec::with_capacity(value.len());
        for (i, v) in value.into_iter().enumerate() {
            let w = limb_width(width, i);
            let ones = crate::ir::mask(w);
            let limit = match (signed, add) {
                (false, true) => Opnd::C(ones),
                (false, false) => Opnd::C(0),
                // Results out of range become the least number if negative, otherwise the largest.
                (true, _) => {
                    let (least, most) = if i == last { (1 << (w - 1), ones >> 1) } else { (0, ones) };
                    self.select(top, Opnd::C(least), Opnd::C(most), w)
                }
            };
            out.push(self.select(over, limit, v, w));
        }
        out
    }

    /// Divides by a power of two; `None` for any other divisor.
    pub(super) fn divide_wide(
        &mut self,
        op: BinaryOp,
        x: &[Opnd],
        by: &Expr,
        width: u32,
    ) -> Option<Vec<Opnd>> {
        let by = by.as_const().and_then(num_bigint::BigInt::to_biguint).filter(|b| b.count_ones() == 1)?;
        let shift = u32::try_from(by.trailing_zeros()?).ok()?;
        if op == BinaryOp::Div {
            return Some(self.shift_const(false, x, shift, width, false));
        }
        let rest = self.extract_bits(x, 0, shift);
        Some(self.resize(&rest, shift, width, false))
    }
}
