//! Assignments and l-values.

use super::Checker;
use crate::ast::{self, ExprKind as Ast};
use crate::diagnostics::Code;
use crate::hir::{Expr, ExprKind, StmtKind};
use crate::source::Span;

impl Checker<'_> {
    pub(super) fn assign(
        &mut self,
        target: &ast::Expr,
        op: Option<ast::BinaryOp>,
        value: &ast::Expr,
        span: Span,
    ) -> Option<StmtKind> {
        let t = self.expr(target, None);
        if t.ty.is_bad() {
            // The assigned value may contain errors as well.
            if matches!(value.kind, Ast::Call { .. }) {
                self.expr(value, None);
            }
            return None;
        }
        if !self.assignable_as(target, &t) {
            return None;
        }
        let ty = t.ty.clone();
        let Some(op) = op else {
            let v = self.expr_as(value, &ty);
            return (!v.ty.is_bad()).then_some(StmtKind::Assign(t, v));
        };
        let v = self.expr(value, Some(&ty));
        let held = ast::Ident { name: "the target".into(), span: t.span };
        let old = self.new_var(&held, ty.clone());
        let held = Expr { kind: ExprKind::Var(old), ty: ty.clone(), span: t.span };
        let v = self.binary_of(op, held, v, span);
        let v = self.coerce(v, &ty);
        (!v.ty.is_bad()).then_some(StmtKind::Update { target: t, old, value: v })
    }

    /// Like [`Self::assignable`], for the expression as written: a cast to the same type leaves no trace
    /// in `e`, but is no l-value.
    pub(super) fn assignable_as(&mut self, written: &ast::Expr, e: &Expr) -> bool {
        let mut at = written;
        loop {
            at = match &at.kind {
                Ast::Cast(..) => {
                    let hint = "remove the cast, or copy the value to a variable";
                    return self.refuse(Code::NotAssignable, at.span, "a cast is not an l-value", hint);
                }
                Ast::Member(of, _) | Ast::Index(of, _) | Ast::Slice(of, ..) | Ast::PlusSlice(of, ..) => of,
                _ => return self.assignable(e),
            }
        }
    }

    /// Reports an expression that is not an l-value.
    fn assignable(&mut self, e: &Expr) -> bool {
        let ok = match &e.kind {
            ExprKind::Var(v) => !self.read_only.contains(v) && e.ty.is_runtime(),
            ExprKind::Field(b, _)
            | ExprKind::Element(b, _)
            | ExprKind::Slice(b, _, _)
            | ExprKind::StackNext(b)
            | ExprKind::PlusSlice(b, ..) => return self.assignable(b),
            ExprKind::Bad => return false,
            _ => false,
        };
        if !ok {
            let hint = match &e.kind {
                ExprKind::Var(_) => "it is an `in` parameter; declare it inout or copy it to a variable",
                ExprKind::StackLast(_) => "`last` can only be read; assign to an element by its index",
                _ => "assign to a variable, a field or a slice",
            };
            self.error(Code::NotAssignable, e.span, "this expression is not an l-value", hint);
        }
        ok
    }
}
