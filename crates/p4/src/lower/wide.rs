//! Arithmetic on values of any width, in limbs of 64 bits.

use super::Lower;
use super::storage::{limb_count, limb_width};
use crate::ir::{BinOp, Cc, Opnd};

impl Lower<'_> {
    /// Bits `lo` to `lo + width - 1` of a value.
    pub(super) fn extract_bits(&mut self, limbs: &[Opnd], lo: u32, width: u32) -> Vec<Opnd> {
        (0..limb_count(width))
            .map(|i| {
                let w = limb_width(width, i);
                self.extract_word(limbs, lo + 64 * i as u32, w)
            })
            .collect()
    }

    /// At most 64 bits of a value, from bit `lo` on; bits beyond the value are zero.
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

    /// `high ++ low`
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

    /// To another width: cut off, or extended with zeros or copies of the sign.
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

    /// And, or, xor, limb by limb.
    pub(super) fn bitwise(&mut self, op: BinOp, a: &[Opnd], b: &[Opnd], width: u32) -> Vec<Opnd> {
        let each = |(i, (x, y)): (usize, (&Opnd, &Opnd))| self.b.bin(op, *x, *y, limb_width(width, i));
        a.iter().zip(b).enumerate().map(each).collect()
    }

    /// Addition and subtraction with carry.
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

    /// `a < b` (or any other order), most significant limb first.
    pub(super) fn ordered(&mut self, cc: Cc, a: &[Opnd], b: &[Opnd], width: u32) -> Opnd {
        let Some(top) = a.len().checked_sub(1) else {
            return Opnd::C(u64::from(cc.holds(0, 0, 1)));
        };
        // Below the top limb there is no sign, and only the lowest one decides about equality.
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

    /// A shift by a constant distance.
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
}
