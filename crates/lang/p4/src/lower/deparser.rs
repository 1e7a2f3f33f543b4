//! The deparser: writes headers back to the packet.
//!
//! If a program cannot change the layout of packets, the deparser writes the changed fields in
//! place. For any other program, the code compares the old and the new position of each header at
//! run time. If no header moved, it also writes in place; otherwise it resizes the packet at its
//! head and writes all headers that are not in place. Later passes resolve most of these
//! comparisons, because they know the paths through the parser.

use super::storage::{HeaderStore, Storage, headers};
use super::{EmittedHeader, Lowering};
use crate::hir::Expr;
use crate::ir::{BinOp, Cc, Op, Opnd, Ty, WriteBack};
use p4shield_abi::context::offset;
use p4shield_abi::helper;
use std::rc::Rc;

impl Lowering<'_> {
    /// Lowers `packet.emit(e)`.
    pub(super) fn emit_header(&mut self, e: &Expr) {
        let Some(storage) = self.storage_of(e) else {
            return self.unsupported(e.span, "emitting this");
        };
        if matches!(&*storage, Storage::Scalar(..)) {
            return self.unsupported(e.span, &format!("emitting {}", e.ty));
        }
        let mut all: Vec<Rc<HeaderStore>> = Vec::new();
        headers(&storage, &mut all);
        for header in all {
            let flag = self.b.slot(Ty::Int(1));
            let valid = self.b.read(header.valid);
            self.b.write(flag, valid);
            self.emitted.push(EmittedHeader { header, flag, span: e.span });
        }
    }

    /// Writes the emitted headers of a program that cannot change the layout.
    pub(super) fn write_in_place(&mut self) {
        for e in std::mem::take(&mut self.emitted) {
            self.b.span = e.span;
            let valid = self.b.read(e.flag);
            let base = self.b.read(e.header.base);
            let end = self.b.read(self.packet.end);
            self.write_if(valid, &e.header, base, end, true);
        }
    }

    /// Writes a header at `base` if `wanted`. With `known`, only fields that differ from the packet's.
    fn write_if(&mut self, wanted: Opnd, h: &HeaderStore, base: Opnd, end: Opnd, known: bool) {
        if h.layout.fields.is_empty() {
            return;
        }
        let (write, done) =
            (self.b.new_block(&format!("write {}", h.layout.name)), self.b.new_block("written"));
        let checked = self.b.new_block("present");
        self.b.branch(wanted, checked, done);
        self.b.switch_to(checked);
        // Extraction checked the bounds, but the verifier may have lost them at a join.
        // Where it has not, later passes remove this check.
        let ok = self.b.emit(Op::InBounds { base, len: h.layout.bytes, end }, Ty::Int(1));
        let miss = if known { done } else { self.reject };
        self.b.branch(ok, write, miss);
        self.b.switch_to(write);
        let mut fields = Vec::new();
        for (now, before) in h.leaves.iter().zip(&h.original) {
            let before = known.then(|| self.read_slots(before));
            fields.push((self.read_slots(now), before));
        }
        self.b.emit(Op::WriteBack(Box::new(WriteBack { base, layout: h.layout.clone(), fields })), Ty::None);
        self.b.jump(done);
        self.b.switch_to(done);
    }

    /// Writes the emitted headers of a program that may have added, removed or moved some.
    pub(super) fn write_anywhere(&mut self) {
        let emitted = std::mem::take(&mut self.emitted);
        for e in &emitted {
            let bits: u32 = e.header.layout.fields.iter().map(|f| f.width).sum();
            if !bits.is_multiple_of(8) {
                self.unsupported(
                    e.span,
                    &format!(
                        "emitting {bits} bits before a varbit field, which is not a whole number of bytes,"
                    ),
                );
                return;
            }
        }
        let parsed = self.b.read(self.packet.parsed);
        let positions = self.new_positions(&emitted);
        let total = positions.last().copied().unwrap_or(Opnd::C(0));
        let shrink = self.b.bin(BinOp::Sub, parsed, total, 32);
        self.keep_varbits(&emitted, &positions, shrink);
        let (resize, go_on) = (self.b.new_block("resize"), self.b.new_block("rebuild"));
        let same = self.b.cmp(Cc::Eq, shrink, Opnd::C(0), 32);
        self.b.branch(same, go_on, resize);
        self.b.switch_to(resize);
        let failed = self.helper(helper::ADJUST_HEAD, true, vec![shrink], 64);
        let ok = self.b.cmp(Cc::Eq, failed, Opnd::C(0), 64);
        let refused = self.reject;
        let resized = self.b.new_block("resized");
        self.b.branch(ok, resized, refused);
        self.b.switch_to(resized);
        let (new_data, new_end) = self.packet_bounds();
        self.b.write(self.packet.data, new_data);
        self.b.write(self.packet.end, new_end);
        self.b.jump(go_on);
        self.b.switch_to(go_on);
        let (data, end) = (self.b.read(self.packet.data), self.b.read(self.packet.end));
        self.write_headers(&emitted, &positions, shrink, data, end);
    }

    /// Returns pointers to the current start and end of the packet.
    pub(super) fn packet_bounds(&mut self) -> (Opnd, Opnd) {
        let data = self.b.emit(Op::Context(offset::DATA, 8), Ty::Packet);
        let end = self.b.emit(Op::Context(offset::DATA_END, 8), Ty::Packet);
        (data, end)
    }

    /// Returns the new position of each header, and the end of the last one.
    fn new_positions(&mut self, emitted: &[EmittedHeader]) -> Vec<Opnd> {
        let mut at = Opnd::C(0);
        let mut positions = Vec::new();
        for e in emitted {
            positions.push(at);
            let size = Opnd::C(u64::from(e.header.layout.bytes));
            let flag = self.b.read(e.flag);
            let mut behind = self.add_bytes(at, size);
            if let Some(v) = e.header.varbit {
                let bytes = self.b.read(v.bytes);
                behind = self.add_bytes(behind, bytes);
            }
            at = self.select(flag, behind, at, 32);
        }
        positions.push(at);
        positions
    }

    /// Writes each header to its new position; for headers in place, only what changed.
    fn write_headers(
        &mut self,
        emitted: &[EmittedHeader],
        positions: &[Opnd],
        shrink: Opnd,
        data: Opnd,
        end: Opnd,
    ) {
        for (e, position) in emitted.iter().zip(positions) {
            self.b.span = e.span;
            let flag = self.b.read(e.flag);
            let base = self.b.offset(data, *position);
            let at = self.b.read(e.header.at);
            let now_at = self.b.bin(BinOp::Sub, at, shrink, 32);
            let there = self.b.cmp(Cc::Eq, now_at, *position, 32);
            let extracted = self.b.cmp(Cc::Ne, at, Self::not_extracted(), 32);
            let there = self.both(there, extracted);
            let (emit, keep, anew, written, done) = (
                self.b.new_block("emit"),
                self.b.new_block("in position"),
                self.b.new_block("moved"),
                self.b.new_block("written"),
                self.b.new_block("emitted"),
            );
            self.b.branch(flag, emit, done);
            self.b.switch_to(emit);
            self.b.branch(there, keep, anew);
            for (block, known) in [(keep, true), (anew, false)] {
                self.b.switch_to(block);
                let wanted = if known { self.is_kept(*position, &e.header) } else { Opnd::C(1) };
                self.write_if(wanted, &e.header, base, end, known);
                self.b.jump(written);
            }
            self.b.switch_to(written);
            self.put_varbit(&e.header, *position, shrink);
            self.b.jump(done);
            self.b.switch_to(done);
        }
    }

    /// Whether a header stays in place as a whole: a header that `truncate` cuts is not written.
    fn is_kept(&mut self, position: Opnd, h: &HeaderStore) -> Opnd {
        if !self.truncates {
            return Opnd::C(1);
        }
        let mut behind = self.add_bytes(position, Opnd::C(h.layout.bytes.into()));
        if let Some(v) = h.varbit {
            let bytes = self.b.read(v.bytes);
            behind = self.add_bytes(behind, bytes);
        }
        let limit = self.b.read(self.packet.truncate_to);
        self.b.cmp(Cc::Ule, behind, limit, 32)
    }

    /// Truncates the packet, whose headers are written, as `truncate` requested; the engine keeps the minimum
    /// that a switch needs.
    pub(super) fn truncate_packet(&mut self) {
        let limit = self.b.read(self.packet.truncate_to);
        let len = self.context(offset::PACKET_LENGTH, 4);
        let (cut, done) = (self.b.new_block("truncate"), self.b.new_block("truncated"));
        let longer = self.b.cmp(Cc::Ugt, len, limit, 32);
        self.b.branch(longer, cut, done);
        self.b.switch_to(cut);
        let delta = self.b.bin(BinOp::Sub, limit, len, 32);
        let failed = self.helper(helper::ADJUST_TAIL, true, vec![delta], 64);
        let ok = self.b.cmp(Cc::Eq, failed, Opnd::C(0), 64);
        let refused = self.reject;
        self.b.branch(ok, done, refused);
        self.b.switch_to(done);
    }
}
