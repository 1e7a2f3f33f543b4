//! Operators: their operand and result types.

use super::{Checker, fold};
use crate::ast::{self, BinaryOp, UnaryOp};
use crate::diagnostics::Code;
use crate::hir::{Expr, ExprKind};
use crate::source::Span;
use crate::types::Type;
use num_traits::{Signed, Zero};

impl Checker<'_> {
    pub(super) fn unary(&mut self, op: UnaryOp, inner: &ast::Expr, want: Option<&Type>, span: Span) -> Expr {
        let e = self.expr(inner, want);
        let e = self.enum_value(e);
        if e.ty.is_bad() {
            return e;
        }
        let ok = match (op, e.ty.base()) {
            (UnaryOp::Not, Type::Bool) => true,
            (UnaryOp::Complement, t) => t.integer().is_some(),
            (UnaryOp::Neg | UnaryOp::Plus, t) => t.integer().is_some() || *t == Type::InfInt,
            _ => false,
        };
        if !ok {
            let hint = if op == UnaryOp::Not {
                "`!` is for bool; `~` inverts bits"
            } else {
                "use an integer with a width"
            };
            let message = format!("`{}` is not defined for {}", op.text(), e.ty);
            return self.refuse(Code::BadOperand, span, message, hint);
        }
        let ty = e.ty.clone();
        if let Some(v) = e.as_const() {
            return Expr::constant(fold::unary(op, v, &ty), ty, span);
        }
        if op == UnaryOp::Plus {
            return Expr { span, ..e };
        }
        Expr { kind: ExprKind::Unary(op, Box::new(e)), ty, span }
    }

    pub(super) fn ternary(
        &mut self,
        c: &ast::Expr,
        t: &ast::Expr,
        f: &ast::Expr,
        want: Option<&Type>,
        span: Span,
    ) -> Expr {
        let c = self.expr_as(c, &Type::Bool);
        let t = self.expr(t, want);
        let f = self.expr(f, want.or(Some(&t.ty)));
        let (t, f) = match want {
            Some(w) if is_aggregate(&t) && is_aggregate(&f) => (self.coerce(t, w), self.coerce(f, w)),
            _ => self.unify_operands(t, f),
        };
        if t.ty == Type::InfInt && c.as_const().is_none() {
            let hint = "give one of them a width, for example 8w1";
            return self.refuse(Code::CannotInfer, span, "cannot infer the width of these values", hint);
        }
        if t.ty != f.ty && !t.ty.is_bad() && !f.ty.is_bad() {
            let message = format!("one branch is {}, the other {}", t.ty, f.ty);
            return self.refuse(Code::TypeMismatch, span, message, "cast one of them");
        }
        match c.as_const() {
            Some(v) if v.is_zero() => f,
            Some(_) => t,
            None => {
                let ty = t.ty.clone();
                Expr { kind: ExprKind::Ternary(Box::new(c), Box::new(t), Box::new(f)), ty, span }
            }
        }
    }

    pub(super) fn binary(
        &mut self,
        op: BinaryOp,
        l: &ast::Expr,
        r: &ast::Expr,
        want: Option<&Type>,
        span: Span,
    ) -> Expr {
        use BinaryOp as B;
        let compares = matches!(op, B::Eq | B::Ne | B::Lt | B::Le | B::Gt | B::Ge);
        let want = if compares || matches!(op, B::Concat | B::And | B::Or) { None } else { want };
        let l = self.expr(l, want);
        let hint = if matches!(op, B::Shl | B::Shr | B::Concat) { None } else { Some(&l.ty) };
        let r = self.expr(r, hint.filter(|t| **t != Type::InfInt).or(want));
        self.binary_of(op, l, r, span)
    }

    /// Applies the operator to checked operands.
    pub(super) fn binary_of(&mut self, op: BinaryOp, l: Expr, r: Expr, span: Span) -> Expr {
        use BinaryOp as B;
        let (l, r) = if matches!(op, B::Eq | B::Ne) && l.ty == r.ty {
            (l, r)
        } else {
            (self.enum_value(l), self.enum_value(r))
        };
        let negative = |e: &Expr| e.as_const().is_some_and(Signed::is_negative);
        if matches!(op, B::Div | B::Mod) && (negative(&l) || negative(&r)) {
            let message = format!("`{}` is not defined for negative numbers", op.text());
            return self.refuse(Code::BadOperand, span, message, "use positive numbers");
        }
        let (l, r) = match op {
            B::Shl | B::Shr | B::Concat | B::And | B::Or => (l, r),
            _ => self.unify_operands(l, r),
        };
        if l.ty.is_bad() || r.ty.is_bad() {
            return Expr::bad(span);
        }
        let Some(ty) = self.result_type(op, &l, &r, span) else { return Expr::bad(span) };
        if let (Some(a), Some(b)) = (l.as_const(), r.as_const()) {
            return match fold::binary(op, a, b, &l.ty, &r.ty, &ty) {
                Ok(v) => Expr::constant(v, ty, span),
                Err((code, message, hint)) => self.refuse(code, span, message, hint),
            };
        }
        if let (ExprKind::Text(a), ExprKind::Text(b)) = (&l.kind, &r.kind) {
            let text = format!("{a}{b}");
            return Expr { kind: ExprKind::Text(text.into()), ty, span };
        }
        if matches!(op, B::Div | B::Mod) && r.as_const().is_some_and(Zero::is_zero) {
            self.error(Code::DivisionByZero, r.span, "division by zero", "use a divisor other than zero");
        }
        Expr { kind: ExprKind::Binary(op, Box::new(l), Box::new(r)), ty, span }
    }

    fn result_type(&mut self, op: BinaryOp, l: &Expr, r: &Expr, span: Span) -> Option<Type> {
        use BinaryOp as B;
        let (a, b) = (l.ty.base(), r.ty.base());
        let same = l.ty == r.ty;
        let number = a.integer().is_some() || *a == Type::InfInt;
        let result = match op {
            B::And | B::Or => (*a == Type::Bool && *b == Type::Bool).then_some(Type::Bool),
            B::Eq | B::Ne => (same && comparable(a)).then_some(Type::Bool),
            B::Lt | B::Le | B::Gt | B::Ge => (same && number).then_some(Type::Bool),
            B::Concat if *a == Type::Text && *b == Type::Text => Some(Type::Text),
            B::Concat => match (a.integer(), b.integer()) {
                (Some((x, _)), Some((y, _))) if x + y > crate::constant::MAX_WIDTH => {
                    let hint = format!("values have at most {} bits", crate::constant::MAX_WIDTH);
                    return self.refuse(Code::BadWidth, span, format!("value of {} bits", x + y), hint);
                }
                (Some((x, signed)), Some((y, _))) => {
                    Some(if signed { Type::Int(x + y) } else { Type::Bit(x + y) })
                }
                _ => None,
            },
            B::Shl | B::Shr => {
                let known = r.as_const().is_some();
                // A shift of a number without a width needs a constant distance:
                // otherwise the width is unknown.
                let later = known || self.is_known_after_instantiation(r);
                let distance = matches!(r.ty, Type::Bit(_)) && (*a != Type::InfInt || later)
                    || *b == Type::InfInt && later
                    || matches!(b, Type::Int(_)) && known;
                if r.as_const().is_some_and(Signed::is_negative) {
                    let message = "negative shift distance";
                    return self.refuse(Code::BadConstant, r.span, message, "shift in the other direction");
                }
                (number && distance).then(|| l.ty.clone())
            }
            B::AddSat | B::SubSat => (same && a.integer().is_some()).then(|| l.ty.clone()),
            B::Div | B::Mod => {
                let unsigned = matches!(a, Type::Bit(_)) || *a == Type::InfInt;
                (same && unsigned).then(|| l.ty.clone())
            }
            _ => (same && number).then(|| l.ty.clone()),
        };
        if result.is_none() {
            let message = format!("`{}` is not defined for {} and {}", op.text(), l.ty, r.ty);
            let hint = match op {
                B::And | B::Or => "both operands must be bool; compare with `!= 0`",
                B::Shl | B::Shr => "shift an integer by an unsigned integer",
                B::Concat => "both operands need a width, for example 8w1",
                B::Div | B::Mod => "both operands must be unsigned and have the same width",
                _ => "both operands must have the same type; cast one of them",
            };
            self.error(Code::BadOperand, span, message, hint);
        }
        result
    }
}

fn is_aggregate(e: &Expr) -> bool {
    matches!(e.kind, ExprKind::Aggregate(_))
}

/// Whether `==` is defined for a type.
fn comparable(t: &Type) -> bool {
    match t.base() {
        Type::Composite(c) => !c.is_anonymous() && c.fields.iter().all(|(_, t)| comparable(t)),
        Type::Tuple(ts) => ts.iter().all(comparable),
        Type::Stack(t, _) => comparable(t),
        Type::Text | Type::Void | Type::Extern(_) | Type::Object(_) | Type::List(_) | Type::Var(..) => false,
        _ => true,
    }
}
