//! Default values: the meaning of `...`.

use super::Checker;
use crate::ast::Composite;
use crate::hir::{Expr, ExprKind, Ordered};
use crate::source::Span;
use crate::types::Type;
use num_bigint::BigInt;

impl Checker<'_> {
    /// Returns the default value of a type; `None` if it has none.
    pub(super) fn default_of(&self, ty: &Type, span: Span) -> Option<Expr> {
        let all = |types: &mut dyn Iterator<Item = &Type>| {
            types.map(|t| self.default_of(t, span)).collect::<Option<Vec<_>>>().map(Ordered::from)
        };
        let kind = match ty.base() {
            Type::Bit(_) | Type::Int(_) | Type::InfInt | Type::Bool => ExprKind::Const(BigInt::default()),
            Type::Error => {
                let none = self.program.errors.iter().position(|n| &**n == "NoError");
                ExprKind::Const(none.unwrap_or(0).into())
            }
            Type::Enum(e) if e.repr.is_some() => ExprKind::Const(BigInt::default()),
            Type::Enum(e) => ExprKind::Const(e.members.first()?.1.clone()),
            Type::Composite(c) if c.kind != Composite::Struct => ExprKind::InvalidHeader,
            Type::Composite(c) => ExprKind::Aggregate(all(&mut c.fields.iter().map(|(_, t)| t))?),
            Type::Tuple(ts) => ExprKind::Aggregate(all(&mut ts.iter())?),
            Type::Stack(t, n) => ExprKind::Aggregate(all(&mut (0..*n).map(|_| &**t))?),
            _ => return None,
        };
        Some(Expr { kind, ty: ty.clone(), span })
    }
}
