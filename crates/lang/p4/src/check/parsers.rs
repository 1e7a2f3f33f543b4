//! Checks of parsers: states, transitions, `select`.

use super::depth::Body;
use super::params::ParamOwner;
use super::{Checker, ScopeKind, Symbol};
use crate::ast::{self, ExprKind as Ast, ObjectKind, Transition};
use crate::constant::fits;
use crate::diagnostics::Code;
use crate::hir::{self, Constructed, Expr, Keyset, MatchKind, Next, ParserId, StateId, Target, ValueSetId};
use crate::lexer::Name;
use crate::source::Span;
use crate::types::Type;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The states of a parser by name.
type States = BTreeMap<Name, StateId>;

impl Checker<'_> {
    pub(super) fn parser(&mut self, d: &ast::Decl, p: &ast::ParserDecl) {
        let (type_params, id) = self.scoped(|c| (c.type_params(&p.type_params), c.parser_body(d, p)));
        let types = (p.type_params.as_slice(), type_params);
        self.declare_object(d, ObjectKind::Parser, types, Constructed::Parser(id));
    }

    /// Checks a parser whose type parameters are declared.
    pub(super) fn parser_body(&mut self, d: &ast::Decl, p: &ast::ParserDecl) -> ParserId {
        let (parser, depth) = self.measured_body(|c| c.parser_here(d, p));
        let id = ParserId(self.program.parsers.len() as u32);
        self.end_of_body(Body::Parser(id.0), depth, d.name.span);
        self.program.parsers.push(Rc::new(parser));
        id
    }

    fn parser_here(&mut self, d: &ast::Decl, p: &ast::ParserDecl) -> hir::Parser {
        self.scoped(|c| {
            let params = c.params(&p.params, ParamOwner::Object);
            let ctor_params = c.params(&p.ctor_params, ParamOwner::Constructor);
            c.no_objects(&ctor_params, ObjectKind::Control, "a parser cannot apply a control");
            let (locals, states) = c.object_scope(ScopeKind::Parser, &p.locals, |c| c.states(d, &p.states));
            hir::Parser { name: d.name.name.clone(), span: d.name.span, params, ctor_params, locals, states }
        })
    }

    /// Checks `value_set<T>(size) name;`.
    pub(super) fn value_set(&mut self, d: &ast::Decl, ty: &ast::TypeExpr, size: &ast::Expr) {
        let t = self.ty(ty);
        let (mut keys, mut kinds) = (Vec::new(), Vec::new());
        self.kinds_of(&t, MatchKind::Exact, &mut kinds);
        if !t.is_bad() && !flatten(&t, &mut keys) {
            let hint = "members are integers, bool, enums, or structs and tuples of them";
            self.error(Code::BadType, ty.span, format!("invalid member type {t} of a value set"), hint);
            return self.declare(&d.name, Symbol::Bad);
        }
        let n = self.expr(size, None);
        if !self.is_known_after_instantiation(&n) {
            let hint = "use a constant";
            self.error(Code::NotConstant, size.span, "the size is not known at compile time", hint);
        }
        let size = n.as_const().and_then(crate::constant::small).unwrap_or(0);
        let id = ValueSetId(self.program.value_sets.len() as u32);
        let set =
            hir::ValueSet { name: d.name.name.clone(), span: d.name.span, ty: t.clone(), keys, kinds, size };
        self.program.value_sets.push(set);
        self.declare(&d.name, Symbol::ValueSet(id, t));
    }

    /// Collects the match kind of each scalar within a type, in order: its field's `@match`,
    /// else the enclosing one.
    fn kinds_of(&self, ty: &Type, kind: MatchKind, out: &mut Vec<MatchKind>) {
        match ty.base() {
            Type::Composite(c) => {
                for (i, (_, t)) in c.fields.iter().enumerate() {
                    let own = self.matched_by.get(&(c.id, i)).copied();
                    self.kinds_of(t, own.unwrap_or(kind), out);
                }
            }
            Type::Tuple(ts) => ts.iter().for_each(|t| self.kinds_of(t, kind, out)),
            _ => out.push(kind),
        }
    }

    /// Checks the states, `start` first.
    fn states(&mut self, d: &ast::Decl, states: &[ast::State]) -> Vec<hir::State> {
        let mut ordered: Vec<&ast::State> = states.iter().collect();
        ordered.sort_by_key(|s| &*s.name.name != "start");
        if ordered.first().is_none_or(|s| &*s.name.name != "start") {
            let message = format!("parser `{}` has no state `start`", d.name.name);
            self.error(Code::BadParser, d.name.span, message, "add `state start { ... }`");
        }
        let mut names = States::new();
        for (i, s) in (0..).zip(&ordered) {
            let reserved = matches!(&*s.name.name, "accept" | "reject");
            let twice = names.contains_key(&s.name.name);
            if !twice {
                names.insert(s.name.name.clone(), StateId(i));
            }
            if reserved || twice {
                let what = if reserved { "is built in" } else { "is declared twice" };
                let message = format!("state `{}` {what}", s.name.name);
                self.error(Code::DuplicateName, s.name.span, message, "choose another name");
            }
        }
        let states: Vec<hir::State> = ordered.iter().map(|s| self.state(s, &names)).collect();
        if !states.is_empty() && !can_end(&states) {
            let message = format!("parser `{}` never reaches accept or reject", d.name.name);
            self.error(Code::BadParser, d.name.span, message, "add a transition to `accept`");
        }
        states
    }

    fn state(&mut self, s: &ast::State, names: &States) -> hir::State {
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

    fn target(&mut self, to: &ast::Ident, names: &States) -> Target {
        match &*to.name {
            "accept" => Target::Accept,
            "reject" => Target::Reject,
            _ => match names.get(&to.name) {
                Some(id) => Target::State(*id),
                None => {
                    let known = names.keys().map(|n| &**n).chain(["accept", "reject"]);
                    let similar = if self.sink.is_full() { None } else { super::closest(&to.name, known) };
                    let hint = match similar {
                        Some(n) => format!("did you mean `{n}`?"),
                        None => "declare it in this parser".to_owned(),
                    };
                    self.error(Code::UnknownName, to.span, format!("unknown state `{}`", to.name), hint);
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
        names: &States,
    ) -> Next {
        let subjects: Vec<Expr> = subjects.iter().map(|s| self.expr(s, None)).collect();
        for s in &subjects {
            // A struct is not a key, only a list of its fields is.
            let composite = match &s.ty {
                Type::Tuple(ts) => ts.iter().any(|t| matches!(t.base(), Type::Composite(_))),
                t => matches!(t.base(), Type::Composite(_)),
            };
            if (composite || !flatten(&s.ty, &mut Vec::new())) && !s.ty.is_bad() {
                let hint = "give it a width, for example 8w1, or select on its fields";
                self.error(Code::BadOperand, s.span, format!("select on a value of type {}", s.ty), hint);
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
            let hint = "add `default: accept;` or, if this is intended, `default: reject;`";
            self.error(Code::MissingDefault, span, "packets that match no case are rejected", hint);
        }
        Next::Select { subjects, cases: out, span }
    }

    /// Collects the scalars of a value; false if it contains anything else.
    fn scalars_of(&mut self, e: Expr, out: &mut Vec<Expr>) -> bool {
        if e.ty.scalar_width().is_some() {
            out.push(e);
            return true;
        }
        let Some(types) = e.ty.fields() else { return false };
        types.into_iter().enumerate().all(|(i, t)| {
            let field = self.field_of(e.clone(), i, t.clone(), e.span);
            self.scalars_of(field, out)
        })
    }

    /// Checks keysets for values of these types, one for each scalar in them.
    pub(super) fn keysets(&mut self, e: &ast::Expr, types: &[Type]) -> Option<Vec<Keyset>> {
        match types {
            [one] => self.keysets_of(e, one),
            _ => match &e.kind {
                Ast::List(items) if items.len() == types.len() => self.keyset_list(items, types),
                Ast::List(_) | Ast::Int { .. } | Ast::Bool(_) | Ast::Mask(..) | Ast::Range(..) => {
                    let given = if let Ast::List(items) = &e.kind { items.len() } else { 1 };
                    let message = format!("expected {} keys, found {given}", types.len());
                    self.refuse(Code::BadArguments, e.span, message, "write one per key, `_` for any value")
                }
                _ => self.keysets_of(e, &Type::Tuple(types.into())),
            },
        }
    }

    fn keyset_list<'t>(
        &mut self,
        items: &[ast::Expr],
        types: impl IntoIterator<Item = &'t Type>,
    ) -> Option<Vec<Keyset>> {
        let keys = items.iter().zip(types).map(|(item, ty)| self.keysets_of(item, ty));
        Some(keys.collect::<Option<Vec<_>>>()?.concat())
    }

    fn keysets_of(&mut self, e: &ast::Expr, ty: &Type) -> Option<Vec<Keyset>> {
        let mut scalars = Vec::new();
        if !flatten(ty, &mut scalars) {
            return None;
        }
        if matches!(e.kind, Ast::Default | Ast::DontCare) {
            return Some(vec![Keyset::Any; scalars.len()]);
        }
        if let Some(Symbol::ValueSet(id, of)) = self.symbol_of(e).cloned() {
            let mut have = Vec::new();
            flatten(&of, &mut have);
            if have != scalars {
                let message = format!("a value set of {of} cannot match {ty}");
                return self.refuse(Code::TypeMismatch, e.span, message, "use a value set of the same type");
            }
            let mut keys = vec![Keyset::Any; scalars.len()];
            if let Some(k) = keys.first_mut() {
                *k = Keyset::Set(id);
            }
            return Some(keys);
        }
        let Some(parts) = ty.fields() else {
            // A single key may be in braces.
            let inner = if let Ast::List(items) = &e.kind { items.as_slice() } else { &[] };
            let e = if let [one] = inner { one } else { e };
            return self.keyset(e, ty).map(|k| vec![k]);
        };
        match &e.kind {
            Ast::List(items) if items.len() == parts.len() => self.keyset_list(items, parts),
            // A tuple of one key may omit the parentheses.
            _ if parts.len() == 1 && !matches!(e.kind, Ast::Struct { .. } | Ast::Cast(..)) => {
                self.keysets_of(e, parts[0])
            }
            Ast::Mask(v, m) => {
                let (v, m) = (self.expr_as(v, ty), self.expr_as(m, ty));
                let (mut vs, mut ms) = (Vec::new(), Vec::new());
                let ok = self.scalars_of(v, &mut vs) && self.scalars_of(m, &mut ms);
                ok.then(|| vs.into_iter().zip(ms).map(|(v, m)| Keyset::Mask(v, m)).collect())
            }
            _ => {
                let v = self.expr_as(e, ty);
                if matches!(v.kind, hir::ExprKind::Call(_)) {
                    let hint = "use literals and constants";
                    let message = "this value must be known at compile time";
                    return self.refuse(Code::NotConstant, e.span, message, hint);
                }
                let mut values = Vec::new();
                (!v.ty.is_bad() && self.scalars_of(v, &mut values))
                    .then(|| values.into_iter().map(Keyset::Value).collect())
            }
        }
    }

    fn keyset(&mut self, e: &ast::Expr, ty: &Type) -> Option<Keyset> {
        // A parser may compare with values of the packet; a table entry is constant.
        let in_parser = self.scope_kind == ScopeKind::Parser;
        let constant = |c: &mut Self, e: &ast::Expr, alone: bool| {
            let v = c.key_value(e, ty);
            let free = in_parser && alone && !matches!(v.kind, hir::ExprKind::Call(_));
            if v.as_const().is_none() && !v.ty.is_bad() && !free && !c.is_known_after_instantiation(&v) {
                let hint = "use literals and constants";
                c.error(Code::NotConstant, e.span, "this value must be known at compile time", hint);
            }
            (!v.ty.is_bad()).then_some(v)
        };
        Some(match &e.kind {
            Ast::Default | Ast::DontCare => Keyset::Any,
            Ast::Mask(v, m) => {
                self.bits_only(e, ty, "a mask")?;
                Keyset::Mask(constant(self, v, false)?, constant(self, m, false)?)
            }
            Ast::Range(a, b) => {
                self.bits_only(e, ty, "a range")?;
                let (a, b) = (constant(self, a, false)?, constant(self, b, false)?);
                if let (Some(x), Some(y)) = (a.as_const(), b.as_const())
                    && x > y
                {
                    self.error(Code::EmptyRange, e.span, "this range matches nothing", "write low .. high");
                }
                Keyset::Range(a, b)
            }
            _ => Keyset::Value(constant(self, e, true)?),
        })
    }

    fn bits_only(&mut self, e: &ast::Expr, ty: &Type, what: &str) -> Option<()> {
        if ty.base().integer().is_some() || ty.underlying().is_some() {
            return Some(());
        }
        self.refuse(Code::BadOperand, e.span, format!("{what} of {ty}"), "use an integer")
    }

    /// Checks a value to match. Unlike elsewhere, a value that does not fit is an error: it
    /// would never match.
    fn key_value(&mut self, e: &ast::Expr, ty: &Type) -> Expr {
        let v = self.expr(e, Some(ty));
        if let (Some(n), Some((w, signed)), true) = (v.as_const(), ty.base().integer(), v.ty == Type::InfInt)
            && !fits(n, w, signed)
            && !fits(n, w, true)
        {
            let message = format!("{n} does not fit {ty} and would never match");
            return self.refuse(Code::BadConstant, e.span, message, "use a smaller number");
        }
        let v = if v.ty == *ty { v } else { self.enum_value(v) };
        match ty.base() {
            // Keys of a `type` may be matched with plain numbers.
            base if base != ty && v.ty == Type::InfInt => Expr { ty: ty.clone(), ..self.coerce(v, base) },
            base => match base.underlying() {
                Some(repr) if v.ty == Type::InfInt => Expr { ty: ty.clone(), ..self.coerce(v, repr) },
                _ => self.coerce(v, ty),
            },
        }
    }
}

/// Collects the scalar types within a type, in order; false if it contains others.
fn flatten(ty: &Type, out: &mut Vec<Type>) -> bool {
    if ty.scalar_width().is_some() {
        out.push(ty.clone());
        return true;
    }
    ty.fields().is_some_and(|fields| fields.into_iter().all(|t| flatten(t, out)))
}

/// Whether a path leads from the first state to `accept` or `reject`.
fn can_end(states: &[hir::State]) -> bool {
    let mut seen = vec![false; states.len()];
    let mut open = vec![0];
    while let Some(i) = open.pop() {
        if std::mem::replace(&mut seen[i], true) {
            continue;
        }
        let targets = states[i].next.targets();
        // A packet that matches no case is rejected.
        if targets.is_empty() || targets.iter().any(|t| matches!(t, Target::Accept | Target::Reject)) {
            return true;
        }
        open.extend(states[i].next.states());
    }
    false
}
