//! Checks of expressions.

use super::argument_list::ArgumentList;
use super::{Checker, Symbol, TypeSymbol};
use crate::ast::{self, ExprKind as Ast};
use crate::constant::small;
use crate::diagnostics::Code;
use crate::hir::{Expr, ExprKind, Ordered};
use crate::source::Span;
use crate::types::{CompositeType, Type};
use num_bigint::BigInt;
use std::rc::Rc;

impl Checker<'_> {
    /// Checks an expression. `want` is its expected type, if known: it determines the types of
    /// literals, lists and `{#}`, but the result is not yet converted to it.
    pub(super) fn expr(&mut self, e: &ast::Expr, want: Option<&Type>) -> Expr {
        self.depth.now += 1;
        let checked = self.expr_here(e, want);
        self.depth.now -= 1;
        // An error may lie in a part of the expression, but the whole expression is bad.
        if checked.ty.is_bad() { Expr { span: e.span, ..checked } } else { checked }
    }

    fn expr_here(&mut self, e: &ast::Expr, want: Option<&Type>) -> Expr {
        let span = e.span;
        match &e.kind {
            Ast::Int { value, width } => self.literal(value, *width, span),
            Ast::Bool(b) => Expr::constant(BigInt::from(u8::from(*b)), Type::Bool, span),
            Ast::Text(t) => Expr { kind: ExprKind::Text(t.clone()), ty: Type::Text, span },
            Ast::Path { name, absolute } => self.path(name, *absolute, span),
            Ast::Member(base, name) => self.member(base, name, span),
            Ast::Index(base, index) => self.index(base, index, span),
            Ast::Slice(base, hi, lo) => self.slice(base, hi, lo, span),
            Ast::PlusSlice(base, lo, width) => self.plus_slice(base, lo, width, span),
            Ast::List(items) => self.list(items, want, span),
            Ast::Struct { fields, rest } => self.struct_expr(fields, *rest, want, span),
            Ast::Invalid => match want {
                Some(t) if t.is_header() || t.is_union() => {
                    Expr { kind: ExprKind::InvalidHeader, ty: t.clone(), span }
                }
                _ => {
                    let hint = "prefix it with the header's type, as in (H) {#}";
                    self.refuse(Code::CannotInfer, span, "cannot infer the type of {#}", hint)
                }
            },
            Ast::Unary(op, inner) => self.unary(*op, inner, want, span),
            Ast::Binary(op, l, r) => self.binary(*op, l, r, want, span),
            Ast::Ternary(c, t, f) => self.ternary(c, t, f, want, span),
            Ast::Cast(ty, inner) => {
                let ty = self.ty(ty);
                let base = ty.base().clone();
                let inner = self.expr(inner, Some(&base));
                self.cast(inner, &ty, span)
            }
            Ast::Call { callee, type_args, args } => {
                self.call_expr(callee, ArgumentList { type_args, args, span })
            }
            Ast::Type(_) => self.misplaced(span, "a type", "expected a value"),
            Ast::Dots => self.default_value(want, span),
            Ast::This => self.misplaced(span, "`this`", "call one of its methods"),
            Ast::DontCare | Ast::Default => {
                self.misplaced(span, "`_` or `default`", "they are allowed in keysets only")
            }
            Ast::Mask(..) | Ast::Range(..) => {
                self.misplaced(span, "a mask or range", "masks and ranges are allowed in keysets only")
            }
        }
    }

    fn misplaced(&mut self, span: Span, what: &str, hint: &str) -> Expr {
        self.refuse(Code::WrongKind, span, format!("{what} is not a value"), hint)
    }

    fn default_value(&mut self, want: Option<&Type>, span: Span) -> Expr {
        if want.is_some_and(Type::is_bad) {
            return Expr::bad(span);
        }
        if let Some(e) = want.and_then(|t| self.default_of(t, span)) {
            return e;
        }
        let what = want.map_or_else(|| "the type of `...` here".to_owned(), ToString::to_string);
        let message = format!("{what} has no default value");
        self.refuse(Code::CannotInfer, span, message, "write the value")
    }

    /// Checks an expression and converts it to `ty`.
    pub(super) fn expr_as(&mut self, e: &ast::Expr, ty: &Type) -> Expr {
        let e = self.expr(e, Some(ty));
        self.coerce(e, ty)
    }

    /// Evaluates a number at compile time; reports an expression that is not constant.
    pub(super) fn constant(&mut self, e: &ast::Expr, want: Option<&Type>) -> Option<BigInt> {
        let e = match want {
            Some(t) => self.expr_as(e, t),
            None => self.expr(e, None),
        };
        if want.is_none() && !e.ty.is_bad() && e.ty != Type::InfInt && e.ty.base().integer().is_none() {
            let e = self.enum_value(e.clone());
            if e.ty.base().integer().is_none() {
                let message = format!("expected a number, found {}", e.ty);
                return self.refuse(Code::TypeMismatch, e.span, message, "use an integer");
            }
        }
        if e.as_const().is_none() && !e.ty.is_bad() {
            let hint = "use literals, constants and operators on them";
            self.error(Code::NotConstant, e.span, "this value is not known at compile time", hint);
        }
        e.as_const().cloned()
    }

    fn literal(&mut self, value: &BigInt, width: Option<(u32, bool)>, span: Span) -> Expr {
        match width {
            None => Expr::constant(value.clone(), Type::InfInt, span),
            Some((0, true)) => {
                let hint = "int<W> needs a width of at least 1";
                self.refuse(Code::BadWidth, span, "int<0> has no values", hint)
            }
            Some((w, signed)) => {
                let ty = if signed { Type::Int(w) } else { Type::Bit(w) };
                self.fit(value.clone(), &ty, span)
            }
        }
    }

    fn path(&mut self, name: &ast::Ident, absolute: bool, span: Span) -> Expr {
        match self.resolve(name, absolute) {
            Symbol::Const(e) => Expr { span, ..e },
            Symbol::Var(v) => Expr { kind: ExprKind::Var(v), ty: self.var_type(v).clone(), span },
            Symbol::Bad => Expr::bad(span),
            other => {
                let what = other.describe();
                self.misplaced(span, &format!("`{}`, {what},", name.name), "expected a variable or constant")
            }
        }
    }

    fn index(&mut self, base: &ast::Expr, index: &ast::Expr, span: Span) -> Expr {
        let base = self.expr(base, None);
        let mut index = self.expr(index, None);
        match base.ty.base().clone() {
            Type::Stack(element, n) => {
                if let Some(i) = index.as_const()
                    && small(i).is_none_or(|i| i >= n)
                {
                    let hint = format!("it has {n} elements, from index 0");
                    let message = format!("index {i} is out of range");
                    return self.refuse(Code::BadWidth, index.span, message, hint);
                }
                if index.ty == Type::InfInt {
                    index = self.coerce(index, &Type::Bit(32));
                } else {
                    index = self.enum_value(index);
                    if index.ty.base().integer().is_none() && !index.ty.is_bad() {
                        let message = format!("expected an integer index, found {}", index.ty);
                        self.error(Code::TypeMismatch, index.span, message, "use an integer");
                    }
                }
                if let Some(item) = index.as_const().and_then(small).and_then(|i| item(&base, i as usize)) {
                    return Expr { span, ..item.clone() };
                }
                let kind = ExprKind::Element(Box::new(base), Box::new(index));
                Expr { kind, ty: (*element).clone(), span }
            }
            Type::Tuple(types) => {
                match index.as_const().and_then(small).filter(|i| (*i as usize) < types.len()) {
                    Some(i) => self.field_of(base, i as usize, types[i as usize].clone(), span),
                    None => {
                        let hint = format!("the tuple has elements 0 to {}", types.len().saturating_sub(1));
                        self.refuse(Code::BadWidth, index.span, "index out of range of the tuple", hint)
                    }
                }
            }
            Type::Bad => Expr::bad(span),
            other => {
                let message = format!("{other} has no elements");
                self.refuse(Code::BadOperand, span, message, "only stacks, arrays and tuples have elements")
            }
        }
    }

    /// Returns a field; its value if the base is an aggregate.
    pub(super) fn field_of(&mut self, base: Expr, i: usize, ty: Type, span: Span) -> Expr {
        if let Some(item) = item(&base, i) {
            return Expr { span, ..item.clone() };
        }
        Expr { kind: ExprKind::Field(Box::new(base), i), ty, span }
    }

    fn plus_slice(&mut self, base: &ast::Expr, lo: &ast::Expr, width: &ast::Expr, span: Span) -> Expr {
        let lo = self.expr(lo, None);
        let Some(width) = self.constant(width, None) else { return Expr::bad(span) };
        if let Some(lo) = lo.as_const().cloned() {
            let base = self.expr(base, None);
            let hi = &lo + width - 1;
            return self.slice_of(base, &hi, &lo, span);
        }
        let base = self.expr(base, None);
        let base = self.enum_value(base);
        if lo.ty.is_bad() || base.ty.is_bad() {
            return Expr::bad(span);
        }
        if !matches!(lo.ty.base(), Type::Bit(_)) {
            let hint = "use an unsigned integer";
            let message = format!("invalid slice offset of type {}", lo.ty);
            return self.refuse(Code::TypeMismatch, lo.span, message, hint);
        }
        let (Some((have, _)), Some(width)) = (base.ty.base().integer(), small(&width)) else {
            let message = format!("{} has no bits to slice", base.ty);
            return self.refuse(Code::BadOperand, span, message, "only bit<W> and int<W> have slices");
        };
        if width == 0 || width > have {
            let hint = format!("it has {have} bits");
            return self.refuse(Code::BadWidth, span, format!("slice of {width} bits of {}", base.ty), hint);
        }
        let kind = ExprKind::PlusSlice(Box::new(base), Box::new(lo), width);
        Expr { kind, ty: Type::Bit(width), span }
    }

    fn slice(&mut self, base: &ast::Expr, hi: &ast::Expr, lo: &ast::Expr, span: Span) -> Expr {
        let base = self.expr(base, None);
        let (Some(hi), Some(lo)) = (self.constant(hi, None), self.constant(lo, None)) else {
            return Expr::bad(span);
        };
        self.slice_of(base, &hi, &lo, span)
    }

    fn slice_of(&mut self, base: Expr, hi: &BigInt, lo: &BigInt, span: Span) -> Expr {
        let base = self.enum_value(base);
        if base.ty.is_bad() {
            return base;
        }
        let width = match base.ty.base() {
            Type::InfInt => crate::constant::MAX_WIDTH,
            t => match t.integer() {
                Some((w, _)) => w,
                None => {
                    let message = format!("{} has no bits to slice", base.ty);
                    let hint = "only bit<W> and int<W> have slices";
                    return self.refuse(Code::BadOperand, span, message, hint);
                }
            },
        };
        let (h, l) = match (small(hi), small(lo)) {
            (Some(h), Some(l)) if h < width && l <= h => (h, l),
            _ => {
                let hint = format!("write [high:low] with {} >= high >= low >= 0", width.saturating_sub(1));
                let message = format!("invalid slice [{hi}:{lo}] of {}", base.ty);
                return self.refuse(Code::BadWidth, span, message, hint);
            }
        };
        let ty = Type::Bit(h - l + 1);
        if let Some(v) = base.as_const() {
            return Expr::constant(crate::constant::wrap(&(v >> l), h - l + 1, false), ty, span);
        }
        Expr { kind: ExprKind::Slice(Box::new(base), h, l), ty, span }
    }

    fn list(&mut self, items: &[ast::Expr], want: Option<&Type>, span: Span) -> Expr {
        let (items, rest) = match items.split_last() {
            Some((last, before)) if matches!(last.kind, Ast::Dots) => (before, true),
            _ => (items, false),
        };
        let wanted = want.map(|t| t.element_types(items.len())).unwrap_or_default();
        let mut values = Vec::with_capacity(items.len());
        for (i, e) in items.iter().enumerate() {
            if matches!(e.kind, Ast::Dots) {
                let message = "`...` before the end of a list";
                return self.refuse(Code::Syntax, e.span, message, "move it to the end");
            }
            let ty = wanted.get(i);
            let open = ty.is_some_and(Type::is_open);
            values.push(self.expr(e, ty.filter(|_| !open)));
        }
        if values.iter().any(|v| v.ty.is_bad()) {
            return Expr::bad(span);
        }
        if rest {
            for ty in wanted.get(values.len()..).unwrap_or_default() {
                let v = self.default_value(Some(ty), span);
                if v.ty.is_bad() {
                    return v;
                }
                values.push(v);
            }
            if want.is_none() {
                return self.default_value(None, span);
            }
        }
        let ty = Type::Tuple(values.iter().map(|e| e.ty.clone()).collect());
        Expr { kind: ExprKind::Aggregate(values.into()), ty, span }
    }

    fn struct_expr(
        &mut self,
        fields: &[(ast::Ident, ast::Expr)],
        rest: bool,
        want: Option<&Type>,
        span: Span,
    ) -> Expr {
        for (i, (name, _)) in fields.iter().enumerate() {
            if fields[..i].iter().any(|(n, _)| n.name == name.name) {
                let message = format!("duplicate field `{}`", name.name);
                return self.refuse(Code::DuplicateName, name.span, message, "remove one of them");
            }
        }
        let Some(Type::Composite(c)) = want.map(Type::base).filter(|t| !t.is_union()) else {
            return self.anonymous_struct(fields, rest, want, span);
        };
        let mut values: Vec<Option<(Option<usize>, Expr)>> = vec![None; c.fields.len()];
        let mut ok = true;
        for (place, (name, value)) in fields.iter().enumerate() {
            let Some((i, ty)) = c.field(&name.name) else {
                let hint = field_hint(c, &name.name);
                let message = format!("{} has no field `{}`", c.name, name.name);
                self.error(Code::UnknownMember, name.span, message, hint);
                ok = false;
                continue;
            };
            let e = if ty.is_open() { self.expr(value, None) } else { self.expr_as(value, &ty.clone()) };
            ok &= !e.ty.is_bad();
            values[i] = Some((Some(place), e));
        }
        for ((name, ty), value) in c.fields.iter().zip(&mut values) {
            if value.is_some() || !ok {
                continue;
            }
            if rest {
                let e = self.default_value(Some(ty), span);
                ok &= !e.ty.is_bad();
                *value = Some((None, e));
            } else {
                let message = format!("missing value for field `{name}`");
                self.error(Code::BadArguments, span, message, "set every field, or write `...`");
                ok = false;
            }
        }
        if !ok {
            return Expr::bad(span);
        }
        let kind = ExprKind::Aggregate(Ordered::by_place(values.into_iter().flatten().collect()));
        Expr { kind, ty: Type::Composite(c.clone()), span }
    }

    /// Checks a struct expression without an expected type: it gets an anonymous type until it
    /// is converted.
    fn anonymous_struct(
        &mut self,
        fields: &[(ast::Ident, ast::Expr)],
        rest: bool,
        want: Option<&Type>,
        span: Span,
    ) -> Expr {
        if want.is_some_and(|t| !t.is_bad() && !t.is_open()) || rest {
            let what = want.map_or_else(|| "a value".to_owned(), ToString::to_string);
            let message = format!("{what} is not a struct or header");
            let hint = "prefix it with its type, as in (S) {...}";
            return self.refuse(Code::TypeMismatch, span, message, hint);
        }
        let values: Vec<Expr> = fields.iter().map(|(_, e)| self.expr(e, None)).collect();
        if values.iter().any(|v| v.ty.is_bad()) {
            return Expr::bad(span);
        }
        let named = fields.iter().zip(&values).map(|((n, _), v)| (n.name.clone(), v.ty.clone())).collect();
        let ty = CompositeType {
            id: self.fresh(),
            name: "".into(),
            kind: ast::Composite::Struct,
            args: Vec::new(),
            fields: named,
        };
        Expr { kind: ExprKind::Aggregate(values.into()), ty: Type::Composite(Rc::new(ty)), span }
    }
}

