//! Hashes of P4 values: the fields one after the other in network byte order, filled up with zero bits to whole bytes,
//! are put together on the stack and handed to the engine's helper.

use super::Lower;
use super::place::Place;
use super::storage::Value;
use crate::hir::{CallArg, Expr};
use crate::ir::{BinOp, Cc, Op, Opnd, Ty};
use crate::types::Type;
use p4shield_abi::helper::{self, algorithm};

/// The most bits that are hashed: they have to fit on a program's stack.
const MAX_BITS: u32 = 2048;

/// The engine's number of an algorithm of the architecture.
fn algorithm_number(name: &str) -> Option<u32> {
    Some(match name {
        "crc32" | "crc32_custom" => algorithm::CRC32,
        "crc16" | "crc16_custom" => algorithm::CRC16,
        "identity" => algorithm::IDENTITY,
        "csum16" => algorithm::CSUM16,
        "xor16" => algorithm::XOR16,
        "random" => algorithm::RANDOM,
        "lookup3" => algorithm::LOOKUP3,
        _ => return None,
    })
}

impl Lower<'_> {
    /// The algorithm that an argument names.
    pub(super) fn algorithm(&mut self, arg: &CallArg) -> Option<u32> {
        let CallArg::In(e) = arg else { return None };
        let named = match (e.ty.base(), e.as_const()) {
            (Type::Enum(en), Some(n)) => {
                en.members.iter().find(|(_, v)| v == n).map(|(name, _)| name.clone())
            }
            _ => None,
        };
        let number = named.and_then(|n| algorithm_number(&n));
        if number.is_none() {
            self.unsupported(e.span, "a hash algorithm that is chosen at run time");
        }
        number
    }

    /// A hash of `data`, in 64 bits.
    pub(super) fn hash_of(&mut self, data: &Expr, algorithm: u32) -> Option<Opnd> {
        let (limbs, bits) = self.bits_of(data)?;
        if bits == 0 && matches!(algorithm, algorithm::CSUM16 | algorithm::SUM16) {
            return Some(Opnd::C(if algorithm == algorithm::CSUM16 { 0xffff } else { 0 }));
        }
        if bits == 0 || bits > MAX_BITS {
            self.unsupported(data.span, &format!("a hash of {bits} bits"));
            return None;
        }
        let size = bits.div_ceil(8);
        let limbs = self.concat(&limbs, bits, &[Opnd::C(0)], size * 8 - bits);
        let mut parts = Vec::new();
        self.key_parts(&limbs, 0, size, &mut parts);
        let args = vec![Opnd::C(algorithm.into())];
        Some(self.b.emit(Op::Buffer { id: helper::HASH, size, data: parts, args }, Ty::Int(64)))
    }

    /// All bits of a value, its fields one after the other.
    fn bits_of(&mut self, data: &Expr) -> Option<(Vec<Opnd>, u32)> {
        let value = self.value(data);
        let mut all = (Vec::new(), 0);
        if !self.append(&value, &mut all) {
            self.unsupported(data.span, "a varbit field, or a value without bits, in a hash");
            return None;
        }
        Some(all)
    }

    /// Puts a value's bits behind those that are there; `false` if it has none.
    fn append(&mut self, v: &Value, to: &mut (Vec<Opnd>, u32)) -> bool {
        match v {
            Value::Scalar(limbs, w) => {
                to.0 = self.concat(&to.0.clone(), to.1, limbs, *w);
                to.1 += w;
                true
            }
            Value::Group(items) | Value::Stack(items, _) => items.iter().all(|i| self.append(i, to)),
            Value::Header(h) => h.fields.iter().all(|i| self.append(i, to)),
            Value::Opaque => false,
        }
    }

    /// `hash(result, algorithm, data)`: the hash itself.
    pub(super) fn hash(&mut self, result: &Place, algorithm: u32, data: &Expr) {
        if let Some(h) = self.hash_of(data, algorithm) {
            let h = self.b.truncate(h, 32);
            self.assign(result, &Value::Scalar(vec![h], 32));
        }
    }

    /// `hash(result, algorithm, base, data, max)`: `base` plus the hash modulo `max`, or `base` if `max` is 0.
    pub(super) fn hash_in_range(&mut self, result: &Expr, algorithm: u32, [base, data, max]: [&Expr; 3]) {
        let width = |e: &Expr| e.ty.scalar_width().unwrap_or(0);
        let Some(wide) = Some(width(result)).filter(|w| (1..=64).contains(w)) else {
            return self.unsupported(result.span, &format!("a hash of type {}", result.ty));
        };
        let (base_width, max_width) = (width(base), width(max));
        if base_width > 64 || max_width > 64 {
            return self.unsupported(base.span, "a hash with bounds of more than 64 bits");
        }
        let (base, max) = (self.word(base), self.word(max));
        let Some(h) = self.hash_of(data, algorithm) else { return };
        let some = self.b.cmp(Cc::Ne, max, Opnd::C(0), 64);
        // The divisor is never zero.
        let divisor = self.select(some, max, Opnd::C(1), 64);
        let rest = self.b.bin(BinOp::Mod, h, divisor, 64);
        let value = self.b.bin(BinOp::Add, base, rest, 64);
        let Some(place) = self.place(result) else { return };
        let value = self.b.truncate(value, wide as u8);
        self.assign(&place, &Value::Scalar(vec![value], wide));
    }
}
