//! Parsers: states become blocks; an extraction becomes one bounds check and a load per field.

use super::lvalue::LValue;
use super::storage::{HeaderStore, Storage, Value, limb_count, limb_width};
use super::{Lowering, externs};
use crate::constant::limbs;
use crate::hir::{Call, CallArg, Expr, Keyset, Target};
use crate::ir::{BinOp, Block, Cc, Op, Opnd, Ty};
use crate::source::Span;
use crate::types::Type;
use p4shield_abi::context::offset;

/// Maximum of a variable `advance` in bytes: no packet is longer.
const MAX_ADVANCE: u64 = 0xffff;

/// Maximum length of a header: instructions have signed 16-bit offsets.
const MAX_HEADER: u32 = 0x4000;

impl Lowering<'_> {
    /// Jumps to the target of the first case that matches. Each subject is evaluated once.
    pub(super) fn select_state(
        &mut self,
        subjects: &[Expr],
        cases: &[(Vec<Keyset>, Target)],
        targets: &[Block],
    ) {
        let (mut types, mut values) = (Vec::new(), Vec::new());
        for s in subjects {
            let value = self.value(s);
            flatten(&s.ty, value, &mut types, &mut values);
        }
        for ((keys, _), to) in cases.iter().zip(targets) {
            let to = *to;
            let next = self.b.new_block("next case");
            self.match_keys(&types, &values, keys, to, next);
            self.b.switch_to(next);
        }
        self.fail("NoMatch");
    }

    /// Branches to `hit` if all keysets match, else to `miss`.
    pub(super) fn match_keys(
        &mut self,
        types: &[Type],
        values: &[Vec<Opnd>],
        keys: &[Keyset],
        hit: Block,
        miss: Block,
    ) {
        for (i, ((ty, v), k)) in types.iter().zip(values).zip(keys).enumerate() {
            let width = ty.scalar_width().unwrap_or(0);
            let signed = matches!(ty.base(), Type::Int(_));
            let matches = match k {
                // A value set matches the remaining keys too.
                Keyset::Set(set) => {
                    let end = values.len().min(i + self.value_set_keys(*set));
                    Some(self.in_value_set(*set, &values[i..end]))
                }
                k => self.keyset_matches(v, k, width, signed),
            };
            let Some(c) = matches else { continue };
            let more = self.b.new_block("next key");
            self.b.branch(c, more, miss);
            self.b.switch_to(more);
        }
        self.b.jump(hit);
    }

    /// Returns the condition for a match; `None` if it always matches.
    fn keyset_matches(&mut self, v: &[Opnd], k: &Keyset, width: u32, signed: bool) -> Option<Opnd> {
        let number = |l: &mut Self, e: &Expr| -> Vec<Opnd> {
            let Some(c) = e.as_const() else { return l.limbs(e) };
            limbs(c, width).into_iter().take(limb_count(width)).map(Opnd::C).collect()
        };
        Some(match k {
            // A value set is looked up with all its keys.
            Keyset::Any | Keyset::Set(_) => return None,
            Keyset::Value(e) => {
                let want = number(self, e);
                self.equal(v, &want, width)
            }
            Keyset::Mask(e, m) => {
                let (value, mask) = (number(self, e), number(self, m));
                let have = self.bitwise(BinOp::And, v, &mask, width);
                let want = self.bitwise(BinOp::And, &value, &mask, width);
                self.equal(&have, &want, width)
            }
            Keyset::Range(a, b) => {
                let (ge, le) = if signed { (Cc::Sge, Cc::Sle) } else { (Cc::Uge, Cc::Ule) };
                let (low, high) = (number(self, a), number(self, b));
                let low = self.ordered(ge, v, &low, width);
                let high = self.ordered(le, v, &high, width);
                self.b.bin(BinOp::And, low, high, 1)
            }
        })
    }

    /// Lowers the methods of `packet_in`.
    pub(super) fn packet_in(&mut self, method: &str, c: &Call, ty: Option<&Type>) -> Option<Value> {
        match (method, &*c.args) {
            ("extract", _) => {
                self.extraction(c);
                None
            }
            ("advance", [CallArg::In(bits)]) => {
                let bits = self.word(bits);
                self.advance(bits, c.span);
                None
            }
            ("length", []) => Some(externs::packet_length(self)),
            ("lookahead", []) => {
                let ty = c.type_args.first().or(ty)?.clone();
                self.lookahead(&ty, c.span)
            }
            _ => {
                self.unsupported(c.span, &format!("packet_in.{method} with these arguments"));
                None
            }
        }
    }

    /// Continues if the packet contains `len` bytes from `base`, otherwise rejects.
    fn require_bytes(&mut self, base: Opnd, len: u32) {
        let end = self.b.read(self.packet.end);
        let ok = self.b.emit(Op::InBounds { base, len, end }, Ty::Int(1));
        let error = self.error_number("PacketTooShort");
        self.continue_or(ok, error);
    }

    /// Continues if `ok`, otherwise rejects an invalid argument of a parser operation.
    pub(super) fn continue_if(&mut self, ok: Opnd) {
        let error = self.error_number("ParserInvalidArgument");
        self.continue_or(ok, error);
    }

    /// Lowers `extract(header)` or `extract(header, bits)`.
    fn extraction(&mut self, c: &Call) {
        let (mut header, mut bits) = (None, None);
        for (_, arg) in c.args.as_written() {
            match arg {
                CallArg::Out(h) => header = self.lvalue(h).map(|to| (h, to)),
                CallArg::In(n) => bits = Some(self.word(n)),
                _ => {}
            }
        }
        match (header, c.args.first(), c.type_args.first()) {
            (Some((h, to)), ..) => self.extract(h, &to, bits),
            // `extract<T>(_)` extracts a header and discards it.
            (None, Some(CallArg::Skip), Some(ty)) => {
                let skipped = self.storage(ty);
                self.reset(&skipped);
                self.extract_into(&skipped, ty, bits, c.span);
            }
            _ => {}
        }
    }

    fn extract(&mut self, e: &Expr, to: &LValue, varbits: Option<Opnd>) {
        let options = &to.options;
        // Extraction into one of several elements uses a temporary header.
        let storage = match options.as_slice() {
            [] => return,
            [(Opnd::C(1), s)] => s.clone(),
            _ => {
                let s = self.storage(&e.ty);
                self.reset(&s);
                s
            }
        };
        if !self.extract_into(&storage, &e.ty, varbits, e.span) {
            return;
        }
        if !matches!(options.as_slice(), [(Opnd::C(1), _)]) {
            let value = self.load(&storage);
            self.for_option(options, |l, s| l.store(s, &value));
        }
        self.invalidate_siblings(to);
        self.advance_stack(e);
    }

    /// Extracts into one header; `false` if the header is not extractable.
    fn extract_into(&mut self, storage: &Storage, ty: &Type, varbits: Option<Opnd>, span: Span) -> bool {
        let Storage::Header(h) = storage else {
            self.unsupported(span, &format!("extraction into {ty}"));
            return false;
        };
        if let Some(what) = not_extractable(h, ty) {
            self.unsupported(span, &what);
            return false;
        }
        let (base, parsed) = (self.b.read(self.packet.cursor), self.b.read(self.packet.parsed));
        let size = h.layout.bytes;
        if size > 0 || varbits.is_none() {
            self.require_bytes(base, size);
        }
        let mut cursor = self.b.offset(base, Opnd::C(u64::from(size)));
        let mut taken = Opnd::C(u64::from(size));
        let behind = self.add_bytes(parsed, taken);
        let variable = varbits.zip(h.varbit).map(|(bits, varbit)| {
            let bytes = self.variable_part(bits, max_varbit(ty), behind);
            cursor = self.b.offset(cursor, bytes);
            self.require_bytes(cursor, 0);
            taken = self.add_bytes(taken, bytes);
            (varbit, bytes)
        });
        // Nothing fails from here on: until then, the header keeps its contents.
        if let Some((varbit, bytes)) = variable {
            self.write_varbit(varbit, behind, bytes);
        }
        self.b.write(h.base, base);
        self.b.write(h.at, parsed);
        self.load_fields(h, base);
        self.b.write(h.valid, Opnd::C(1));
        self.b.write(self.packet.cursor, cursor);
        let parsed = self.add_bytes(parsed, taken);
        self.b.write(self.packet.parsed, parsed);
        true
    }

    /// Returns the size of a varbit field in bytes, which begins at offset `from` of the packet. Rejects
    /// fractions of a byte, and sizes beyond `max`, unless the packet is shorter (P4_16, "Variable-width
    /// extraction").
    fn variable_part(&mut self, bits: Opnd, max: u32, from: Opnd) -> Opnd {
        let bytes = self.whole_bytes(bits);
        let ok = self.b.cmp(Cc::Ule, bytes, Opnd::C(u64::from(max / 8)), 32);
        if ok == Opnd::C(1) {
            return bytes;
        }
        let (next, failed) = (self.b.new_block("variable part"), self.b.new_block("too long"));
        self.b.branch(ok, next, failed);
        self.b.switch_to(failed);
        let behind = self.b.bin(BinOp::Add, from, bytes, 64);
        let length = self.context(offset::PACKET_LENGTH, 4);
        let short = self.b.cmp(Cc::Ugt, behind, length, 64);
        let errors = ["PacketTooShort", "HeaderTooShort"].map(|name| self.error_number(name));
        let error = self.select(short, errors[0], errors[1], 32);
        self.b.write(self.packet.error, error);
        let reject = self.reject;
        self.b.jump(reject);
        self.b.switch_to(next);
        bytes
    }

    fn whole_bytes(&mut self, bits: Opnd) -> Opnd {
        let rest = self.b.bin(BinOp::And, bits, Opnd::C(7), 32);
        let ok = self.b.cmp(Cc::Eq, rest, Opnd::C(0), 32);
        self.continue_if(ok);
        self.b.bin(BinOp::Shr, bits, Opnd::C(3), 32)
    }

    fn load_fields(&mut self, h: &HeaderStore, base: Opnd) {
        for ((leaf, original), field) in h.leaves.iter().zip(&h.original).zip(&h.layout.fields) {
            let value = self.load_bits(base, h.layout.bytes, field.offset, field.width);
            for ((s, o), v) in leaf.iter().zip(original).zip(value) {
                self.b.write(*s, v);
                self.b.write(*o, v);
            }
        }
    }

    /// Loads `width` bits from bit `offset` of `size` bytes at `base`, all of which are in bounds.
    pub(super) fn load_bits(&mut self, base: Opnd, size: u32, offset: u32, width: u32) -> Vec<Opnd> {
        (0..limb_count(width))
            .map(|i| {
                let w = u32::from(limb_width(width, i));
                // Limbs count from the end of the field.
                let start = offset + width - 64 * i as u32 - w;
                self.load_word(base, size, start, w)
            })
            .collect()
    }

    fn load_word(&mut self, base: Opnd, size: u32, offset: u32, width: u32) -> Opnd {
        let (first, last) = (offset / 8, (offset + width - 1) / 8);
        let bytes = last - first + 1;
        // One load of 1, 2, 4 or 8 bytes that ends with the field, or starts with the
        // header, and stays within the header.
        let window = [1u32, 2, 4, 8].into_iter().find(|w| *w >= bytes && *w <= size);
        let window = window.map(|w| ((last + 1).saturating_sub(w), w));
        let Some((start, w)) = window else {
            // In two parts, each smaller than the field.
            let half = if bytes > 4 { 32 } else { 8 * (bytes / 2).max(1) };
            let low_width = width.min(half - (8 - (offset + width) % 8) % 8);
            let high = self.load_word(base, size, offset, width - low_width);
            let low = self.load_word(base, size, offset + width - low_width, low_width);
            let high = self.b.bin(BinOp::Shl, high, Opnd::C(u64::from(low_width)), width as u8);
            return self.b.bin(BinOp::Or, high, low, width as u8);
        };
        let load = Op::Load { base, offset: start.cast_signed(), bytes: w as u8 };
        let raw = self.b.emit(load, Ty::Int(w as u8 * 8));
        let value = self.b.swap(w as u8, raw);
        let below = 8 * (start + w) - (offset + width);
        let value = self.b.bin(BinOp::Shr, value, Opnd::C(u64::from(below)), w as u8 * 8);
        self.b.truncate(value, width as u8)
    }

    fn lookahead(&mut self, ty: &Type, span: Span) -> Option<Value> {
        let Some((bits, _)) = ty.sizes().filter(|(min, max)| min == max) else {
            self.unsupported(span, &format!("lookahead of {ty}"));
            return None;
        };
        let base = self.b.read(self.packet.cursor);
        let size = bits.div_ceil(8);
        self.require_bytes(base, size);
        let mut at = 0;
        Some(self.peek(base, size, ty, &mut at))
    }

    fn peek(&mut self, base: Opnd, size: u32, ty: &Type, at: &mut u32) -> Value {
        match ty.base() {
            Type::Stack(t, n) => Value::Group((0..*n).map(|_| self.peek(base, size, t, at)).collect()),
            Type::Composite(c) => {
                Value::Group(c.fields.iter().map(|(_, t)| self.peek(base, size, t, at)).collect())
            }
            Type::Tuple(ts) => Value::Group(ts.iter().map(|t| self.peek(base, size, t, at)).collect()),
            other => {
                let width = other.scalar_width().unwrap_or(0);
                let limbs = self.load_bits(base, size, *at, width);
                *at += width;
                Value::Scalar(limbs, width)
            }
        }
    }

    fn advance(&mut self, bits: Opnd, span: Span) {
        let bytes = match bits {
            Opnd::C(n) if n % 8 != 0 => return self.unsupported(span, "advance by a part of a byte"),
            Opnd::C(n) => Opnd::C(n / 8),
            Opnd::V(_) => {
                let ok = self.b.cmp(Cc::Ule, bits, Opnd::C(MAX_ADVANCE * 8), 32);
                self.continue_if(ok);
                self.whole_bytes(bits)
            }
        };
        let base = self.b.read(self.packet.cursor);
        let cursor = self.b.offset(base, bytes);
        self.require_bytes(cursor, 0);
        self.b.write(self.packet.cursor, cursor);
        let parsed = self.b.read(self.packet.parsed);
        let parsed = self.add_bytes(parsed, bytes);
        self.b.write(self.packet.parsed, parsed);
    }
}