/// Returns an item of an aggregate, unless the evaluation of the others has effects.
fn item(base: &Expr, at: usize) -> Option<&Expr> {
    let ExprKind::Aggregate(items) = &base.kind else { return None };
    let skipped = |(i, e): (usize, &Expr)| i != at && e.has_effect();
    if items.iter().enumerate().any(skipped) { None } else { items.get(at) }
}

/// Returns a hint with the similar field names, or all of them.
pub(super) fn field_hint(c: &CompositeType, name: &str) -> String {
    match super::closest(name, c.fields.iter().map(|(n, _)| &**n)) {
        Some(n) => format!("did you mean `{n}`?"),
        None => {
            format!("its fields are {}", c.fields.iter().map(|(n, _)| &**n).collect::<Vec<_>>().join(", "))
        }
    }
}

impl Symbol {
    /// Describes the symbol in messages.
    pub(super) const fn describe(&self) -> &'static str {
        match self {
            Self::Const(_) => "a constant",
            Self::Var(_) => "a variable",
            Self::Type(TypeSymbol::Object(_)) => "a parser or control",
            Self::Type(TypeSymbol::Package(_)) => "a package",
            Self::Type(_) => "a type",
            Self::ExternFns(_) | Self::Functions(_) => "a function",
            Self::ValueSet(..) => "a value set",
            Self::Action(_) => "an action",
            Self::Table(_) => "a table",
            Self::Instance(_) => "an instance",
            Self::Bad => "a name",
        }
    }
}
