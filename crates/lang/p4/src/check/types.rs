//! Resolution of type expressions.

use super::{Checker, Symbol, TypeSymbol};
use crate::ast::{self, Composite, ObjectKind, TypeKind};
use crate::constant::{MAX_WIDTH, small};
use crate::diagnostics::Code;
use crate::source::Span;
use crate::types::{CompositeType, ExternRef, ObjectParam, ObjectType, Type};
use std::rc::Rc;

/// Maximum number of elements of a header stack.
const MAX_STACK: u32 = 1024;

impl Checker<'_> {
    pub(super) fn ty(&mut self, t: &ast::TypeExpr) -> Type {
        let ty = self.type_of(t);
        // A plain name refers to a type that was measured at its declaration.
        match t.kind {
            TypeKind::Specialized { .. } | TypeKind::Stack(..) | TypeKind::Tuple(_) => {
                self.measured(ty, t.span)
            }
            _ => ty,
        }
    }

    fn type_of(&mut self, t: &ast::TypeExpr) -> Type {
        match &t.kind {
            TypeKind::Bit(None) => Type::Bit(1),
            TypeKind::Bit(Some(w)) => self.width(w).map_or(Type::Bad, Type::Bit),
            TypeKind::Int(None) => Type::InfInt,
            TypeKind::Int(Some(w)) => match self.width(w) {
                Some(0) => {
                    let hint = "int<W> needs a width of at least 1";
                    self.refuse(Code::BadWidth, w.span, "int<0> has no values", hint)
                }
                w => w.map_or(Type::Bad, Type::Int),
            },
            TypeKind::Varbit(w) => self.width(w).map_or(Type::Bad, Type::Varbit),
            TypeKind::Bool => Type::Bool,
            TypeKind::Error => {
                if self.program.errors.is_empty() {
                    let hint = "include core.p4, or declare `error { ... }`";
                    return self.refuse(Code::UnknownName, t.span, "type `error` is not declared", hint);
                }
                Type::Error
            }
            TypeKind::Text => Type::Text,
            TypeKind::Void => Type::Void,
            TypeKind::MatchKind => Type::MatchKind,
            TypeKind::DontCare => {
                let hint = "`_` is allowed only as a type argument that can be inferred";
                self.refuse(Code::BadType, t.span, "`_` is not a type here", hint)
            }
            TypeKind::List(element) => {
                let ty = self.ty(element);
                if matches!(ty, Type::Void) {
                    let message = format!("{ty} cannot be the element type of a list");
                    return self.refuse(Code::BadType, element.span, message, "use a value type");
                }
                Type::List(Rc::new(ty))
            }
            TypeKind::Named { name, absolute } => self.named_type(name, *absolute, None, t.span),
            TypeKind::Specialized { name, absolute, args } => {
                self.named_type(name, *absolute, Some(args), t.span)
            }
            TypeKind::Stack(element, size) => self.stack_type(element, size),
            TypeKind::Tuple(args) => Type::Tuple(args.iter().map(|a| self.tuple_field(a)).collect()),
        }
    }

    fn tuple_field(&mut self, t: &ast::TypeExpr) -> Type {
        let ty = self.ty(t);
        if matches!(ty, Type::Void | Type::Object(_) | Type::Extern(_)) {
            let message = format!("{ty} cannot be in a tuple");
            return self.refuse(Code::BadType, t.span, message, "use a value type");
        }
        ty
    }

    fn width(&mut self, w: &ast::Expr) -> Option<u32> {
        let e = self.constant(w, None)?;
        let value = small(&e).filter(|w| *w <= MAX_WIDTH);
        if value.is_none() {
            let hint = format!("widths are from 0 to {MAX_WIDTH}");
            self.error(Code::BadWidth, w.span, format!("{e} is not a valid width"), hint);
        }
        value
    }

    fn stack_type(&mut self, element: &ast::TypeExpr, size: &ast::Expr) -> Type {
        let ty = self.ty(element);
        let n = self.constant(size, None);
        let unfit = matches!(
            ty,
            Type::Void | Type::InfInt | Type::Text | Type::MatchKind | Type::List(_) | Type::Object(_)
        );
        if unfit || matches!(ty, Type::Varbit(_)) {
            let message = format!("{ty} cannot be the element type of an array");
            return self.refuse(Code::BadType, element.span, message, "use a value type");
        }
        if ty.is_stack() {
            let hint = "use one stack, or a struct with a stack for each";
            let message = format!("{ty} is a header stack, and cannot be the element type of an array");
            return self.refuse(Code::BadType, element.span, message, hint);
        }
        let Some(n) = n else { return Type::Bad };
        let least = u32::from(ty.is_header() || ty.is_union());
        if small(&n).is_some_and(|n| n < least) {
            let hint = "a header stack has at least one element";
            return self.refuse(Code::BadWidth, size.span, format!("{n} is not a valid stack size"), hint);
        }
        match small(&n).filter(|n| *n <= MAX_STACK) {
            Some(n) => Type::Stack(Rc::new(ty), n),
            None => {
                let hint = format!("arrays have from 0 to {MAX_STACK} elements");
                self.refuse(Code::BadWidth, size.span, format!("{n} is not a valid array size"), hint)
            }
        }
    }

    /// Checks type arguments; parsers, controls and packages are not valid ones.
    pub(super) fn type_args(&mut self, args: &[ast::TypeExpr]) -> Vec<Type> {
        let one = |a: &ast::TypeExpr| {
            if matches!(a.kind, TypeKind::DontCare) {
                let id = self.fresh();
                return Type::Var(id, "_".into());
            }
            let ty = self.ty(a);
            if matches!(&ty, Type::Object(o) if o.kind != ObjectKind::Package) {
                let hint = "use a value type, or an extern";
                return self.refuse(Code::BadType, a.span, format!("{ty} cannot be a type argument"), hint);
            }
            ty
        };
        args.iter().map(one).collect()
    }

    fn named_type(
        &mut self,
        name: &ast::Ident,
        absolute: bool,
        written: Option<&[ast::TypeExpr]>,
        span: Span,
    ) -> Type {
        let symbol = self.resolve(name, absolute);
        let args = written.map(|a| self.type_args(a)).unwrap_or_default();
        match symbol {
            Symbol::Type(t) => self.applied(t, name, &args, written.unwrap_or_default(), span),
            Symbol::Bad => Type::Bad,
            _ => {
                let message = format!("`{}` is not a type", name.name);
                self.refuse(Code::WrongKind, name.span, message, "use a type here")
            }
        }
    }

    /// Applies a declared type to type arguments: the resolved ones and the written ones.
    fn applied(
        &mut self,
        symbol: TypeSymbol,
        name: &ast::Ident,
        args: &[Type],
        written: &[ast::TypeExpr],
        span: Span,
    ) -> Type {
        let takes = self.type_params_of(&symbol, args.len());
        if args.len() != takes {
            let takes = super::argument_list::count(takes, "type argument");
            let message = format!("`{}` takes {takes}, found {}", name.name, args.len());
            return self.refuse(Code::BadArguments, name.span, message, "write them as <T, ...>");
        }
        match symbol {
            TypeSymbol::Plain(t) => t,
            TypeSymbol::Generic(c, params) => {
                if let Some(a) = written.iter().find(|a| matches!(a.kind, TypeKind::DontCare)) {
                    return self.refuse(Code::BadType, a.span, "`_` is not a type here", "write the type");
                }
                self.specialised(&c, &params, args, span)
            }
            TypeSymbol::Extern(id) => {
                if args.iter().any(|a| a.contains(&|t| matches!(t, Type::Extern(x) if x.id == id.0))) {
                    let message = format!("`{}` would contain itself", name.name);
                    return self.refuse(Code::Recursive, span, message, "use another type argument");
                }
                Type::Extern(Rc::new(ExternRef { id: id.0, name: name.name.clone(), args: args.to_vec() }))
            }
            TypeSymbol::Signature(o, params) => Type::Object(o).substitute(&replacement(&params, args)),
            TypeSymbol::Object(o) => {
                let o = &o[0];
                let ty = Type::Object(Rc::new(object_type(o.kind, &o.name, &o.params)));
                ty.substitute(&replacement(&o.type_params, args))
            }
            TypeSymbol::Package(_) => package_type(&name.name, args),
        }
    }

    /// Returns the number of type parameters of a type. For overloaded packages, prefers one
    /// that takes `given` type arguments.
    fn type_params_of(&self, symbol: &TypeSymbol, given: usize) -> usize {
        match symbol {
            TypeSymbol::Plain(_) => 0,
            TypeSymbol::Generic(_, params) | TypeSymbol::Signature(_, params) => params.len(),
            TypeSymbol::Extern(id) => self.program.externs[id.0 as usize].type_params.len(),
            TypeSymbol::Object(o) => o[0].type_params.len(),
            TypeSymbol::Package(overloads) => {
                let fitting = overloads.iter().find(|p| p.type_params.len() == given);
                fitting.unwrap_or(&overloads[0]).type_params.len()
            }
        }
    }

    /// Applies a generic struct or header to type arguments; reports fields that are not allowed then.
    fn specialised(&mut self, c: &Rc<CompositeType>, params: &[u32], args: &[Type], span: Span) -> Type {
        let ty = Type::Composite(c.clone()).substitute(&replacement(params, args));
        if args.iter().any(Type::is_bad) {
            return Type::Bad;
        }
        if args.iter().any(|a| a.contains(&|t| matches!(t, Type::Composite(x) if x.id == c.id))) {
            let message = format!("`{}` would contain itself", c.name);
            return self.refuse(Code::Recursive, span, message, "use another type argument");
        }
        if let Type::Composite(special) = &ty {
            for (n, t) in &special.fields {
                if !field_allowed(c.kind, t) {
                    let message = format!("field `{n}` of `{}` would have the type {t}", c.name);
                    return self.refuse(Code::BadType, span, message, "use another type argument");
                }
            }
        }
        ty
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

/// Whether a struct, header or union may have a field of this type.
pub(super) fn field_allowed(kind: Composite, ty: &Type) -> bool {
    match (kind, ty.base()) {
        (_, Type::Bad | Type::Var(..)) => true,
        (Composite::Header, Type::Composite(c)) => {
            c.kind == Composite::Struct && c.fields.iter().all(|(_, t)| field_allowed(kind, t))
        }
        (Composite::Header, Type::Tuple(_)) => false,
        (Composite::Header, Type::Stack(t, _)) => !t.is_header() && !t.is_union() && field_allowed(kind, t),
        (Composite::Header, t) => t.packed_width().is_some(),
        (Composite::Union, t) => t.is_header(),
        (Composite::Struct, Type::Void | Type::Extern(_) | Type::Object(_)) => false,
        (Composite::Struct, Type::Stack(t, _)) => field_allowed(kind, t),
        // Lists and constants use such structs; variables of them are refused.
        (Composite::Struct, _) => true,
    }
}

/// Maps type parameters to type arguments.
pub(super) fn replacement<'a>(params: &'a [u32], args: &'a [Type]) -> impl Fn(u32) -> Option<Type> + 'a {
    |id| params.iter().position(|p| *p == id).and_then(|i| args.get(i).cloned())
}

/// Returns the type of a package; only its type arguments matter.
fn package_type(name: &crate::lexer::Name, args: &[Type]) -> Type {
    let param = |ty: &Type| ObjectParam {
        name: "".into(),
        direction: ast::Direction::None,
        ty: ty.clone(),
        optional: false,
    };
    let params = args.iter().map(param).collect();
    Type::Object(Rc::new(ObjectType { kind: ObjectKind::Package, name: name.clone(), params }))
}

pub(super) fn object_type(
    kind: ObjectKind,
    name: &crate::lexer::Name,
    params: &[crate::hir::Param],
) -> ObjectType {
    let param = |p: &crate::hir::Param| ObjectParam {
        name: p.name.clone(),
        direction: p.direction,
        ty: p.ty.clone(),
        optional: p.optional || p.default.is_some(),
    };
    ObjectType { kind, name: name.clone(), params: params.iter().map(param).collect() }
}