/// Returns the reason why a header cannot be extracted, if any.
fn not_extractable(h: &HeaderStore, ty: &Type) -> Option<String> {
    let bits: u32 = h.layout.fields.iter().map(|f| f.width).sum();
    if !bits.is_multiple_of(8) {
        return Some(format!(
            "a header of {bits} bits before a varbit field, which is not a whole number of bytes,"
        ));
    }
    if h.layout.bytes > MAX_HEADER {
        return Some(format!("a header of more than {MAX_HEADER} bytes"));
    }
    let behind = h.varbit.is_some() && !ends_with_varbit(ty);
    behind.then(|| "a header with fields behind a varbit field".to_owned())
}

fn ends_with_varbit(t: &Type) -> bool {
    t.composite(crate::ast::Composite::Header)
        .and_then(|c| c.fields.last())
        .is_some_and(|(_, t)| matches!(t.base(), Type::Varbit(_)))
}

fn max_varbit(t: &Type) -> u32 {
    let fields = t.composite(crate::ast::Composite::Header).map(|c| c.fields.as_slice()).unwrap_or_default();
    fields.iter().filter_map(|(_, t)| if let Type::Varbit(w) = t.base() { Some(*w) } else { None }).sum()
}

/// Appends the scalars of a value, and their types.
fn flatten(ty: &Type, value: Value, types: &mut Vec<Type>, values: &mut Vec<Vec<Opnd>>) {
    match (value, ty.fields()) {
        (Value::Group(parts), Some(fields)) => {
            fields.into_iter().zip(parts).for_each(|(ty, part)| flatten(ty, part, types, values));
        }
        (Value::Scalar(limbs, _), _) => {
            types.push(ty.clone());
            values.push(limbs);
        }
        _ => {}
    }
}
