//! Implicit conversions and casts.

use super::Checker;
use crate::constant::{fits, wrap};
use crate::diagnostics::Code;
use crate::hir::{Expr, ExprKind, Ordered};
use crate::source::Span;
use crate::types::Type;
use num_bigint::BigInt;

impl Checker<'_> {
    /// Returns a constant of an integer type; warns if the value does not fit and wraps around.
    pub(super) fn fit(&mut self, v: BigInt, ty: &Type, span: Span) -> Expr {
        if let Some((w, signed)) = ty.base().integer()
            && !fits(&v, w, signed)
        {
            let wrapped = wrap(&v, w, signed);
            // Bit patterns such as `-1` and `0xFF..` are intended.
            if !fits(&v, w, true) {
                let message = format!("{v} does not fit {ty} and becomes {wrapped}");
                self.error(Code::ConstantOverflow, span, message, "use a wider type or a smaller number");
            }
            return Expr::constant(wrapped, ty.clone(), span);
        }
        Expr::constant(v, ty.clone(), span)
    }

    /// Converts `e` implicitly to `ty`; reports a mismatch.
    pub(super) fn coerce(&mut self, e: Expr, ty: &Type) -> Expr {
        if e.ty.is_bad() || ty.is_bad() {
            return Expr { ty: ty.clone(), ..e };
        }
        if e.ty == *ty {
            return e;
        }
        let span = e.span;
        match (&e.kind, ty.base()) {
            // Also of a `type`: a number without a width has no type from which it would need a cast.
            (ExprKind::Const(v), Type::Bit(_) | Type::Int(_)) if e.ty == Type::InfInt => {
                self.fit(v.clone(), ty, span)
            }
            (
                ExprKind::Aggregate(_),
                Type::Composite(_) | Type::Tuple(_) | Type::Stack(..) | Type::List(_),
            ) if is_list(&e.ty) && !ty.is_union() => self.coerce_aggregate(e, ty),
            (_, Type::InfInt) if e.ty.base().integer().is_some() => self.cast(e, ty, span),
            (ExprKind::Ternary(..), _) if e.ty == Type::InfInt && ty.integer().is_some() => {
                self.coerce_branches(e, ty)
            }
            // A number whose width is known only after instantiation.
            (_, Type::Bit(_) | Type::Int(_)) if e.ty == Type::InfInt && ty.base() == ty => {
                Expr { kind: ExprKind::Cast(Box::new(e)), ty: ty.clone(), span }
            }
            _ => {
                if e.ty.underlying() == Some(ty) {
                    return self.cast(e, ty, span);
                }
                let both = e.ty.base().integer().is_some() && ty.base().integer().is_some();
                let hint = match both {
                    true if castable(&e.ty, ty) => format!("if this is intended, cast it: ({ty})"),
                    true => "a cast cannot change both the width and the sign: cast twice".to_owned(),
                    _ if *ty == Type::Bool => "compare it, for example with `!= 0` or `== 1`".to_owned(),
                    _ => format!("use a value of type {ty}"),
                };
                self.refuse(Code::TypeMismatch, span, format!("expected {ty}, found {}", e.ty), hint)
            }
        }
    }

    fn coerce_branches(&mut self, e: Expr, ty: &Type) -> Expr {
        let ExprKind::Ternary(c, t, f) = e.kind else { return Expr::bad(e.span) };
        let (t, f) = (self.coerce(*t, ty), self.coerce(*f, ty));
        if t.ty.is_bad() || f.ty.is_bad() {
            return Expr::bad(e.span);
        }
        Expr { kind: ExprKind::Ternary(c, Box::new(t), Box::new(f)), ty: ty.clone(), span: e.span }
    }

    fn coerce_aggregate(&mut self, e: Expr, ty: &Type) -> Expr {
        let span = e.span;
        let ExprKind::Aggregate(mut items) = e.kind else { return Expr::bad(span) };
        let types = ty.element_types(items.len());
        if items.len() != types.len() {
            let message = format!("{ty} has {} fields, but {} values were given", types.len(), items.len());
            return self.refuse(Code::TypeMismatch, span, message, "specify a value for every field");
        }
        // The names of the fields decide in a struct expression.
        if let (Type::Composite(have), Type::Composite(want)) = (&e.ty, ty.base()) {
            let order: Option<Vec<usize>> =
                want.fields.iter().map(|(n, _)| have.field(n).map(|(i, _)| i)).collect();
            let Some(order) = order else {
                let message = format!("expected {ty}, found {}", e.ty);
                return self.refuse(Code::TypeMismatch, span, message, "use the names of its fields");
            };
            let placed = items.into_placed();
            items = Ordered::by_place(order.into_iter().map(|i| placed[i].clone()).collect());
        }
        let mut types = types.iter();
        let items = items.map(|i| types.next().map_or(Expr::bad(span), |t| self.coerce(i, t)));
        if items.iter().any(|i| i.ty.is_bad()) {
            return Expr::bad(span);
        }
        Expr { kind: ExprKind::Aggregate(items), ty: ty.clone(), span }
    }

    /// Converts the value of a serializable enum to its underlying type; returns any other
    /// value unchanged.
    pub(super) fn enum_value(&mut self, e: Expr) -> Expr {
        let Some(repr) = e.ty.underlying().cloned() else { return e };
        let span = e.span;
        self.cast(e, &repr, span)
    }

    /// Unifies the types of two operands, one of which may be a literal without a width, or a list.
    pub(super) fn unify_operands(&mut self, l: Expr, r: Expr) -> (Expr, Expr) {
        let adapts =
            |e: &Expr| e.ty == Type::InfInt || matches!(e.kind, ExprKind::Aggregate(_)) && is_list(&e.ty);
        let late = |e: &Expr| e.ty == Type::InfInt && e.as_const().is_none();
        if l.ty == r.ty {
            (l, r)
        } else if late(&l) && r.ty.base().integer().is_some() || adapts(&l) && fits_into(&l.ty, &r.ty) {
            let ty = r.ty.clone();
            (self.coerce(l, &ty), r)
        } else if adapts(&r) && fits_into(&r.ty, &l.ty) {
            let ty = l.ty.clone();
            let r = self.coerce(r, &ty);
            (l, r)
        } else {
            (l, r)
        }
    }

    /// Checks `(ty) e`.
    pub(super) fn cast(&mut self, e: Expr, ty: &Type, span: Span) -> Expr {
        if e.ty.is_bad() || ty.is_bad() {
            return Expr { ty: ty.clone(), span, ..e };
        }
        if e.ty == *ty {
            return Expr { span, ..e };
        }
        if matches!(e.kind, ExprKind::Aggregate(_)) && is_list(&e.ty) {
            return self.coerce(e, ty);
        }
        // A number of any size exists only at compile time.
        let to_int = *ty == Type::InfInt && e.ty.base().integer().is_some();
        if !to_int && !castable(&e.ty, ty) {
            let message = format!("{} cannot be cast to {ty}", e.ty);
            let hint = match (e.ty.base(), ty.base()) {
                (Type::Int(_), Type::Bit(_)) | (Type::Bit(_), Type::Int(_)) => {
                    "a cast cannot change both the width and the sign: cast twice"
                }
                (_, Type::Bool) => {
                    "only bit<1> and the numbers 0 and 1 can be cast to bool; compare with `!= 0`"
                }
                _ => "P4 defines no such cast",
            };
            return self.refuse(Code::BadCast, span, message, hint);
        }
        if let (Type::InfInt, Type::Bool, Some(v)) = (&e.ty, ty, e.as_const())
            && *v != BigInt::from(0)
            && *v != BigInt::from(1)
        {
            let hint = "compare it with `!= 0`";
            return self.refuse(Code::BadCast, span, "only 0 and 1 can be cast to bool", hint);
        }
        if let Some(v) = e.as_const() {
            let v = match ty.base().integer() {
                Some((w, signed)) => wrap(v, w, signed),
                None => v.clone(),
            };
            return Expr::constant(v, ty.clone(), span);
        }
        Expr { kind: ExprKind::Cast(Box::new(e)), ty: ty.clone(), span }
    }
}

