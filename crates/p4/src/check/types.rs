//! Type expressions to types.

use super::{Checker, Symbol, TypeSymbol};
use crate::ast::{self, TypeKind};
use crate::constant::{MAX_WIDTH, small};
use crate::diagnostics::Code;
use crate::types::{ExternRef, ObjectKind, ObjectType, Type};
use std::rc::Rc;

/// Elements of a header stack.
const MAX_STACK: u32 = 1024;

impl Checker<'_> {
    pub(super) fn ty(&mut self, t: &ast::TypeExpr) -> Type {
        match &t.kind {
            TypeKind::Bit(None) => Type::Bit(1),
            TypeKind::Bit(Some(w)) => self.width(w).map_or(Type::Bad, Type::Bit),
            TypeKind::Int(None) => Type::InfInt,
            TypeKind::Int(Some(w)) => match self.width(w) {
                Some(0) => {
                    self.error(
                        Code::BadWidth,
                        w.span,
                        "int<0> has no values",
                        "int<W> needs a width of at least 1",
                    );
                    Type::Bad
                }
                w => w.map_or(Type::Bad, Type::Int),
            },
            TypeKind::Varbit(w) => self.width(w).map_or(Type::Bad, Type::Varbit),
            TypeKind::Bool => Type::Bool,
            TypeKind::Error => Type::Error,
            TypeKind::Text => Type::Text,
            TypeKind::Void => Type::Void,
            TypeKind::MatchKind | TypeKind::DontCare | TypeKind::List(_) => {
                self.unsupported(t.span, "this type");
                Type::Bad
            }
            TypeKind::Named { name, absolute } => self.named_type(name, *absolute, &[]),
            TypeKind::Specialized { name, absolute, args } => self.named_type(name, *absolute, args),
            TypeKind::Stack(element, size) => self.stack_type(element, size),
            TypeKind::Tuple(args) => Type::Tuple(args.iter().map(|a| self.ty(a)).collect()),
        }
    }

    fn width(&mut self, w: &ast::Expr) -> Option<u32> {
        let e = self.constant(w, None)?;
        let value = small(&e).filter(|w| *w <= MAX_WIDTH);
        if value.is_none() {
            let hint = format!("widths are from 0 to {MAX_WIDTH}");
            self.error(Code::BadWidth, w.span, format!("{e} is not a width"), hint);
        }
        value
    }

    fn stack_type(&mut self, element: &ast::TypeExpr, size: &ast::Expr) -> Type {
        let ty = self.ty(element);
        if !ty.is_header() && !ty.is_bad() && ty.composite(ast::Composite::Union).is_none() {
            self.unsupported(element.span, &format!("an array of {ty}, which is no header,"));
            return Type::Bad;
        }
        let Some(n) = self.constant(size, None) else { return Type::Bad };
        match small(&n).filter(|n| (1..=MAX_STACK).contains(n)) {
            Some(n) => Type::Stack(Rc::new(ty), n),
            None => {
                let hint = format!("stacks have from 1 to {MAX_STACK} elements");
                self.error(Code::BadWidth, size.span, format!("{n} is not a size"), hint);
                Type::Bad
            }
        }
    }

    fn named_type(&mut self, name: &ast::Ident, absolute: bool, args: &[ast::TypeExpr]) -> Type {
        let symbol = self.resolve(name, absolute);
        let args: Vec<Type> = args.iter().map(|a| self.ty(a)).collect();
        let check = |c: &mut Self, want: usize| {
            let ok = args.len() == want;
            if !ok {
                let message = format!(
                    "`{}` takes {}, not {}",
                    name.name,
                    super::calls::count(want, "type argument"),
                    args.len()
                );
                c.error(Code::BadArguments, name.span, message, "write them as <T, ...>");
            }
            ok
        };
        match symbol {
            Symbol::Type(TypeSymbol::Plain(t)) if check(self, 0) => t,
            Symbol::Type(TypeSymbol::Generic(c, params)) if check(self, params.len()) => {
                Type::Composite(c).substitute(&replacement(&params, &args))
            }
            Symbol::Type(TypeSymbol::Extern(id)) => {
                let want = self.program.externs[id.0 as usize].type_params.len();
                if !check(self, want) {
                    return Type::Bad;
                }
                Type::Extern(Rc::new(ExternRef { id: id.0, name: name.name.clone(), args }))
            }
            Symbol::Type(TypeSymbol::Signature(o, params)) if check(self, params.len()) => {
                Type::Object(o).substitute(&replacement(&params, &args))
            }
            Symbol::Type(TypeSymbol::Parser(id)) => {
                let p = self.program.parsers[id.0 as usize].clone();
                Type::Object(Rc::new(object_type(ObjectKind::Parser, &p.name, &p.params)))
            }
            Symbol::Type(TypeSymbol::Control(id)) => {
                let p = self.program.controls[id.0 as usize].clone();
                Type::Object(Rc::new(object_type(ObjectKind::Control, &p.name, &p.params)))
            }
            Symbol::Bad | Symbol::Type(_) => Type::Bad,
            _ => {
                self.error(
                    Code::WrongKind,
                    name.span,
                    format!("`{}` is not a type", name.name),
                    "use a type here",
                );
                Type::Bad
            }
        }
    }

    /// Declares type parameters in the current scope and returns their numbers.
    pub(super) fn type_params(&mut self, names: &[ast::Ident]) -> Vec<u32> {
        let declare = |n: &ast::Ident| {
            let id = self.fresh();
            self.declare(n, Symbol::Type(TypeSymbol::Plain(Type::Var(id, n.name.clone()))));
            id
        };
        names.iter().map(declare).collect()
    }
}

/// Maps type parameters to type arguments.
pub(super) fn replacement<'a>(params: &'a [u32], args: &'a [Type]) -> impl Fn(u32) -> Option<Type> + 'a {
    |id| params.iter().position(|p| *p == id).and_then(|i| args.get(i).cloned())
}

pub(super) fn object_type(
    kind: ObjectKind,
    name: &crate::lexer::Name,
    params: &[crate::hir::Param],
) -> ObjectType {
    ObjectType {
        kind,
        name: name.clone(),
        params: params.iter().map(|p| (p.direction, p.ty.clone())).collect(),
    }
}
