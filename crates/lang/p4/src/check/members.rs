//! `a.b`: fields, enum members, errors, and the built-in members of headers, stacks and tables.

use super::depth::Body;
use super::expr::field_hint;
use super::{Checker, ScopeKind, Symbol, TypeSymbol};
use crate::ast::{self, ExprKind as Ast, TypeKind};
use crate::diagnostics::Code;
use crate::hir::{Expr, ExprKind, TableId};
use crate::source::Span;
use crate::types::Type;
use num_bigint::BigInt;
use std::rc::Rc;

impl Checker<'_> {
    pub(super) fn member(&mut self, base: &ast::Expr, name: &ast::Ident, span: Span) -> Expr {
        if let Some(ty) = self.type_named_by(base) {
            return self.type_member(&ty, name, span);
        }
        if let Some(table) = self.applied_table(base) {
            return match &*name.name {
                "hit" | "miss" => {
                    let kind = ExprKind::TableHit { table, miss: &*name.name == "miss" };
                    Expr { kind, ty: Type::Bool, span }
                }
                "action_run" => {
                    let hint = "write switch (t.apply().action_run) { ... }";
                    self.refuse(Code::WrongKind, span, "`action_run` is allowed only in a switch", hint)
                }
                _ => {
                    let message = format!("the result of apply() has no field `{}`", name.name);
                    self.refuse(Code::UnknownMember, name.span, message, "use hit, miss or action_run")
                }
            };
        }
        let base = self.expr(base, None);
        self.value_member(base, name, span)
    }

    /// Returns the table of `t.apply()`.
    pub(super) fn applied_table(&mut self, e: &ast::Expr) -> Option<TableId> {
        let Ast::Call { callee, args, .. } = &e.kind else { return None };
        let Ast::Member(t, apply) = &callee.kind else { return None };
        let Some(Symbol::Table(id)) = self.symbol_of(t).cloned() else { return None };
        let applies = &*apply.name == "apply" && args.is_empty();
        if applies {
            // A key may contain the hit of another table, and is evaluated in the apply block.
            if self.scope_kind != ScopeKind::Control {
                self.table_place(e.span);
            }
            self.uses(Body::Table(id.0));
        }
        applies.then_some(id)
    }

    /// Returns the type that an expression names, if any.
    pub(super) fn type_named_by(&mut self, e: &ast::Expr) -> Option<Type> {
        match &e.kind {
            Ast::Type(t) if matches!(t.kind, TypeKind::Error) => Some(Type::Error),
            Ast::Type(t) => Some(self.ty(t)),
            _ => match self.symbol_of(e) {
                Some(Symbol::Type(TypeSymbol::Plain(t))) => Some(t.clone()),
                _ => None,
            },
        }
    }

    fn type_member(&mut self, ty: &Type, name: &ast::Ident, span: Span) -> Expr {
        let (found, known): (Option<BigInt>, Vec<String>) = match ty.base() {
            Type::Error => {
                let at = self.program.errors.iter().position(|n| *n == name.name);
                (at.map(BigInt::from), self.program.errors.iter().map(ToString::to_string).collect())
            }
            Type::Enum(e) => {
                let at = e.members.iter().find(|(n, _)| *n == name.name).map(|(_, v)| v.clone());
                (at, e.members.iter().map(|(n, _)| n.to_string()).collect())
            }
            Type::Bad => return Expr::bad(span),
            _ => (None, Vec::new()),
        };
        match found {
            Some(v) => Expr::constant(v, ty.clone(), span),
            None => {
                let hint = match super::closest(&name.name, known.iter().map(String::as_str)) {
                    Some(n) => format!("did you mean `{n}`?"),
                    None if known.is_empty() => "only enums and error have members".to_owned(),
                    None => format!("its members are {}", known.join(", ")),
                };
                let message = format!("{ty} has no member `{}`", name.name);
                self.refuse(Code::UnknownMember, name.span, message, hint)
            }
        }
    }

    fn value_member(&mut self, base: Expr, name: &ast::Ident, span: Span) -> Expr {
        match base.ty.base().clone() {
            Type::Bad => Expr::bad(span),
            Type::Composite(c) => match c.field(&name.name) {
                Some((i, ty)) => {
                    let ty = ty.clone();
                    self.field_of(base, i, ty, span)
                }
                None => {
                    let message = format!("{} has no field `{}`", c.name, name.name);
                    self.refuse(Code::UnknownMember, name.span, message, field_hint(&c, &name.name))
                }
            },
            Type::Stack(element, size) => self.stack_member(base, &element, size, name, span),
            other => {
                let message = format!("{other} has no field `{}`", name.name);
                self.refuse(Code::UnknownMember, name.span, message, "only headers and structs have fields")
            }
        }
    }

    fn stack_member(
        &mut self,
        base: Expr,
        element: &Rc<Type>,
        size: u32,
        name: &ast::Ident,
        span: Span,
    ) -> Expr {
        let (kind, ty) = match &*name.name {
            "next" => (ExprKind::StackNext(Box::new(base)), (**element).clone()),
            "last" => (ExprKind::StackLast(Box::new(base)), (**element).clone()),
            "lastIndex" => (ExprKind::StackLastIndex(Box::new(base)), Type::Bit(32)),
            "size" => (ExprKind::Const(BigInt::from(size)), Type::Bit(32)),
            _ => {
                let message = format!("a header stack has no member `{}`", name.name);
                let hint = "use next, last, lastIndex or size";
                return self.refuse(Code::UnknownMember, name.span, message, hint);
            }
        };
        if self.scope_kind != ScopeKind::Parser && &*name.name != "size" {
            let message = format!("`{}` outside of a parser", name.name);
            self.error(Code::BadStatement, name.span, message, "use an index");
        }
        Expr { kind, ty, span }
    }
}
