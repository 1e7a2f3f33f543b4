//! Numbers without a width (`int`), and other values that are known at compile time.
//!
//! The language: "No P4 run-time value can have an int type" and "All expressions of type int must be
//! compile-time known values". They are known once constructor arguments and directionless arguments
//! are, so the lowering evaluates them with the checker's arithmetic.

use super::storage::{Value, limb_count, number_limbs};
use super::{Binding, Lowering};
use crate::ast::{BinaryOp, UnaryOp};
use crate::check::fold;
use crate::constant::wrap;
use crate::diagnostics::Code;
use crate::hir::{BoundAction, Expr, ExprKind, Keyset, Table};
use crate::ir::{BinOp, Opnd};
use crate::types::Type;
use num_bigint::BigInt;
use num_traits::Zero;

impl Lowering<'_> {
    /// Returns the value of an expression of type `int`.
    pub(super) fn number(&mut self, e: &Expr) -> Option<BigInt> {
        let found = self.number_of(e);
        if found.is_none() {
            let hint = "cast it to a type with a width, such as bit<32>";
            self.error(Code::NotConstant, e.span, "this number is not known at compile time", hint);
        }
        found
    }

    fn number_of(&mut self, e: &Expr) -> Option<BigInt> {
        match &e.kind {
            ExprKind::Const(v) => Some(v.clone()),
            ExprKind::Var(_) | ExprKind::Field(..) | ExprKind::Element(..) if self.is_static(e) => {
                match self.part_or_variable(e) {
                    Value::Number(n) => Some(n),
                    _ => None,
                }
            }
            ExprKind::Unary(op, a) => Some(fold::unary(*op, &self.number_of(a)?, &e.ty)),
            ExprKind::Binary(op, a, b) => {
                let (x, y) = (self.number_of(a)?, self.known(b)?);
                match fold::binary(*op, &x, &y, &a.ty, &b.ty, &e.ty) {
                    Ok(n) => Some(n),
                    Err((code, message, hint)) => {
                        self.error(code, e.span, message, hint);
                        Some(BigInt::zero())
                    }
                }
            }
            ExprKind::Cast(a) => self.known(a),
            ExprKind::Ternary(c, t, f) => {
                let chosen = if self.known(c)?.is_zero() { f } else { t };
                self.number_of(chosen)
            }
            _ => None,
        }
    }

    fn part_or_variable(&mut self, e: &Expr) -> Value {
        if let ExprKind::Var(v) = &e.kind { self.variable(*v, e.span) } else { self.part(e) }
    }

    /// Returns the value of a scalar if it is known at compile time.
    pub(super) fn known(&mut self, e: &Expr) -> Option<BigInt> {
        if let Some(v) = e.as_const() {
            return Some(v.clone());
        }
        if e.ty == Type::InfInt {
            return self.number_of(e);
        }
        let width = e.ty.scalar_width().filter(|_| self.is_static(e))?;
        let mut v = BigInt::zero();
        for limb in self.limbs(e).iter().rev() {
            let Opnd::C(c) = limb else { return None };
            v = (v << 64) + *c;
        }
        let signed = matches!(e.ty.base(), Type::Int(_));
        Some(wrap(&v, width, signed))
    }

    /// Whether an expression depends on nothing but constants.
    fn is_static(&self, e: &Expr) -> bool {
        match &e.kind {
            ExprKind::Var(v) => matches!(self.env.get(v), Some(Binding::Constant(_))),
            ExprKind::Call(_)
            | ExprKind::TableHit { .. }
            | ExprKind::StackNext(_)
            | ExprKind::StackLast(_)
            | ExprKind::StackLastIndex(_) => false,
            _ => e.parts().into_iter().all(|p| self.is_static(p)),
        }
    }

    /// Returns an expression with its parts that are known at compile time as constants.
    pub(super) fn resolved(&mut self, e: &Expr) -> Expr {
        if let ExprKind::Aggregate(items) = &e.kind {
            let items = items.clone().map(|i| self.resolved(&i));
            return Expr { kind: ExprKind::Aggregate(items), ..e.clone() };
        }
        if let ExprKind::Var(v) = &e.kind
            && let Some(Binding::Constant(value)) = self.env.get(v)
        {
            return value.clone();
        }
        match self.known(e) {
            Some(v) => Expr::constant(v, e.ty.clone(), e.span),
            None => e.clone(),
        }
    }

    /// Returns a table whose entries and default action contain constants only: in the source, they may
    /// also contain constructor parameters.
    pub(super) fn resolved_table(&mut self, t: &Table) -> Table {
        let mut t = t.clone();
        for e in &mut t.entries {
            for k in &mut e.keys {
                match k {
                    Keyset::Any | Keyset::Set(_) => {}
                    Keyset::Value(v) => *v = self.constant(v),
                    Keyset::Mask(a, b) | Keyset::Range(a, b) => {
                        (*a, *b) = (self.constant(a), self.constant(b));
                    }
                }
            }
            self.resolve_data(&mut e.action);
        }
        if let Some(d) = &mut t.default {
            self.resolve_data(d);
        }
        t
    }

    fn resolve_data(&mut self, action: &mut BoundAction) {
        action.data = action.data.iter().map(|v| self.constant(v)).collect();
    }

    /// Returns a constant expression; reports a value that is known only at run time.
    fn constant(&mut self, e: &Expr) -> Expr {
        let e = self.resolved(e);
        if e.as_const().is_none() {
            self.error(
                Code::NotConstant,
                e.span,
                "this value must be known at compile time",
                "use constants",
            );
        }
        e
    }

    /// Lowers the cast of an `int` to `width` bits. Casts from run-time values to `int` and back work if
    /// only operators are between them whose lowest bits depend on the lowest bits of the operands.
    pub(super) fn number_bits(&mut self, e: &Expr, width: u32) -> Vec<Opnd> {
        if let Some(n) = self.number_of(e) {
            return number_limbs(&n, width);
        }
        match &e.kind {
            ExprKind::Cast(a) if a.ty.integer().is_some() => {
                let limbs = self.limbs(a);
                let signed = matches!(a.ty, Type::Int(_));
                self.resize(&limbs, a.ty.scalar_width().unwrap_or(0), width, signed)
            }
            ExprKind::Unary(UnaryOp::Neg, a) => {
                let (zeros, a) = (vec![Opnd::C(0); limb_count(width)], self.number_bits(a, width));
                self.add_sub(BinOp::Sub, &zeros, &a, width)
            }
            ExprKind::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) => {
                let (a, b) = (self.number_bits(a, width), self.number_bits(b, width));
                let op = if *op == BinaryOp::Add { BinOp::Add } else { BinOp::Sub };
                self.add_sub(op, &a, &b, width)
            }
            _ => {
                self.number(e);
                vec![Opnd::C(0); limb_count(width)]
            }
        }
    }
}
