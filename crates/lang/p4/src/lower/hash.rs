//! Hashes of P4 values: the code stores the fields on the stack in network byte order, padded with
//! zero bits to whole bytes, and calls the engine's helper.

use super::Lowering;
use super::lvalue::LValue;
use super::storage::Value;
use crate::hir::{CallArg, Expr};
use crate::ir::{BinOp, Cc, KeyPart, Op, Opnd, Ty};
use p4shield_abi::helper::{self, MAX_HASHED, algorithm};

/// Maximum number of hashed bits: they must fit on a program's stack.
const MAX_BITS: u32 = 2048;

/// The input of a hash: bits of values, and a slice of the packet among them.
#[derive(Default)]
pub(super) struct HashInput {
    limbs: Vec<Opnd>,
    bits: u32,
    slice: Option<PacketSlice>,
}

/// The contents of a varbit field in the packet.
#[derive(Clone, Copy)]
struct PacketSlice {
    /// Number of the other bits that precede it.
    at: u32,
    from: Opnd,
    bytes: Opnd,
}

/// Returns the engine's number of an algorithm of the architecture.
pub(super) fn algorithm_number(name: &str) -> Option<u32> {
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

impl Lowering<'_> {
    /// Returns the algorithm that an argument names.
    pub(super) fn algorithm(&mut self, arg: &CallArg) -> Option<u32> {
        let CallArg::In(e) = arg else { return None };
        let number = e.member_name().and_then(|n| algorithm_number(n));
        if number.is_none() {
            self.unsupported(e.span, "a hash algorithm that is chosen at run time");
        }
        number
    }

    /// Computes a 64-bit hash of `data`.
    pub(super) fn hash_of(&mut self, data: &Expr, algorithm: u32) -> Option<Opnd> {
        let input = self.bits_of(data)?;
        self.hash_of_bits(data, &input, algorithm)
    }

    /// Computes a 64-bit hash of the bits of `data`.
    pub(super) fn hash_of_bits(&mut self, data: &Expr, input: &HashInput, algorithm: u32) -> Option<Opnd> {
        let HashInput { limbs, bits, slice } = input;
        let (bits, slice) = (*bits, *slice);
        // Random numbers do not depend on their input.
        if let Some(slice) = slice.filter(|_| algorithm != algorithm::RANDOM) {
            return self.hash_with(data, limbs, bits, slice, algorithm);
        }
        if bits == 0 && matches!(algorithm, algorithm::CSUM16 | algorithm::SUM16) {
            return Some(Opnd::C(if algorithm == algorithm::CSUM16 { 0xffff } else { 0 }));
        }
        if bits == 0 || bits > MAX_BITS {
            self.unsupported(data.span, &format!("a hash of {bits} bits"));
            return None;
        }
        Some(self.hash_bits(limbs, bits, algorithm))
    }

    /// Returns whether the bits fill an odd number of bytes.
    pub(super) fn is_odd(&mut self, input: &HashInput) -> Opnd {
        let fixed = Opnd::C(u64::from(input.bits.div_ceil(8) % 2));
        let Some(slice) = input.slice else { return fixed };
        let variable = self.b.truncate(slice.bytes, 1);
        self.b.bin(BinOp::Xor, variable, fixed, 1)
    }

    /// Computes a 64-bit hash of this many bits.
    pub(super) fn hash_bits(&mut self, limbs: &[Opnd], bits: u32, algorithm: u32) -> Opnd {
        let (parts, size) = self.bytes_of(limbs, bits);
        let args = vec![Opnd::C(algorithm.into())];
        self.b.emit(Op::Buffer { id: helper::HASH, size, data: parts, args }, Ty::Int(64))
    }

    /// Returns the bytes of a number as parts of a buffer, padded with zero bits, and their count.
    fn bytes_of(&mut self, limbs: &[Opnd], bits: u32) -> (Vec<KeyPart>, u32) {
        let size = bits.div_ceil(8);
        let limbs = self.concat(limbs, bits, &[Opnd::C(0)], size * 8 - bits);
        let mut parts = Vec::new();
        self.key_parts(&limbs, 0, size, &mut parts);
        (parts, size)
    }

    /// Computes a hash of data that contain a varbit field.
    fn hash_with(
        &mut self,
        data: &Expr,
        limbs: &[Opnd],
        bits: u32,
        slice: PacketSlice,
        algorithm: u32,
    ) -> Option<Opnd> {
        let most = data.ty.sizes().map_or(u32::MAX, |(_, max)| max);
        if !slice.at.is_multiple_of(8) || most > MAX_HASHED as u32 * 8 || bits > MAX_BITS {
            let what = "a hash of this many bits, or of a varbit field that does not start at a byte,";
            self.unsupported(data.span, what);
            return None;
        }
        // A trailing zero word does not change a sum, and a buffer must not be empty.
        let sums = matches!(algorithm, algorithm::CSUM16 | algorithm::SUM16 | algorithm::XOR16);
        if bits == 0 && !sums {
            self.unsupported(data.span, "this hash of a varbit field alone");
            return None;
        }
        let (parts, size) =
            if bits == 0 { (vec![(0, 2, Opnd::C(0))], 2) } else { self.bytes_of(limbs, bits) };
        let len = self.b.bin(BinOp::Shl, slice.bytes, Opnd::C(32), 64);
        let packed = self.b.bin(BinOp::Or, len, slice.from, 64);
        let args = vec![Opnd::C(algorithm.into()), Opnd::C(u64::from(slice.at / 8)), packed];
        Some(self.b.emit(Op::Buffer { id: helper::HASH_WITH, size, data: parts, args }, Ty::Int(64)))
    }

    /// Returns all bits of a value, its fields in sequence.
    pub(super) fn bits_of(&mut self, data: &Expr) -> Option<HashInput> {
        let value = self.value(data);
        let mut all = HashInput::default();
        if !self.append(&value, &mut all) {
            self.unsupported(data.span, "a second varbit field, or a value without bits, in a hash");
            return None;
        }
        Some(all)
    }

    /// Appends the bits of a value; `false` if that is not supported.
    fn append(&mut self, v: &Value, to: &mut HashInput) -> bool {
        match v {
            Value::Scalar(limbs, w) => {
                to.limbs = self.concat(&to.limbs.clone(), to.bits, limbs, *w);
                to.bits += w;
                true
            }
            Value::Varbit(from, bytes) => {
                let slice = PacketSlice { at: to.bits, from: *from, bytes: *bytes };
                to.slice.replace(slice).is_none()
            }
            Value::Group(items) | Value::Stack(items, _) => items.iter().all(|i| self.append(i, to)),
            Value::Header(h) => h.fields.iter().all(|i| self.append(i, to)),
            Value::Number(_) | Value::Opaque => false,
        }
    }

    /// Lowers `hash(result, algorithm, data)`: the hash itself.
    pub(super) fn hash(&mut self, result: &LValue, algorithm: u32, data: &Expr) {
        if let Some(h) = self.hash_of(data, algorithm) {
            let h = self.b.truncate(h, 32);
            self.assign(result, &Value::Scalar(vec![h], 32));
        }
    }

    /// Lowers `hash(result, algorithm, base, data, max)`: `base` plus the hash modulo `max`;
    /// `base` if `max` is 0.
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
        let Some(lvalue) = self.lvalue(result) else { return };
        let value = self.b.truncate(value, wide as u8);
        self.assign(&lvalue, &Value::Scalar(vec![value], wide));
    }
}
