//! Annotations for P4Info: names, ids, documentation, and the author's own.
//!
//! The resolved program contains no annotations, because they do not change its behaviour. This
//! module finds them in the syntax tree by the name that they precede and its location.

use super::message::{FieldValue, Message};
use crate::ast::{Annotation, Decl, DeclKind, Param, Program, Property, PropertyKind};
use crate::hir::{self, ExprKind};
use crate::lexer::{Name, Tok};
use crate::source::Span;
use num_traits::ToPrimitive;
use std::collections::HashMap;

/// The annotations of a program.
pub(super) struct AnnotationIndex<'a> {
    /// By location and name of the annotated declaration. Declarations from one macro share a
    /// location; the name distinguishes them.
    found: HashMap<(Span, Name), &'a [Annotation]>,
    /// Types are declared only at the top level, each name once.
    types: HashMap<Name, &'a Decl>,
    /// Values in brackets, by location.
    values: &'a HashMap<Span, hir::Expr>,
}

/// Annotations that have their own fields in P4Info.
const EXCLUDED: [&str; 4] = ["name", "id", "brief", "description"];

impl<'a> AnnotationIndex<'a> {
    pub(super) fn new(program: &'a Program, values: &'a HashMap<Span, hir::Expr>) -> Self {
        let types = program.decls.iter().map(|d| (d.name.name.clone(), d)).collect();
        let mut annotation_index = Self { found: HashMap::new(), types, values };
        annotation_index.declarations(&program.decls);
        annotation_index
    }

    fn declarations(&mut self, decls: &'a [Decl]) {
        for d in decls {
            self.note(d.name.span, &d.name.name, &d.annotations);
            match &d.kind {
                DeclKind::Action { params, .. } => self.params(params),
                DeclKind::Control(c) => self.declarations(&c.locals),
                DeclKind::Parser(p) => self.declarations(&p.locals),
                DeclKind::Table(properties) => properties.iter().for_each(|p| self.property(p)),
                DeclKind::Instance { .. } => self.note(d.span, &d.name.name, &d.annotations),
                _ => {}
            }
        }
    }

    fn params(&mut self, params: &'a [Param]) {
        params.iter().for_each(|p| self.note(p.name.span, &p.name.name, &p.annotations));
    }

    fn property(&mut self, p: &'a Property) {
        match &p.kind {
            PropertyKind::Key(keys) => {
                for k in keys {
                    self.note(k.match_kind.span, &k.match_kind.name, &k.annotations);
                }
            }
            PropertyKind::Actions(actions) => {
                actions.iter().for_each(|a| self.note(a.value.span, "", &a.annotations));
            }
            PropertyKind::Other { name, .. } => self.note(name.span, &name.name, &p.annotations),
            PropertyKind::Entries(_) => {}
        }
    }

    fn note(&mut self, at: Span, name: &str, annotations: &'a [Annotation]) {
        if !annotations.is_empty() {
            self.found.insert((at, name.into()), annotations);
        }
    }

    /// Returns the annotations of the declaration of `name` at this location.
    pub(super) fn at(&self, location: Span, name: &str) -> Annotations<'a> {
        self.annotations(self.found.get(&(location, name.into())).copied())
    }

    fn annotations(&self, found: Option<&'a [Annotation]>) -> Annotations<'a> {
        Annotations { annotations: found.unwrap_or_default(), values: self.values }
    }

    /// Returns the annotations of a type.
    pub(super) fn of_type(&self, name: &str) -> Annotations<'a> {
        self.annotations(self.types.get(name).map(|d| d.annotations.as_slice()))
    }

    /// Returns the annotations of a field of a struct or header.
    pub(super) fn of_field(&self, ty: &str, field: &str) -> Annotations<'a> {
        let fields = match self.types.get(ty).map(|d| &d.kind) {
            Some(DeclKind::Composite { fields, .. }) => fields.as_slice(),
            _ => &[],
        };
        let found = fields.iter().find(|f| &*f.name.name == field);
        self.annotations(found.map(|f| f.annotations.as_slice()))
    }

    /// Returns the declarations of the top level.
    pub(super) fn types(&self) -> impl Iterator<Item = &'a Decl> {
        self.types.values().copied()
    }
}

/// The annotations of one declaration.
#[derive(Clone, Copy)]
pub(super) struct Annotations<'a> {
    annotations: &'a [Annotation],
    values: &'a HashMap<Span, hir::Expr>,
}

impl<'a> Annotations<'a> {
    fn named(&self, name: &str) -> Option<&'a Annotation> {
        self.annotations.iter().find(|a| &*a.name.name == name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.named(name).is_some()
    }

