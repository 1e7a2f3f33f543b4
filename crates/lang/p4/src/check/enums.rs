//! Checks of enums.

use super::{Checker, Symbol, TypeSymbol};
use crate::ast::{self, Decl};
use crate::constant::fits;
use crate::diagnostics::Code;
use crate::hir::Expr;
use crate::types::{EnumType, Type};
use num_bigint::BigInt;
use std::rc::Rc;

impl Checker<'_> {
    pub(super) fn enum_decl(
        &mut self,
        d: &Decl,
        repr: Option<&ast::TypeExpr>,
        members: &[(ast::Ident, Option<ast::Expr>)],
    ) {
        let repr = repr.map(|t| (self.ty(t), t.span));
        if let Some((t, span)) = &repr
            && t.integer().is_none()
            && !t.is_bad()
        {
            self.error(Code::BadType, *span, format!("invalid underlying type {t}"), "use bit<W> or int<W>");
        }
        let out = self.scoped(|c| c.enum_members(repr.as_ref().map(|(t, _)| t), members));
        let ty =
            EnumType { id: self.fresh(), name: d.name.name.clone(), repr: repr.map(|r| r.0), members: out };
        self.declare(&d.name, Symbol::Type(TypeSymbol::Plain(Type::Enum(Rc::new(ty)))));
    }

    /// Returns names and values; each value may use the members before it.
    fn enum_members(
        &mut self,
        repr: Option<&Type>,
        members: &[(ast::Ident, Option<ast::Expr>)],
    ) -> Vec<(crate::lexer::Name, BigInt)> {
        let mut out: Vec<(crate::lexer::Name, BigInt)> = Vec::new();
        for (i, (name, value)) in members.iter().enumerate() {
            let number = match (repr, value) {
                (Some(t), Some(e)) => self.constant(e, Some(t)).unwrap_or_default(),
                (None, None) => BigInt::from(i),
                (Some(_), None) => {
                    self.error(Code::BadType, name.span, "expected a member value", "write `name = value`");
                    BigInt::default()
                }
                (None, Some(e)) => {
                    let hint = "declare an underlying type: `enum bit<8> ...`";
                    self.error(Code::BadType, e.span, "an enum without underlying type has no values", hint);
                    BigInt::default()
                }
            };
            if let Some((w, signed)) = repr.and_then(|t| t.base().integer())
                && !fits(&number, w, signed)
            {
                let message = format!("{number} does not fit the underlying type");
                self.error(Code::BadConstant, name.span, message, "use a wider type");
            }
            let ty = repr.cloned().unwrap_or(Type::Bad);
            self.declare(name, Symbol::Const(Expr::constant(number.clone(), ty, name.span)));
            out.push((name.name.clone(), number));
        }
        out
    }
}
