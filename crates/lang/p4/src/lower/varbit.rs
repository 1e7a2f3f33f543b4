//! VarbitSlots fields: slices of the original packet.
//!
//! A program can extract, copy, compare, hash and emit such a field, but not compute with its
//! contents. So its value is the position of its contents in the packet and their size in bytes.
//! The packet does not change before the deparser runs, and the deparser saves contents that move
//! before it writes anything.

use super::storage::{HeaderStore, VarbitSlots};
use super::{EmittedHeader, Lowering};
use crate::ir::{BinOp, Cc, Opnd, Ty};
use p4shield_abi::helper;

impl Lowering<'_> {
    pub(super) fn varbit_storage(&mut self) -> VarbitSlots {
        VarbitSlots { from: self.b.slot(Ty::Int(32)), bytes: self.b.slot(Ty::Int(32)) }
    }

    pub(super) fn write_varbit(&mut self, v: VarbitSlots, from: Opnd, bytes: Opnd) {
        self.b.write(v.from, from);
        self.b.write(v.bytes, bytes);
    }

    /// Whether two values, each an offset and a number of bytes, have the same length and contents.
    pub(super) fn equal_varbits(&mut self, x: (Opnd, Opnd), y: (Opnd, Opnd)) -> Opnd {
        let as_long = self.b.cmp(Cc::Eq, x.1, y.1, 32);
        let same = self.helper(helper::PACKET_EQUAL, true, vec![x.0, y.0, x.1], 64);
        let same = self.b.cmp(Cc::Ne, same, Opnd::C(0), 64);
        self.both(as_long, same)
    }

    /// Saves the original packet if the contents of a varbit field move.
    pub(super) fn keep_varbits(&mut self, emitted: &[EmittedHeader], positions: &[Opnd], shrink: Opnd) {
        let mut any = Opnd::C(0);
        for (e, position) in emitted.iter().zip(positions) {
            let Some(elsewhere) = self.varbit_moves(&e.header, *position, shrink) else { continue };
            let flag = self.b.read(e.flag);
            let moved = self.both(flag, elsewhere);
            any = self.b.bin(BinOp::Or, any, moved, 1);
        }
        if any == Opnd::C(0) {
            return;
        }
        let (keep, done) = (self.b.new_block("keep varbits"), self.b.new_block("kept"));
        self.b.branch(any, keep, done);
        self.b.switch_to(keep);
        self.helper(helper::PACKET_KEEP, true, Vec::new(), 64);
        self.b.jump(done);
        self.b.switch_to(done);
    }

    /// Writes the contents of a header's varbit field behind its other fields; the header is at
    /// `position`.
    pub(super) fn put_varbit(&mut self, h: &HeaderStore, position: Opnd, shrink: Opnd) {
        let (Some(elsewhere), Some(v)) = (self.varbit_moves(h, position, shrink), h.varbit) else { return };
        let (put, done) = (self.b.new_block("put varbit"), self.b.new_block("varbit"));
        self.b.branch(elsewhere, put, done);
        self.b.switch_to(put);
        let to = self.add_bytes(position, Opnd::C(h.layout.bytes.into()));
        let (from, bytes) = (self.b.read(v.from), self.b.read(v.bytes));
        let failed = self.helper(helper::PACKET_PUT, true, vec![to, from, bytes], 64);
        let ok = self.b.cmp(Cc::Eq, failed, Opnd::C(0), 64);
        let refused = self.reject;
        self.b.branch(ok, done, refused);
        self.b.switch_to(done);
    }

    /// Whether the contents of a header's varbit field move when the packet's head is resized;
    /// `None` without such a field.
    fn varbit_moves(&mut self, h: &HeaderStore, position: Opnd, shrink: Opnd) -> Option<Opnd> {
        let v = h.varbit?;
        let (from, bytes) = (self.b.read(v.from), self.b.read(v.bytes));
        let now_at = self.b.bin(BinOp::Sub, from, shrink, 32);
        let to = self.add_bytes(position, Opnd::C(h.layout.bytes.into()));
        let moved = self.b.cmp(Cc::Ne, now_at, to, 32);
        let some = self.b.cmp(Cc::Ne, bytes, Opnd::C(0), 32);
        Some(self.both(moved, some))
    }
}
