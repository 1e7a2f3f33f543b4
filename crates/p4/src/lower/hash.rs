//! `hash` with `HashAlgorithm.lookup3`: Bob Jenkins' `hashlittle` with initial value 0, over the fields one after the
//! other in network byte order, filled up with zero bits to whole bytes.

use super::Lower;
use super::stmt::Place;
use super::storage::Value;
use crate::hir::Expr;
use crate::ir::{BinOp, Opnd};

/// The most bits that are hashed: the code is unrolled.
const MAX_BITS: u32 = 2048;

impl Lower<'_> {
    /// Writes the hash of `data` to `result`.
    pub(super) fn hash(&mut self, result: &Place, data: &Expr) {
        let value = self.value(data);
        let mut all = (Vec::new(), 0);
        self.append(&value, &mut all);
        let (limbs, bits) = all;
        if bits == 0 || bits > MAX_BITS {
            return self.unsupported(data.span, &format!("a hash of {bits} bits"));
        }
        let pad = bits.next_multiple_of(8) - bits;
        let limbs = self.concat(&limbs, bits, &[Opnd::C(0)], pad);
        let c = self.hash_little(&limbs, (bits + pad) / 8);
        self.assign(result, &Value::Scalar(vec![c], 32));
    }

    /// Puts a value's bits behind those that are there.
    fn append(&mut self, v: &Value, to: &mut (Vec<Opnd>, u32)) {
        match v {
            Value::Scalar(limbs, w) => {
                to.0 = self.concat(&to.0.clone(), to.1, limbs, *w);
                to.1 += w;
            }
            Value::Group(items) | Value::Stack(items) => items.iter().for_each(|i| self.append(i, to)),
            Value::Header(h) => h.fields.iter().for_each(|i| self.append(i, to)),
            Value::Opaque => {}
        }
    }

    fn hash_little(&mut self, limbs: &[Opnd], len: u32) -> Opnd {
        let start = Opnd::C(u64::from(0xdead_beef_u32.wrapping_add(len)));
        let mut abc = [start; 3];
        let mut at = 0;
        loop {
            for (i, word) in abc.iter_mut().enumerate() {
                let k = self.word_at(limbs, len, at + 4 * i as u32);
                *word = self.b.bin(BinOp::Add, *word, k, 32);
            }
            if len - at <= 12 {
                return self.finish_hash(abc);
            }
            abc = self.mix(abc);
            at += 12;
        }
    }

    /// The four bytes at `at` as a little-endian number; bytes behind the end are zero.
    fn word_at(&mut self, limbs: &[Opnd], len: u32, at: u32) -> Opnd {
        let n = len.saturating_sub(at).min(4);
        if n == 0 {
            return Opnd::C(0);
        }
        let bits = self.extract_word(limbs, 8 * (len - at - n), 8 * n as u8);
        let left = self.b.bin(BinOp::Shl, bits, Opnd::C(u64::from(8 * (4 - n))), 32);
        self.b.swap(4, left)
    }

    fn rotate(&mut self, x: Opnd, by: u64) -> Opnd {
        let up = self.b.bin(BinOp::Shl, x, Opnd::C(by), 32);
        let down = self.b.bin(BinOp::Shr, x, Opnd::C(32 - by), 32);
        self.b.bin(BinOp::Or, up, down, 32)
    }

    fn mix(&mut self, abc: [Opnd; 3]) -> [Opnd; 3] {
        let [mut a, mut b, mut c] = abc;
        for by in [4, 6, 8, 16, 19, 4] {
            a = self.b.bin(BinOp::Sub, a, c, 32);
            let turned = self.rotate(c, by);
            a = self.b.bin(BinOp::Xor, a, turned, 32);
            c = self.b.bin(BinOp::Add, c, b, 32);
            (a, b, c) = (b, c, a);
        }
        [a, b, c]
    }

    fn finish_hash(&mut self, abc: [Opnd; 3]) -> Opnd {
        let [mut a, mut b, mut c] = abc;
        for by in [14, 11, 25, 16, 4, 14, 24] {
            c = self.b.bin(BinOp::Xor, c, b, 32);
            let turned = self.rotate(b, by);
            c = self.b.bin(BinOp::Sub, c, turned, 32);
            (a, b, c) = (b, c, a);
        }
        // The last step left the result where the next would not look for it.
        b
    }
}