/// Whether a literal or list of type `from` is convertible to `to`.
fn fits_into(from: &Type, to: &Type) -> bool {
    match from {
        Type::InfInt => to.integer().is_some(),
        _ => matches!(to.base(), Type::Composite(_) | Type::Tuple(_) | Type::Stack(..) | Type::List(_)),
    }
}

/// Whether a type is that of a list or struct expression, which is convertible to others.
fn is_list(t: &Type) -> bool {
    match t {
        Type::Tuple(_) => true,
        Type::Composite(c) => c.is_anonymous(),
        _ => false,
    }
}

/// Whether the language specification defines the cast.
fn castable(from: &Type, to: &Type) -> bool {
    // A new type casts only to and from its target, or through it.
    match (from, to) {
        (Type::New(n), t) if n.target == *t => return true,
        (t, Type::New(n)) if n.target == *t => return true,
        (Type::InfInt, Type::New(n)) => return castable(from, &n.target),
        (Type::New(_), _) | (_, Type::New(_)) => return false,
        _ => {}
    }
    match (from, to) {
        (Type::Bit(_), Type::Bit(_)) | (Type::Int(_), Type::Int(_)) => true,
        (Type::Bit(a), Type::Int(b)) | (Type::Int(a), Type::Bit(b)) => a == b,
        (Type::InfInt, Type::Bit(_) | Type::Int(_) | Type::Bool) => true,
        (Type::Bit(1), Type::Bool) | (Type::Bool, Type::Bit(1)) => true,
        (Type::Enum(e), t) => e.repr.as_ref().is_some_and(|r| r == t || castable(r, t)),
        (t, Type::Enum(e)) => e.repr.as_ref().is_some_and(|r| r == t || castable(t, r)),
        _ => false,
    }
}
