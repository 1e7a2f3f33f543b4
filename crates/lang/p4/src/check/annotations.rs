//! Annotations: free text, except for the forms that the language prescribes.

use super::Checker;
use crate::ast::{Annotation, ExprKind as Ast, Ident};
use crate::diagnostics::Code;
use crate::hir::{ExprKind, MatchKind};
use crate::lexer::{Name, Tok, Token};
use crate::source::Span;
use crate::types::Type;
use num_traits::ToPrimitive;

impl Checker<'_> {
    /// Checks the annotations of a declaration.
    pub(super) fn annotations(&mut self, annotations: &[Annotation]) {
        for (i, a) in annotations.iter().enumerate() {
            let same = |o: &Annotation| o.name.name == a.name.name;
            if let Some(elements) = &a.elements {
                if annotations[..i].iter().any(same) {
                    let message = format!("duplicate annotation @{}", a.name.name);
                    self.bad_annotation(a.name.span, message, "join them into one");
                }
                if &*a.name.name == "metric" {
                    self.bad_metric(a.name.span);
                }
                self.structured(elements);
            } else {
                self.unstructured(a);
            }
        }
    }

    fn bad_annotation(&mut self, span: Span, message: String, hint: &str) {
        self.error(Code::BadAnnotation, span, message, hint);
    }

    fn bad_metric(&mut self, span: Span) {
        let message = "@metric expects no argument or a name".to_owned();
        self.bad_annotation(span, message, "write @metric or @metric(\"name\")");
    }

    /// Checks the forms of `@name(...)` that the language and P4Runtime prescribe.
    fn unstructured(&mut self, a: &Annotation) {
        match &*a.name.name {
            "name" | "deprecated" | "pkginfo_text" => {
                let no_text = |t: &Token| matches!(t.tok, Tok::Int(_) | Tok::Sym("|"));
                if a.body.is_empty() || a.body.iter().any(no_text) {
                    let message = format!("@{} expects a string", a.name.name);
                    self.bad_annotation(a.name.span, message, "write the text in quotation marks");
                }
            }
            "metric" => match a.body.as_slice() {
                [] => {}
                [Token { tok: Tok::Str(name), .. }] if !name.is_empty() => {}
                _ => self.bad_metric(a.name.span),
            },
            "compartment" if !a.body.is_empty() => {
                let message = "@compartment expects no argument".to_owned();
                self.bad_annotation(a.name.span, message, "write @compartment");
            }
            "pkginfo" if a.body.is_empty() => {
                let message = "@pkginfo is empty".to_owned();
                self.bad_annotation(a.name.span, message, "write @pkginfo(name = \"...\")");
            }
            "match" => {
                let kind =
                    if let [Token { tok: Tok::Ident(n), .. }] = a.body.as_slice() { Some(n) } else { None };
                if kind.is_none_or(|n| !self.match_kinds.contains(n)) {
                    let span = a.body.first().zip(a.body.last()).map(|(a, b)| a.span.to(b.span));
                    let message = "@match expects a match kind".to_owned();
                    self.bad_annotation(
                        span.unwrap_or(a.name.span),
                        message,
                        "write for example @match(ternary)",
                    );
                }
            }
            "p4runtime_translation" => {
                let second =
                    a.body.iter().position(|t| t.tok == Tok::Sym(",")).and_then(|i| a.body.get(i + 1));
                if let Some(t) = second
                    && !matches!(t.tok, Tok::Word("bit" | "string") | Tok::Int(_))
                {
                    let message = "expected a type that P4Runtime can transmit".to_owned();
                    self.bad_annotation(t.span, message, "write bit<W>, string or a number of bits");
                }
            }
            _ => {}
        }
    }

    /// Returns the numbers in `@field_list(number, ...)`.
    pub(super) fn field_lists(&mut self, annotations: &[Annotation]) -> Vec<u32> {
        let mut lists = Vec::new();
        for a in annotations.iter().filter(|a| &*a.name.name == "field_list") {
            for e in crate::parser::values(&a.body, a.name.span, self.sink) {
                let value = self.expr(&e, None);
                match value.as_const().and_then(ToPrimitive::to_u8) {
                    Some(number) => lists.push(number.into()),
                    None if value.ty.is_bad() => {}
                    None => {
                        let message = "@field_list expects numbers from 0 to 255".to_owned();
                        self.bad_annotation(e.span, message, "write for example @field_list(1, 2)");
                    }
                }
            }
        }
        lists
    }

    /// Checks `@name[key = value, ...]` or `@name[value, ...]`, whose values must be known at
    /// compile time.
    fn structured(&mut self, elements: &[(Option<Ident>, crate::ast::Expr)]) {
        let mut keys: Vec<Name> = Vec::new();
        for (key, value) in elements {
            if let Some(k) = key {
                if keys.contains(&k.name) {
                    self.bad_annotation(k.span, format!("duplicate key `{}`", k.name), "remove one of them");
                }
                keys.push(k.name.clone());
            }
            let hint = "values are integers, strings and bools";
            if matches!(value.kind, Ast::List(_) | Ast::Struct { .. }) {
                self.bad_annotation(value.span, "list in a structured annotation".to_owned(), hint);
                continue;
            }
            let e = self.expr(value, None);
            let known = e.as_const().is_some() || matches!(e.kind, ExprKind::Text(_));
            let plain =
                matches!(e.ty.base(), Type::Bool | Type::Text | Type::InfInt | Type::Bit(_) | Type::Int(_));
            if !(e.ty.is_bad() || known && plain) {
                self.bad_annotation(value.span, "this value is not known at compile time".to_owned(), hint);
            }
            self.program.annotation_values.insert(value.span, e);
        }
    }
}

/// Returns the number of an annotation such as `@priority(3)`.
pub(super) fn number_annotation(annotations: &[Annotation], name: &str) -> Option<u32> {
    let a = annotations.iter().find(|a| &*a.name.name == name)?;
    match &a.body.first()?.tok {
        Tok::Int(text) => text.parse().ok(),
        _ => None,
    }
}

/// Returns the text of `@name("...")`.
pub(super) fn name_annotation(annotations: &[Annotation]) -> Option<String> {
    let a = annotations.iter().find(|a| &*a.name.name == "name")?;
    match &a.body.first()?.tok {
        Tok::Str(s) => Some(s.to_string()),
        _ => None,
    }
}

/// Returns the match kind of a name.
pub(super) fn match_kind_named(name: &str) -> MatchKind {
    match name {
        "exact" => MatchKind::Exact,
        "lpm" => MatchKind::Lpm,
        "ternary" => MatchKind::Ternary,
        "range" => MatchKind::Range,
        "optional" => MatchKind::Optional,
        "selector" => MatchKind::Selector,
        _ => MatchKind::Other,
    }
}

/// Returns the match kind in `@match(kind)`.
pub(super) fn match_annotation(annotations: &[Annotation]) -> Option<MatchKind> {
    let a = annotations.iter().find(|a| &*a.name.name == "match")?;
    match &a.body.first()?.tok {
        Tok::Ident(n) => Some(match_kind_named(n)),
        _ => None,
    }
}
