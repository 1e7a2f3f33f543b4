//! Tables, actions, value sets, digests, and the headers of packets from and to the controller.

use super::annotations::AnnotationIndex;
use super::ids::Prefix;
use super::message::{FieldValue, Message};
use super::types::{FlatField, bytes_of, number};
use super::walk::{ActionInstance, TableInstance};
use super::{P4InfoBuilder, names, with_width};
use crate::ast::{self, Composite, DeclKind, Direction};
use crate::control_names::digest_names;
use crate::hir::{self, BoundAction, Expr, ExprKind, MatchKind, Table, ValueSetId};
use crate::source::Span;
use crate::types::{CompositeType, Type};

/// Default capacity of a table in entries.
const DEFAULT_SIZE: u32 = 1024;

/// Returns the headers of packets to and from the controller, in the order of their locations.
pub(super) fn controller_headers<'a>(annotation_index: &AnnotationIndex<'a>) -> Vec<&'a ast::Decl> {
    let is_header = |d: &&ast::Decl| matches!(d.kind, DeclKind::Composite { kind: Composite::Header, .. });
    let mut found: Vec<_> = annotation_index.types().filter(is_header).collect();
    found.retain(|d| annotation_index.of_type(&d.name.name).has("controller_header"));
    found.sort_by_key(|d| d.span);
    found
}

