//! Parsers: states, transitions, `select`.

use super::{Checker, Place, Symbol, TypeSymbol};
use crate::ast::{self, ExprKind as Ast, Transition};
use crate::constant::fits;
use crate::diagnostics::{Code, Diagnostic};
use crate::hir::{self, Expr, Keyset, Next, ParserId, StateId, Target};
use crate::lexer::Name;
use crate::source::Span;
use crate::types::Type;
use std::rc::Rc;

impl Checker<'_> {
    pub(super) fn parser(&mut self, d: &ast::Decl, p: &ast::ParserDecl) {
        if !p.type_params.is_empty() {
            self.unsupported(d.name.span, "type parameters of a parser with a body");
        }
        let parser = self.scoped(|c| {
            let _ = c.type_params(&p.type_params);
            let ctor_params = c.params(&p.ctor_params);
            let params = c.params(&p.params);
            let saved = std::mem::replace(&mut c.place, Place::Parser);
            let (locals, states) = c.scoped(|c| {
                let locals = p.locals.iter().filter_map(|l| c.local_stmt(l)).collect();
                (locals, c.states(d, &p.states))
            });
            c.place = saved;
            hir::Parser { name: d.name.name.clone(), span: d.name.span, params, ctor_params, locals, states }
        });
        let id = ParserId(self.program.parsers.len() as u32);
        self.program.parsers.push(Rc::new(parser));
        self.declare(&d.name, Symbol::Type(TypeSymbol::Parser(id)));
    }

    /// The states, `start` first.
    fn states(&mut self, d: &ast::Decl, states: &[ast::State]) -> Vec<hir::State> {
        let mut ordered: Vec<&ast::State> = states.iter().collect();
        ordered.sort_by_key(|s| &*s.name.name != "start");
        if ordered.first().is_none_or(|s| &*s.name.name != "start") {
            let message = format!("parser `{}` has no state `start`", d.name.name);
            self.error(
                Code::BadParser,
                d.name.span,
                message,
                "parsing begins there: add `state start { ... }`",
            );
        }
        let names: Vec<Name> = ordered.iter().map(|s| s.name.name.clone()).collect();
        for (i, s) in ordered.iter().enumerate() {
            let reserved = matches!(&*s.name.name, "accept" | "reject");
            if reserved || names[..i].contains(&s.name.name) {
                let what = if reserved { "is built in" } else { "is declared twice" };
                let message = format!("state `{}` {what}", s.name.name);
                self.error(Code::DuplicateName, s.name.span, message, "choose another name");
            }
        }
        ordered.iter().map(|s| self.state(s, &names)).collect()
    }

    fn state(&mut self, s: &ast::State, names: &[Name]) -> hir::State {
        self.scoped(|c| {
            let body = c.statements(&s.body);
            let next = match &s.transition {
                None => Next::To(Target::Reject),
                Some(Transition::Direct(to)) => Next::To(c.target(to, names)),
                Some(Transition::Select { subjects, cases, span }) => c.select(subjects, cases, *span, names),
            };
            hir::State { name: s.name.name.clone(), span: s.name.span, body, next }
        })
    }

    fn target(&mut self, to: &ast::Ident, names: &[Name]) -> Target {
        match &*to.name {
            "accept" => Target::Accept,
            "reject" => Target::Reject,
            _ => match names.iter().position(|n| *n == to.name) {
                Some(i) => Target::State(StateId(i as u32)),
                None => {
                    let known = names.iter().map(|n| &**n).chain(["accept", "reject"]);
                    let hint = match super::closest(&to.name, known) {
                        Some(n) => format!("did you mean `{n}`?"),
                        None => "declare it in this parser".to_owned(),
                    };
                    self.error(Code::UnknownName, to.span, format!("there is no state `{}`", to.name), hint);
                    Target::Reject
                }
            },
        }
    }

    fn select(
        &mut self,
        subjects: &[ast::Expr],
        cases: &[(ast::Expr, ast::Ident)],
        span: Span,
        names: &[Name],
    ) -> Next {
        let subjects: Vec<Expr> = subjects.iter().map(|s| self.expr(s, None)).collect();
        for s in &subjects {
            if s.ty.scalar_width().is_none() && !s.ty.is_bad() {
                let hint = "give it a width, for example 8w1, or select on its fields";
                self.error(Code::BadOperand, s.span, format!("a select on {}", s.ty), hint);
            }
        }
        let types: Vec<Type> = subjects.iter().map(|s| s.ty.clone()).collect();
        let mut out: Vec<(Vec<Keyset>, Target)> = Vec::new();
        for (keys, to) in cases {
            let to = self.target(to, names);
            if let Some(keys) = self.keysets(keys, &types) {
                out.push((keys, to));
            }
        }
        let catches_all = |(keys, _): &(Vec<Keyset>, Target)| keys.iter().all(|k| matches!(k, Keyset::Any));
        if !out.iter().any(catches_all) && !cases.is_empty() {
            let d = Diagnostic::new(
                Code::MissingDefault,
                span,
                "packets that match no case are rejected, and dropped",
            );
            self.sink.add(d.hint("add `default: accept;` or, if that is meant, `default: reject;`"));
        }
        Next::Select { subjects, cases: out, span }
    }

    /// One keyset per type.
    pub(super) fn keysets(&mut self, e: &ast::Expr, types: &[Type]) -> Option<Vec<Keyset>> {
        let items: Vec<&ast::Expr> = match &e.kind {
            Ast::List(items) if types.len() != 1 => items.iter().collect(),
            Ast::Default | Ast::DontCare => return Some(vec![Keyset::Any; types.len()]),
            _ => vec![e],
        };
        if items.len() != types.len() {
            let message = format!("{} keys are matched, but {} are given", types.len(), items.len());
            self.error(Code::BadArguments, e.span, message, "write one for each key, `_` for any value");
            return None;
        }
        items.iter().zip(types).map(|(e, t)| self.keyset(e, t)).collect()
    }

    fn keyset(&mut self, e: &ast::Expr, ty: &Type) -> Option<Keyset> {
        let constant = |c: &mut Self, e: &ast::Expr| {
            let v = c.key_value(e, ty);
            if v.as_const().is_none() && !v.ty.is_bad() {
                c.error(
                    Code::NotConstant,
                    e.span,
                    "this has to be known at compile time",
                    "use literals and constants",
                );
            }
            v.as_const().is_some().then_some(v)
        };
        Some(match &e.kind {
            Ast::Default | Ast::DontCare => Keyset::Any,
            Ast::Mask(v, m) => Keyset::Mask(constant(self, v)?, constant(self, m)?),
            Ast::Range(a, b) => {
                let (a, b) = (constant(self, a)?, constant(self, b)?);
                if a.as_const() > b.as_const() {
                    self.error(Code::BadConstant, e.span, "this range is empty", "write low .. high");
                    return None;
                }
                Keyset::Range(a, b)
            }
            _ => Keyset::Value(constant(self, e)?),
        })
    }

    /// A value to match; unlike elsewhere, one that does not fit is an error: it would never match.
    fn key_value(&mut self, e: &ast::Expr, ty: &Type) -> Expr {
        let v = self.expr(e, Some(ty));
        if let (Some(n), Some((w, signed)), true) = (v.as_const(), ty.base().integer(), v.ty == Type::InfInt)
            && !fits(n, w, signed)
            && !fits(n, w, true)
        {
            let message = format!("{n} does not fit {ty} and would never match");
            self.error(Code::BadConstant, e.span, message, "use a smaller number");
            return Expr::bad(e.span);
        }
        let v = if v.ty == *ty { v } else { self.enum_value(v) };
        match ty.base() {
            // Keys of `type` may be matched with plain numbers.
            base if base != ty && v.ty == Type::InfInt => {
                let v = self.coerce(v, base);
                Expr { ty: ty.clone(), ..v }
            }
            Type::Enum(en) if v.ty == Type::InfInt && en.repr.is_some() => {
                let v = self.coerce(v, &en.repr.clone().unwrap_or(Type::Bad));
                Expr { ty: ty.clone(), ..v }
            }
            _ => self.coerce(v, ty),
        }
    }
}
