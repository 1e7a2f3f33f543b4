//! Checksums: incremental updates, and those that `v1model` verifies and updates.

use super::Lowering;
use super::storage::Value;
use crate::hir::{CallArg, Expr};
use crate::ir::{BinOp, Cc, Opnd, Ty};
use p4shield_abi::ProgramLimit;
use p4shield_abi::helper::{self, algorithm};

impl Lowering<'_> {
    /// Updates a checksum (RFC 1624): the complement of the sum of `!sum`, `!old` and `new`.
    pub(super) fn checksum(&mut self, sum: Opnd, old: Opnd, new: Opnd) -> Opnd {
        let invert = |l: &mut Self, v| l.b.bin(BinOp::Xor, v, Opnd::C(0xffff), 16);
        let halves = |l: &mut Self, v: Opnd| {
            let high = l.b.bin(BinOp::Shr, v, Opnd::C(16), 32);
            (l.b.truncate(v, 16), high)
        };
        let mut total = invert(self, sum);
        let (old_low, old_high) = halves(self, old);
        let (new_low, new_high) = halves(self, new);
        let wide = self.b.f.bits(old) > 16 || self.b.f.bits(new) > 16;
        let mut parts = vec![invert(self, old_low), new_low];
        if wide {
            parts.extend([invert(self, old_high), new_high]);
        }
        for p in parts {
            total = self.b.bin(BinOp::Add, total, p, 32);
        }
        for _ in 0..2 {
            let (low, high) = halves(self, total);
            total = self.b.bin(BinOp::Add, low, high, 32);
        }
        let total = self.b.truncate(total, 16);
        invert(self, total)
    }

    /// Lowers `verify_checksum` (`update` is false) or `update_checksum`, with or without the payload.
    pub(super) fn checksum_call(&mut self, args: &[CallArg], update: bool, payload: bool) {
        let [CallArg::In(condition), CallArg::In(data), sum, algo] = args else { return };
        let Some(algorithm) = self.algorithm(algo) else { return };
        let (CallArg::In(sum) | CallArg::InOut(sum)) = sum else { return };
        if payload && algorithm != algorithm::CSUM16 {
            return self.unsupported(data.span, "a checksum with payload other than csum16");
        }
        let (check, done) = (self.b.new_block("checksum"), self.b.new_block("checksum done"));
        let wanted = self.word(condition);
        self.b.branch(wanted, check, done);
        self.b.switch_to(check);
        self.checksum_of(data, sum, algorithm, update, payload);
        self.b.jump(done);
        self.b.switch_to(done);
    }

    fn checksum_of(&mut self, data: &Expr, sum: &Expr, algorithm: u32, update: bool, payload: bool) {
        let width = sum.ty.scalar_width().unwrap_or(0);
        if !(1..=64).contains(&width) {
            return self.unsupported(sum.span, &format!("a checksum of type {}", sum.ty));
        }
        let value = if payload { self.sum_with_payload(data) } else { self.hash_of(data, algorithm) };
        let Some(value) = value else { return };
        let value = self.b.truncate(value, width as u8);
        if update {
            if let Some(lvalue) = self.lvalue(sum) {
                self.assign(&lvalue, &Value::Scalar(vec![value], width));
            }
            return;
        }
        let have = self.word(sum);
        let wrong = self.b.cmp(Cc::Ne, have, value, width as u8);
        let (bad, good) = (self.b.new_block("wrong checksum"), self.b.new_block("right checksum"));
        self.b.branch(wrong, bad, good);
        self.b.switch_to(bad);
        self.set_standard("checksum_error", Opnd::C(1));
        self.b.jump(good);
        self.b.switch_to(good);
    }

    /// Computes the Internet checksum over `data` and the bytes that the parser did not extract, as one
    /// string of bytes.
    fn sum_with_payload(&mut self, data: &Expr) -> Option<Opnd> {
        let input = self.bits_of(data)?;
        let odd = self.is_odd(&input);
        let head = self.hash_of_bits(data, &input, algorithm::SUM16)?;
        let parsed = self.b.read(self.packet.parsed);
        let rest = self.helper(helper::PAYLOAD_SUM, true, vec![parsed], 64);
        let known = self.b.cmp(Cc::Ule, rest, Opnd::C(0xffff), 64);
        let (go_on, beyond) = (self.b.new_block("payload"), self.at_limit(ProgramLimit::Payload));
        self.b.branch(known, go_on, beyond);
        self.b.switch_to(go_on);
        // Behind an odd number of bytes, the payload's even bytes are the low ones of their words. Swapping
        // the bytes of its sum has the same effect (RFC 1071, section 2 (B), "Byte Order Independence").
        let swapped = self.b.swap(2, rest);
        let rest = self.select(odd, swapped, rest, 64);
        let mut total = self.b.bin(BinOp::Add, head, rest, 64);
        let high = self.b.bin(BinOp::Shr, total, Opnd::C(16), 64);
        let low = self.b.truncate(total, 16);
        total = self.b.bin(BinOp::Add, low, high, 32);
        let total = self.b.truncate(total, 16);
        Some(self.b.bin(BinOp::Xor, total, Opnd::C(0xffff), 16))
    }

    /// Lowers `random(result, low, high)`.
    pub(super) fn random(&mut self, result: &Expr, low: &Expr, high: &Expr) {
        let width = result.ty.scalar_width().unwrap_or(0);
        if !(1..=64).contains(&width) {
            return self.unsupported(result.span, &format!("a random number of type {}", result.ty));
        }
        let (low, high) = (self.word(low), self.word(high));
        let first = self.helper(helper::GET_PRANDOM_U32, false, Vec::new(), 32);
        let second = self.helper(helper::GET_PRANDOM_U32, false, Vec::new(), 32);
        let up = self.b.bin(BinOp::Shl, first, Opnd::C(32), 64);
        let bits = self.b.bin(BinOp::Or, up, second, 64);
        let distance = self.b.bin(BinOp::Sub, high, low, 64);
        let count = self.b.bin(BinOp::Add, distance, Opnd::C(1), 64);
        // The whole 64-bit range needs no division, and its size would overflow to zero.
        let some = self.b.cmp(Cc::Ne, count, Opnd::C(0), 64);
        let divisor = self.select(some, count, Opnd::C(1), 64);
        let rest = self.b.bin(BinOp::Mod, bits, divisor, 64);
        let offset = self.select(some, rest, bits, 64);
        let value = self.b.bin(BinOp::Add, low, offset, 64);
        let value = self.b.truncate(value, width as u8);
        if let Some(lvalue) = self.lvalue(result) {
            self.assign(&lvalue, &Value::Scalar(vec![value], width));
        }
    }

    /// Lowers `assert(check)`: a packet that fails the check is dropped.
    pub(super) fn assert(&mut self, check: &Expr) {
        let ok = self.word(check);
        let (go_on, refuse) = (self.b.new_block("asserted"), self.refuse);
        self.b.branch(ok, go_on, refuse);
        self.b.switch_to(go_on);
    }

    /// Returns the slot that holds a direct meter's colour.
    pub(super) fn colour_slot(&mut self, meter: crate::hir::InstId) -> crate::ir::builder::Slot {
        if let Some(s) = self.direct.get(&meter) {
            return *s;
        }
        let slot = self.b.slot(Ty::Int(2));
        self.direct.insert(meter, slot);
        slot
    }
}
