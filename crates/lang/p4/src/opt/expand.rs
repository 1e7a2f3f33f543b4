//! Expansion of write-backs to stores: only bytes with a changed field, in stores of 8, 4, 2 and 1 bytes.

use super::fold;
use crate::ir::{BinOp, Function, HeaderLayout, Op, Opnd, Ty, Val, WriteBack, mask};
use crate::source::Span;

/// Expands every write-back.
pub(super) fn write_backs(f: &mut Function) {
    for b in 0..f.blocks.len() {
        let insts = std::mem::take(&mut f.blocks[b].insts);
        let mut out = Vec::with_capacity(insts.len());
        for v in insts {
            let span = f.inst(v).span;
            match f.inst(v).op.clone() {
                Op::WriteBack(w) => Expander { f, out: &mut out, span, w: &w }.run(),
                _ => out.push(v),
            }
        }
        f.blocks[b].insts = out;
    }
}

struct Expander<'a> {
    f: &'a mut Function,
    out: &'a mut Vec<Val>,
    span: Span,
    w: &'a WriteBack,
}

impl Expander<'_> {
    fn run(&mut self) {
        // All values come before the first store: late loads must still read the original packet.
        let mut stores: Vec<Op> = Vec::new();
        for (first, last) in groups(&self.w.layout) {
            if self.changed(first, last) {
                self.group(first, last, &mut stores);
            }
        }
        for s in stores {
            let v = self.f.make(s, Ty::None, self.span);
            self.out.push(v);
        }
    }

    fn changed(&self, first: usize, last: usize) -> bool {
        self.w.fields[first..=last].iter().any(|(now, before)| before.as_ref() != Some(now))
    }

    /// Stores the fields `first` to `last`, which together occupy whole bytes.
    fn group(&mut self, first: usize, last: usize, stores: &mut Vec<Op>) {
        let fields = &self.w.layout.fields;
        let mut at = fields[first].offset / 8;
        let end = (fields[last].offset + fields[last].width).div_ceil(8);
        while at < end {
            let n = [8, 4, 2, 1].into_iter().find(|n| *n <= end - at).unwrap_or(1);
            let value = self.compose(first, last, at * 8, n * 8);
            let value = self.emit_swap(n as u8, value);
            let offset = at.cast_signed();
            stores.push(Op::Store { base: self.w.base, offset, bytes: n as u8, value });
            at += n;
        }
    }

    /// Composes the bits `start` to `start + len - 1` of the header from the fields that overlap them.
    fn compose(&mut self, first: usize, last: usize, start: u32, len: u32) -> Opnd {
        let mut word = Opnd::C(0);
        for i in first..=last {
            let slot = &self.w.layout.fields[i];
            let (from, to) = (slot.offset.max(start), (slot.offset + slot.width).min(start + len));
            if from >= to {
                continue;
            }
            // As bits of the field, counted from its lowest.
            let low = slot.offset + slot.width - to;
            let width = to - from;
            let limbs = self.w.fields[i].0.clone();
            let part = self.bits(&limbs, low, width as u8);
            let part = self.bin(BinOp::Shl, part, u64::from(start + len - to), len as u8);
            word = if word == Opnd::C(0) { part } else { self.emit_bin(BinOp::Or, word, part, len as u8) };
        }
        word
    }

    fn bits(&mut self, limbs: &[Opnd], low: u32, width: u8) -> Opnd {
        let (i, shift) = ((low / 64) as usize, u64::from(low % 64));
        let limb = limbs.get(i).copied().unwrap_or(Opnd::C(0));
        let mut word = self.bin(BinOp::Shr, limb, shift, 64);
        if shift + u64::from(width) > 64
            && let Some(high) = limbs.get(i + 1)
        {
            let high = self.bin(BinOp::Shl, *high, 64 - shift, 64);
            word = self.emit_bin(BinOp::Or, word, high, 64);
        }
        if self.f.bits(word) <= width {
            return word;
        }
        self.bin(BinOp::And, word, mask(width), width)
    }

    fn bin(&mut self, op: BinOp, a: Opnd, b: u64, w: u8) -> Opnd {
        self.emit_bin(op, a, Opnd::C(b), w)
    }

    fn emit_bin(&mut self, op: BinOp, a: Opnd, b: Opnd, w: u8) -> Opnd {
        if let Some(o) = fold::bin(op, a, b, w) {
            return o;
        }
        self.emit(Op::Bin(op, a, b), Ty::Int(w))
    }

    fn emit_swap(&mut self, bytes: u8, a: Opnd) -> Opnd {
        match (bytes, a) {
            (1, _) => a,
            (_, Opnd::C(c)) => Opnd::C(fold::swap(bytes, c)),
            _ => self.emit(Op::Swap(bytes, a), Ty::Int(bytes * 8)),
        }
    }

    fn emit(&mut self, op: Op, ty: Ty) -> Opnd {
        let v = self.f.make(op, ty, self.span);
        self.out.push(v);
        Opnd::V(v)
    }
}

/// Returns the smallest runs of fields that occupy whole bytes: first and last index of each.
fn groups(layout: &HeaderLayout) -> Vec<(usize, usize)> {
    let mut out = Vec::new();
    let mut first = 0;
    for (i, f) in layout.fields.iter().enumerate() {
        if (f.offset + f.width).is_multiple_of(8) {
            // A zero-width field belongs to the run before it.
            if f.width > 0 || i > first {
                out.push((first, i));
            }
            first = i + 1;
        }
    }
    out
}