impl P4InfoBuilder<'_> {
    /// Builds `Table`.
    pub(super) fn table(&mut self, t: &TableInstance) -> Message {
        let (table, annotations) = (&t.table, self.annotation_index.at(t.table.span, &t.table.declared));
        let keys = self.match_fields(table);
        let action_id = |i: usize| self.ids.of(Prefix::Action, &t.actions[i]);
        let refs: Vec<Message> =
            (0..table.actions.len()).map(|i| self.action_ref(table, i, action_id(i))).collect();
        let mut m = Message::default()
            .message(1, "preamble", self.preamble(Prefix::Table, &t.name, &annotations))
            .repeated(2, "match_fields", keys)
            .repeated(3, "action_refs", refs);
        if let Some(d) = &table.default {
            let id = action_id(d.index);
            if table.default_is_const {
                m = m.number(4, "const_default_action_id", id);
            }
            m = m.message(5, "initial_default_action", self.default_call(table, d, id));
        }
        let resources = ["counters", "meters"].map(|p| self.property_id(t, p));
        m.number(6, "implementation_id", self.property_id(t, "implementation"))
            .numbers(7, "direct_resource_ids", resources.into_iter().filter(|id| *id > 0))
            .number(8, "size", table.size.unwrap_or(DEFAULT_SIZE))
            .with(9, "idle_timeout_behavior", FieldValue::Enum("NOTIFY_CONTROL", u64::from(times_out(table))))
            .with(10, "is_const_table", FieldValue::Bool(table.entries_are_const))
            .with(11, "has_initial_entries", FieldValue::Bool(!table.entries.is_empty()))
    }

    /// Returns the id of the object that a property names; 0 if a controller cannot access it.
    fn property_id(&self, t: &TableInstance, property: &str) -> u32 {
        let named = |(i, _, _): &&(usize, String, _)| &*t.table.properties[*i].name == property;
        t.instances.iter().find(named).map_or(0, |(_, name, id)| {
            let ty = &self.hir.instances[id.0 as usize].ty;
            super::externs::prefix(ty).map_or(0, |prefix| self.ids.of(prefix, name))
        })
    }

    fn match_fields(&mut self, t: &Table) -> Vec<Message> {
        let annotations: Vec<_> =
            t.keys.iter().map(|k| self.annotation_index.at(k.kind_span, &k.kind_name)).collect();
        let ids = self.part_ids(&annotations, t.key_span);
        let mut out = Vec::new();
        for ((k, annotations), id) in t.keys.iter().zip(&annotations).zip(ids) {
            if k.kind == MatchKind::Selector {
                continue;
            }
            let m = Message::default().number(1, "id", id).text(2, "name", &self.hir.key_name(k));
            let m = with_width(annotations.add_unstructured(m, 3, &[]), self.types.width(&k.value.ty));
            let m = annotations.add_doc(m.with(5, "match_type", match_type(&k.kind_name)), 6);
            let other = if k.kind == MatchKind::Other { &*k.kind_name } else { "" };
            let m = self.types.named(m.text(7, "other_match_type", other), 8, "type_name", &k.value.ty);
            out.push(annotations.add_structured(m, 9, &[]));
        }
        out
    }

    /// Builds `ActionRef`.
    fn action_ref(&self, t: &Table, index: usize, id: u32) -> Message {
        let u = &t.actions[index];
        let annotations = self.annotation_index.at(u.span, "");
        let m = annotations.add_unstructured(Message::default().number(1, "id", id), 2, &[]);
        // The location of a NoAction that the checker added is that of the table.
        let added = u.span == t.span;
        let m = if added { m.text(2, "annotations", "@defaultonly") } else { m };
        let m = match (u.default_only, u.table_only) {
            (true, _) => m.with(3, "scope", FieldValue::Enum("DEFAULT_ONLY", 2)),
            (_, true) => m.with(3, "scope", FieldValue::Enum("TABLE_ONLY", 1)),
            _ => m,
        };
        annotations.add_structured(m, 4, &[])
    }

    /// Builds `TableActionCall`.
    fn default_call(&self, t: &Table, d: &BoundAction, id: u32) -> Message {
        let action = &self.hir.actions[t.actions[d.index].action.0 as usize];
        let data = action.params.iter().filter(|p| p.direction == Direction::None);
        let argument = |(i, (p, e)): (u32, (&hir::Param, &Expr))| {
            let ExprKind::Const(n) = &e.kind else { return None };
            let width = p.ty.scalar_width()?;
            let value = FieldValue::Bytes(bytes_of(&number(n, width), width));
            Some(Message::default().number(2, "param_id", i).with(3, "value", value))
        };
        let arguments = (1u32..).zip(data.zip(&d.data)).filter_map(argument);
        Message::default().number(1, "action_id", id).repeated(4, "arguments", arguments)
    }

    /// Builds `Action`.
    pub(super) fn action(&mut self, at: &ActionInstance) -> Message {
        let a = self.hir.actions[at.id.0 as usize].clone();
        let preamble = self.preamble(Prefix::Action, &at.name, &self.annotation_index.at(a.span, &a.name));
        // The program supplies the arguments of an action that no table lists.
        let params: Vec<_> =
            a.params.iter().filter(|p| at.in_table && p.direction == Direction::None).collect();
        let annotations: Vec<_> = params.iter().map(|p| self.annotation_index.at(p.span, &p.name)).collect();
        let ids = self.part_ids(&annotations, a.span);
        let mut out = Vec::new();
        for ((p, annotations), id) in params.into_iter().zip(annotations).zip(ids) {
            let m =
                Message::default().number(1, "id", id).text(2, "name", &annotations.full_name("", &p.name));
            let m = with_width(annotations.add_unstructured(m, 3, &[]), self.types.width(&p.ty));
            let m = self.types.named(annotations.add_doc(m, 5), 6, "type_name", &p.ty);
            out.push(annotations.add_structured(m, 7, &[]));
        }
        Message::default().message(1, "preamble", preamble).repeated(2, "params", out)
    }

    /// Builds `ValueSet`.
    pub(super) fn value_set(&mut self, id: ValueSetId, name: &str) -> Message {
        let set = &self.hir.value_sets[id.0 as usize];
        let annotations = self.annotation_index.at(set.span, &set.name);
        let preamble = self.preamble(Prefix::ValueSet, name, &annotations);
        let matches = match &set.ty {
            Type::Composite(c) => self.member_fields(c, set.span),
            t => {
                let m = with_width(Message::default().number(1, "id", 1u32), self.types.width(t));
                vec![m.with(5, "match_type", match_type("exact"))]
            }
        };
        let m = Message::default().message(1, "preamble", preamble);
        m.repeated(2, "match", matches).number(3, "size", set.size)
    }

    /// Builds the fields of a value set's members.
    fn member_fields(&mut self, c: &CompositeType, at: Span) -> Vec<Message> {
        let annotations: Vec<_> =
            c.fields.iter().map(|(f, _)| self.annotation_index.of_field(&c.name, f)).collect();
        let ids = self.part_ids(&annotations, at);
        let mut out = Vec::new();
        for (((name, t), annotations), id) in c.fields.iter().zip(annotations).zip(ids) {
            let kind = match_type(annotations.word("match").unwrap_or("exact"));
            let m = Message::default().number(1, "id", id).text(2, "name", &annotations.full_name("", name));
            let m = with_width(annotations.add_unstructured(m, 3, &["match"]), self.types.width(t));
            let m = annotations.add_doc(m.with(5, "match_type", kind), 6);
            out.push(annotations.add_structured(m, 9, &["match"]));
        }
        out
    }

    /// Builds the `Digest`s.
    pub(super) fn digests(&mut self) -> Vec<Message> {
        let found = self.found;
        let digest = |(t, name): (&Type, String)| {
            let preamble = names(self.ids, Prefix::Digest, &name);
            Message::default().message(1, "preamble", preamble).message(2, "type_spec", self.types.spec(t))
        };
        found.digests.iter().zip(digest_names(&found.digests)).map(digest).collect()
    }

    /// Builds `ControllerPacketMetadata`, named after the value of `@controller_header`.
    pub(super) fn controller_headers(&mut self) -> Vec<Message> {
        let mut out = Vec::new();
        for d in controller_headers(self.annotation_index) {
            let annotations = self.annotation_index.of_type(&d.name.name);
            let Some(header) = self.hir.headers.iter().find(|h| h.name == d.name.name) else { continue };
            let full = annotations.full_name("", &d.name.name);
            let name = annotations.text("controller_header").unwrap_or(&full);
            let preamble = Message::default()
                .number(1, "id", self.ids.of(Prefix::ControllerHeader, &full))
                .text(2, "name", name)
                .text(3, "alias", name);
            let preamble = annotations.add_all(preamble, &[]);
            let flat = self.types.flat(header);
            let metadata = self.metadata(&flat, d.span);
            out.push(Message::default().message(1, "preamble", preamble).repeated(2, "metadata", metadata));
        }
        out
    }

    /// Builds the fields of a controller header.
    fn metadata(&mut self, fields: &[FlatField], at: Span) -> Vec<Message> {
        let annotations: Vec<_> =
            fields.iter().map(|f| self.annotation_index.of_field(&f.owner.0, &f.owner.1)).collect();
        let ids = self.part_ids(&annotations, at);
        let mut out = Vec::new();
        for ((f, annotations), id) in fields.iter().zip(annotations).zip(ids) {
            if annotations.has("hidden") {
                continue;
            }
            let m = Message::default().number(1, "id", id).text(2, "name", &f.name);
            let m = with_width(annotations.add_unstructured(m, 3, &[]), self.types.width(&f.ty));
            out.push(annotations.add_structured(self.types.named(m, 5, "type_name", &f.ty), 6, &[]));
        }
        out
    }
}

/// Returns `MatchType`; unspecified for a kind that P4Runtime does not define.
fn match_type(kind: &str) -> FieldValue {
    match kind {
        "exact" => FieldValue::Enum("EXACT", 2),
        "lpm" => FieldValue::Enum("LPM", 3),
        "ternary" => FieldValue::Enum("TERNARY", 4),
        "range" => FieldValue::Enum("RANGE", 5),
        "optional" => FieldValue::Enum("OPTIONAL", 6),
        _ => FieldValue::Enum("UNSPECIFIED", 0),
    }
}

/// Whether the controller requests notifications of idle entries.
fn times_out(t: &Table) -> bool {
    let of = |p: &hir::Property| match &p.value {
        hir::CtorArg::Value(e) => e.as_const().is_some_and(|n| *n != 0.into()),
        _ => false,
    };
    t.properties.iter().any(|p| &*p.name == "support_timeout" && of(p))
}
