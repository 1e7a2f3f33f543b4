//! Digests: code that writes a message for the control plane ([`p4shield_abi::digest`]).
//!
//! A message has the values at the call. Each call sends one.

use super::Lowering;
use super::storage::Value;
use crate::control_names::{digest_names, joined};
use crate::diagnostics::Code;
use crate::hir::{Expr, ExprKind};
use crate::ir::{BinOp, Cc, Map, MapId, Op, Opnd, Ty};
use crate::types::{CompositeType, Type};
use p4shield_abi::digest::{DIGEST_HEAD, DIGEST_MAP, MAX_DIGEST_WORDS, MAX_DIGESTS};
use p4shield_abi::map::{MapDefinition, TYPE_ARRAY};
use p4shield_abi::schema::{FieldSchema, MessageKind, MessageSchema};

/// The digests of a program.
#[derive(Default)]
pub(super) struct Digests {
    map: Option<MapId>,
    /// The types of what is sent, each once.
    types: Vec<Type>,
    fields: Vec<Vec<FieldSchema>>,
}

/// Fields of a message, with their values from the lowest word on.
type Sent = Vec<(FieldSchema, Vec<Opnd>)>;

impl Lowering<'_> {
    /// Lowers `digest(receiver, data)`. There is one receiver: the control plane.
    pub(super) fn digest(&mut self, data: &Expr) {
        let mut sent = Sent::new();
        let value = self.value(data);
        if !self.fields_of(data, &value, &mut sent) || sent.is_empty() {
            let hint = "send numbers, headers and structs of them, such as a struct of your own";
            let message = format!("a digest cannot carry {}", data.ty);
            return self.error(Code::Unsupported, data.span, message, hint);
        }
        let words = sent.iter().map(|(_, words)| words.len() as u32).sum::<u32>();
        if words > MAX_DIGEST_WORDS {
            let message =
                format!("a digest carries at most {MAX_DIGEST_WORDS} words of 64 bits, not {words}");
            return self.error(Code::TooLarge, data.span, message, "send less, or send several digests");
        }
        let map = self.digest_map(words);
        let number = self.digest_number(&data.ty, &sent);
        let values: Vec<_> = sent.into_iter().flat_map(|(_, words)| words).collect();
        self.send_digest(map, number, &values);
    }

    /// Returns the map of the messages, with room for one of this many words.
    fn digest_map(&mut self, words: u32) -> MapId {
        let size = DIGEST_HEAD + 8 * words;
        let map = self.digests.map.unwrap_or_else(|| {
            let definition = MapDefinition {
                map_type: TYPE_ARRAY,
                key_size: 4,
                value_size: size,
                max_entries: 1 + MAX_DIGESTS,
                flags: 0,
            };
            self.add_map(Map { name: DIGEST_MAP.to_owned(), definition, entries: Vec::new() })
        });
        self.digests.map = Some(map);
        let definition = &mut self.b.f.maps[map.0 as usize].definition;
        definition.value_size = definition.value_size.max(size);
        map
    }

    fn digest_number(&mut self, ty: &Type, sent: &Sent) -> u64 {
        let known = self.digests.types.iter().position(|t| t == ty);
        let number = known.unwrap_or(self.digests.types.len());
        if known.is_none() {
            self.digests.types.push(ty.clone());
            self.digests.fields.push(sent.iter().map(|(field, _)| field.clone()).collect());
        }
        number as u64
    }

    /// Writes a message, and counts it.
    fn send_digest(&mut self, map: MapId, number: u64, values: &[Opnd]) {
        let end = self.b.new_block("digest_end");
        let count_at = self.digest_element(map, Opnd::C(0), end);
        let count = self.b.emit(Op::LoadMap { base: count_at, offset: 0, bytes: 8 }, Ty::Int(64));
        let index = self.b.bin(BinOp::And, count, Opnd::C(u64::from(MAX_DIGESTS - 1)), 32);
        let index = self.b.bin(BinOp::Add, index, Opnd::C(1), 32);
        let base = self.digest_element(map, index, end);
        let next = self.b.bin(BinOp::Add, count, Opnd::C(1), 64);
        let words = [next, Opnd::C(number)].into_iter().chain(values.iter().copied());
        for (i, value) in words.enumerate() {
            self.b.emit(Op::StoreMap { base, offset: 8 * i as i32, bytes: 8, value }, Ty::None);
        }
        self.b.emit(Op::StoreMap { base: count_at, offset: 0, bytes: 8, value: next }, Ty::None);
        self.b.jump(end);
        self.b.switch_to(end);
    }

    /// Returns the address of an element, which is there in every run.
    fn digest_element(&mut self, map: MapId, index: Opnd, end: crate::ir::Block) -> Opnd {
        let base = self.b.lookup(map, vec![(0, 4, index)]);
        let there = self.b.cmp(Cc::Ne, base, Opnd::C(0), 64);
        let yes = self.b.new_block("digest");
        self.b.branch(there, yes, end);
        self.b.switch_to(yes);
        base
    }

    /// Adds the fields of what is sent. Returns false if a value cannot be.
    fn fields_of(&mut self, data: &Expr, value: &Value, out: &mut Sent) -> bool {
        let (Value::Group(values), ExprKind::Aggregate(items)) = (value, &data.kind) else {
            let name = match data.ty.base() {
                Type::Composite(_) => String::new(),
                _ => self.hir.control_path(data).unwrap_or_else(|| "value".to_owned()),
            };
            return self.add_fields(&name, &data.ty, value, out);
        };
        if let Type::Composite(c) = data.ty.base()
            && !c.is_anonymous()
        {
            return self.add_fields("", &data.ty, value, out);
        }
        // A list without names has those of what is in it.
        items.iter().zip(values).enumerate().all(|(i, (item, value))| {
            let name = self.hir.control_path(item).unwrap_or_else(|| format!("field{i}"));
            self.add_fields(&name, &item.ty, value, out)
        })
    }

    /// Adds a value and the fields in it, whose names begin with that of the value.
    fn add_fields(&mut self, name: &str, ty: &Type, value: &Value, out: &mut Sent) -> bool {
        match (ty.base(), value) {
            (Type::Composite(c), Value::Group(values)) => self.add_all(name, c, values, out),
            (Type::Composite(c), Value::Header(h)) => {
                out.push((FieldSchema { name: joined(name, "$valid$"), width: 1 }, vec![h.valid]));
                self.add_all(name, c, &h.fields, out)
            }
            (_, Value::Scalar(words, width)) => {
                out.push((FieldSchema { name: name.to_owned(), width: *width }, words.clone()));
                true
            }
            _ => false,
        }
    }

    fn add_all(&mut self, name: &str, c: &CompositeType, values: &[Value], out: &mut Sent) -> bool {
        c.fields.iter().zip(values).all(|((field, ty), value)| {
            let name = self.hir.control_names.field(name, &c.name, field);
            self.add_fields(&name, ty, value, out)
        })
    }

    /// Returns the messages between program and control plane.
    pub(super) fn messages(&mut self) -> Vec<MessageSchema> {
        let Digests { types, fields, .. } = std::mem::take(&mut self.digests);
        let names = digest_names(&types);
        let message = |(name, fields)| MessageSchema { kind: MessageKind::Digest, name, fields };
        names.into_iter().zip(fields).map(message).chain(self.controller_headers()).collect()
    }

    /// Returns the headers of packets to and from the controller.
    fn controller_headers(&self) -> Vec<MessageSchema> {
        let mut all = Vec::new();
        for (header, name) in self.hir.control_names.controller_headers() {
            let kind = match &**name {
                "packet_in" => MessageKind::PacketIn,
                "packet_out" => MessageKind::PacketOut,
                _ => continue,
            };
            let Some(c) = self.hir.headers.iter().find(|c| c.name == *header) else { continue };
            let mut fields = Vec::new();
            self.header_fields("", c, &mut fields);
            all.push(MessageSchema { kind, name: name.to_string(), fields });
        }
        all
    }

    fn header_fields(&self, path: &str, c: &CompositeType, out: &mut Vec<FieldSchema>) {
        for (field, ty) in &c.fields {
            let name = self.hir.control_names.field(path, &c.name, field);
            match ty.base() {
                Type::Composite(c) => self.header_fields(&name, c, out),
                _ => out.push(FieldSchema { name, width: ty.scalar_width().unwrap_or(0) }),
            }
        }
    }
}