    /// Returns the text of `@what("text")`.
    pub(super) fn text(&self, what: &str) -> Option<&'a str> {
        match &self.named(what)?.body.first()?.tok {
            Tok::Str(s) => Some(s),
            _ => None,
        }
    }

    /// Returns the name of `@what(name)`.
    pub(super) fn word(&self, what: &str) -> Option<&'a str> {
        match &self.named(what)?.body.first()?.tok {
            Tok::Ident(n) => Some(n),
            _ => None,
        }
    }

    /// Returns the number of `@what(number)`.
    pub(super) fn number(&self, what: &str) -> Option<u32> {
        number(&self.named(what)?.body.first()?.tok)
    }

    /// Returns the keys and values of each `@what(key = value, ...)`.
    pub(super) fn pairs(&self, what: &'static str) -> impl Iterator<Item = (&'a str, &'a Tok)> {
        let bodies = self.annotations.iter().filter(move |a| &*a.name.name == what).map(|a| &a.body);
        let parts = bodies.flat_map(|b| b.split(|t| t.tok == Tok::Sym(",")));
        parts.filter_map(|part| match part {
            [key, equals, value] if equals.tok == Tok::Sym("=") => match &key.tok {
                Tok::Ident(k) => Some((&**k, &value.tok)),
                _ => None,
            },
            _ => None,
        })
    }

    /// Returns the URI of `@p4runtime_translation`, and the width for the controller; 0 for a string.
    pub(super) fn translation(&self) -> Option<(&'a str, u32)> {
        let uri = self.text("p4runtime_translation")?;
        let body = &self.named("p4runtime_translation")?.body;
        Some((uri, body.iter().find_map(|t| number(&t.tok)).unwrap_or(0)))
    }

    /// Returns the control-plane name; the annotation's name is absolute if it begins with a dot.
    pub(super) fn full_name(&self, path: &str, name: &str) -> String {
        crate::control_names::joined(path, self.text("name").unwrap_or(name))
    }

    /// Returns the annotations without own fields in the message; `excluded` are further names besides
    /// [`EXCLUDED`].
    fn others(&self, excluded: &[&str]) -> impl Iterator<Item = &'a Annotation> {
        let excluded =
            |a: &&Annotation| EXCLUDED.contains(&&*a.name.name) || excluded.contains(&&*a.name.name);
        self.annotations.iter().filter(move |a| !excluded(a))
    }

    /// Adds the field `annotations`.
    pub(super) fn add_unstructured(&self, m: Message, number: u32, excluded: &[&str]) -> Message {
        let plain = self.others(excluded).filter(|a| a.elements.is_none());
        plain.fold(m, |m, a| m.text(number, "annotations", &written(a)))
    }

    /// Adds the field `doc`, if there is documentation.
    pub(super) fn add_doc(&self, m: Message, number: u32) -> Message {
        if !self.has("brief") && !self.has("description") {
            return m;
        }
        let text = |what| self.text(what).unwrap_or_default();
        let doc = Message::default().text(1, "brief", text("brief"));
        m.message(number, "doc", doc.text(2, "description", text("description")))
    }

    /// Adds the last fields of a preamble.
    pub(super) fn add_all(&self, preamble: Message, excluded: &[&str]) -> Message {
        let m = self.add_doc(self.add_unstructured(preamble, 4, excluded), 5);
        self.add_structured(m, 6, excluded)
    }

    /// Adds the field `structured_annotations`.
    pub(super) fn add_structured(&self, m: Message, number: u32, excluded: &[&str]) -> Message {
        let structured = self.others(excluded).filter(|a| a.elements.is_some());
        m.repeated(number, "structured_annotations", structured.map(|a| self.one_structured(a)))
    }

    /// Builds `StructuredAnnotation`.
    fn one_structured(&self, a: &Annotation) -> Message {
        let m = Message::default().text(1, "name", &a.name.name);
        let elements = a.elements.as_deref().unwrap_or_default();
        let value = |e: &crate::ast::Expr| self.values.get(&e.span).map_or_else(Message::default, expression);
        let by_key = |(k, e): &(Option<crate::ast::Ident>, crate::ast::Expr)| {
            let key = k.as_ref().map(|k| k.name.to_string()).unwrap_or_default();
            Message::default().text(1, "key", &key).message(2, "value", value(e))
        };
        match elements.first() {
            None => m,
            Some((None, _)) => {
                let list = elements.iter().map(|(_, e)| value(e));
                m.message(2, "expression_list", Message::default().repeated(1, "expressions", list))
            }
            Some((Some(_), _)) => {
                let list = Message::default().repeated(1, "kv_pairs", elements.iter().map(by_key));
                m.message(3, "kv_pair_list", list)
            }
        }
    }
}

/// Returns the value of a token, if it is a small number.
pub(super) fn number(t: &Tok) -> Option<u32> {
    match t {
        Tok::Int(text) => crate::constant::small(&crate::constant::parse_literal(text)?.value),
        _ => None,
    }
}

/// Builds `Expression`: the value of an annotation's element.
fn expression(e: &hir::Expr) -> Message {
    let (number, name, value) = match (&e.kind, e.ty.base()) {
        (ExprKind::Text(t), _) => (1, "string_value", FieldValue::Text(t.to_string())),
        (ExprKind::Const(n), crate::types::Type::Bool) => {
            (3, "bool_value", FieldValue::Bool(n.to_u8() == Some(1)))
        }
        (ExprKind::Const(n), _) => (2, "int64_value", FieldValue::Signed(n.to_i64().unwrap_or(i64::MAX))),
        _ => return Message::default(),
    };
    Message::default().present(number, name, value)
}

/// Prints an annotation as written, on one line.
fn written(a: &Annotation) -> String {
    let mut out = format!("@{}", a.name.name);
    if a.body.is_empty() {
        return out;
    }
    out.push('(');
    for (i, t) in a.body.iter().enumerate() {
        if i > 0 && t.spaced {
            out.push(' ');
        }
        match &t.tok {
            Tok::Ident(n) | Tok::Int(n) => out.push_str(n),
            Tok::Word(w) | Tok::Sym(w) => out.push_str(w),
            Tok::Str(s) => out.push_str(&format!("\"{}\"", s.replace('\\', "\\\\").replace('"', "\\\""))),
            Tok::Other(c) => out.push(*c),
            Tok::Eof => {}
        }
    }
    out.push(')');
    out
}
