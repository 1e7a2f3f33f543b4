//! Constant expressions, and constant folding of operators.

use crate::ast::{BinaryOp, UnaryOp};
use crate::constant::{bounded, saturate, small, wrap};
use crate::diagnostics::Code;
use crate::hir::{Expr, ExprKind};
use crate::types::Type;
use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{Signed, Zero};

type Folded = Result<BigInt, (Code, String, &'static str)>;

fn to_type(v: BigInt, ty: &Type) -> BigInt {
    match ty.base().integer() {
        Some((w, signed)) => wrap(&v, w, signed),
        None => v,
    }
}

pub(crate) fn unary(op: UnaryOp, v: &BigInt, ty: &Type) -> BigInt {
    match op {
        UnaryOp::Not => BigInt::from(u8::from(v.is_zero())),
        UnaryOp::Complement => to_type(!v, ty),
        UnaryOp::Neg => to_type(-v, ty),
        UnaryOp::Plus => v.clone(),
    }
}

/// Evaluates `a op b`, where `ty` is the type of the result.
pub(crate) fn binary(op: BinaryOp, a: &BigInt, b: &BigInt, left: &Type, right: &Type, ty: &Type) -> Folded {
    use BinaryOp as B;
    let truth = |c: bool| BigInt::from(u8::from(c));
    let v = match op {
        B::Mul => a * b,
        B::Add => a + b,
        B::Sub => a - b,
        B::Div | B::Mod => return divide(op, a, b),
        B::AddSat | B::SubSat => {
            let v = if op == B::AddSat { a + b } else { a - b };
            let (w, signed) = ty.base().integer().unwrap_or((0, false));
            return Ok(saturate(&v, w, signed));
        }
        B::Shl => match small(b).filter(|n| *n <= crate::constant::MAX_WIDTH) {
            Some(n) => a << n,
            None if left.base().integer().is_some() => BigInt::zero(),
            None => return Err(too_large()),
        },
        B::Shr => match small(b) {
            Some(n) => a >> n,
            None if a.is_negative() => BigInt::from(-1),
            None => BigInt::zero(),
        },
        B::Le => truth(a <= b),
        B::Ge => truth(a >= b),
        B::Lt => truth(a < b),
        B::Gt => truth(a > b),
        B::Ne => truth(a != b),
        B::Eq => truth(a == b),
        B::BitAnd => a & b,
        B::BitXor => a ^ b,
        B::BitOr => a | b,
        B::And => truth(!a.is_zero() && !b.is_zero()),
        B::Or => truth(!a.is_zero() || !b.is_zero()),
        B::Concat => {
            let low = right.base().integer().map_or(0, |(w, _)| w);
            (a << low) + wrap(b, low, false)
        }
    };
    if bounded(&v) { Ok(to_type(v, ty)) } else { Err(too_large()) }
}

fn too_large() -> (Code, String, &'static str) {
    (Code::BadConstant, "this number is too large".to_owned(), "numbers have at most 4096 bits")
}

fn divide(op: BinaryOp, a: &BigInt, b: &BigInt) -> Folded {
    if b.is_zero() {
        return Err((Code::DivisionByZero, "division by zero".to_owned(), "use a divisor other than zero"));
    }
    if a.is_negative() || b.is_negative() {
        let message = format!("`{}` of a negative number", op.text());
        return Err((Code::BadConstant, message, "both operands must be positive"));
    }
    Ok(if op == BinaryOp::Div { a.div_floor(b) } else { a.mod_floor(b) })
}

/// Whether the value is known at compile time.
pub(super) fn is_constant(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Const(_)
        | ExprKind::Text(_)
        | ExprKind::Bad
        | ExprKind::InvalidHeader
        | ExprKind::Object(_)
        | ExprKind::Field(..)
        | ExprKind::Cast(_)
        | ExprKind::Binary(..)
        | ExprKind::Aggregate(_) => e.parts().into_iter().all(is_constant),
        _ => false,
    }
}
