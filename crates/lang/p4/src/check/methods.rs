//! Methods: those of externs, of tables and objects, and the built-in ones.

use super::argument_list::ArgumentList;
use super::arguments::choose;
use super::infer::Inference;
use super::{Checker, ScopeKind, Symbol};
use crate::ast::{self, ExprKind as Ast, ObjectKind};
use crate::diagnostics::Code;
use crate::hir::{self, Call, CallArg, Callee, Expr, ExprKind, ExternId, Object};
use crate::source::Span;
use crate::types::{ExternRef, Type};

impl Checker<'_> {
    pub(super) fn method_call(&mut self, base: &ast::Expr, name: &ast::Ident, w: ArgumentList<'_>) -> Expr {
        if let Some(Symbol::Table(id)) = self.symbol_of(base).cloned() {
            return self.table_call(id, name, w);
        }
        if let Some(object) = self.object_named_by(base) {
            return self.object_call(object, name, w);
        }
        if let Ast::This = &base.kind {
            return self.this_call(name, w);
        }
        if &*name.name == "apply"
            && let Some(made) = self.object_of_type(base, w.span)
        {
            return match made {
                Some(object) => self.object_call(object, name, w),
                None => Expr::bad(w.span),
            };
        }
        if self.names_type(base)
            && let Some(ty) = self.type_named_by(base)
        {
            return self.size_of_type(&ty, name, w);
        }
        if let Some(made) = self.constructed_by(base) {
            return match made {
                Some(object) => self.object_call(object, name, w),
                None => Expr::bad(w.span),
            };
        }
        let of = self.expr(base, None);
        if let Type::Extern(e) = &of.ty {
            return self.uncompiled_method(e, name, w, "a method of an extern that a call returns");
        }
        self.builtin(base, of, name, w)
    }

    fn table_call(&mut self, table: hir::TableId, name: &ast::Ident, w: ArgumentList<'_>) -> Expr {
        if &*name.name != "apply" {
            let message = format!("a table has no method `{}`", name.name);
            return self.refuse(Code::UnknownMember, name.span, message, "its only method is apply()");
        }
        self.table_place(w.span);
        self.plain_call(Callee::Table(table), "apply", &[], w)
    }

    /// Reports a table that is applied anywhere but in the `apply` block of a control.
    pub(super) fn table_place(&mut self, span: Span) {
        if self.scope_kind != ScopeKind::Apply {
            let hint = "apply tables in the apply block of a control";
            self.error(Code::BadStatement, span, "a table cannot be applied here", hint);
        }
    }

    /// Finds the called method by number, with the type arguments of its extern; reports an
    /// unknown method.
    fn extern_method(
        &mut self,
        e: &ExternRef,
        name: &ast::Ident,
        w: ArgumentList<'_>,
    ) -> Option<(usize, hir::ExternFn, Inference)> {
        let decl = &self.program.externs[e.id as usize];
        let named = decl.methods.iter().cloned().enumerate().filter(|(_, m)| m.name == name.name);
        let overloads: Vec<_> = named.collect();
        let mut inference = Inference::default();
        decl.type_params.iter().zip(&e.args).for_each(|(id, t)| inference.set(*id, t.clone()));
        let Some(first) = overloads.first() else {
            let known: Vec<_> = decl.methods.iter().map(|m| m.name.to_string()).collect();
            let message = format!("{} has no method `{}`", e.name, name.name);
            let hint = format!("its methods are {}", known.join(", "));
            return self.refuse(Code::UnknownMember, name.span, message, hint);
        };
        let Some((method, f)) = choose(&overloads, |(_, f)| &f.params, w.args) else {
            self.wrong_count(&name.name, &first.1.params, w);
            return None;
        };
        if self.ambiguous(overloads.iter().map(|(_, f)| &f.params), w) {
            return None;
        }
        Some((*method, f.clone(), inference))
    }

    /// Checks a call of a method of the instance whose abstract methods are implemented here.
    fn this_call(&mut self, name: &ast::Ident, w: ArgumentList<'_>) -> Expr {
        let Some((_, Type::Extern(e))) = self.this.clone() else {
            let hint = "`this` is allowed only in the methods of an instance's initializer";
            return self.refuse(Code::WrongKind, w.span, "`this` outside of an initializer", hint);
        };
        self.uncompiled_method(&e, name, w, "a call of a method of `this`")
    }

    /// Checks a call of a method that cannot be compiled yet; `what` describes it.
    fn uncompiled_method(
        &mut self,
        e: &ExternRef,
        name: &ast::Ident,
        w: ArgumentList<'_>,
        what: &str,
    ) -> Expr {
        let Some((_, f, mut inference)) = self.extern_method(e, name, w) else { return Expr::bad(w.span) };
        if self.bind(&f.name, &f.params, w, &mut inference).is_none() {
            return Expr::bad(w.span);
        }
        self.sink.unsupported(w.span, what);
        Expr { kind: ExprKind::Bad, ty: inference.apply(&f.result), span: w.span }
    }

    /// Checks the core library's requirements on arguments beyond their types; false if it
    /// reported an error.
    pub(super) fn packet_method(
        &mut self,
        of: ExternId,
        f: &hir::ExternFn,
        args: &[CallArg],
        types: &[Type],
        span: Span,
    ) -> bool {
        let of = self.program.externs[of.0 as usize].name.clone();
        let argument = args.first().and_then(|a| match a {
            CallArg::In(e) | CallArg::Out(e) | CallArg::InOut(e) => Some((e.ty.clone(), e.span)),
            _ => None,
        });
        let varbit = |t: &Type| match t.base() {
            Type::Composite(c) => c.fields.iter().any(|(_, t)| matches!(t.base(), Type::Varbit(_))),
            _ => false,
        };
        let (at, message) = match (&*of, &*f.name, argument) {
            ("packet_in", "extract", Some((t, at))) if !t.is_open() => match args.len() {
                _ if !t.is_header() => (at, format!("{t} is not a header")),
                1 if varbit(&t) => (at, "a header with a varbit field needs a size argument".to_owned()),
                2 if !varbit(&t) => (at, "this header has no varbit field".to_owned()),
                _ => return true,
            },
            ("packet_in", "lookahead", _) => match types.first() {
                Some(t) if !t.is_open() && t.sizes().is_none_or(|(min, max)| min != max) => {
                    (span, "the type of a lookahead must have a fixed width".to_owned())
                }
                _ => return true,
            },
            ("packet_out", "emit", Some((t, at))) if !emittable(&t) => (at, format!("{t} cannot be emitted")),
            _ => return true,
        };
        self.refuse(Code::TypeMismatch, at, message, "use a header")
    }

    fn object_call(&mut self, object: Object, name: &ast::Ident, w: ArgumentList<'_>) -> Expr {
        match self.object_type_of(object) {
            Type::Extern(e) => {
                let Some((method, f, inference)) = self.extern_method(&e, name, w) else {
                    return Expr::bad(w.span);
                };
                let callee = Callee::Method { object, of: ExternId(e.id), method };
                self.generic_call(callee, &f, w, inference)
            }
            Type::Object(o) if &*name.name == "apply" && o.kind != ObjectKind::Package => {
                let fits = match o.kind {
                    ObjectKind::Parser => self.scope_kind == ScopeKind::Parser,
                    _ => self.scope_kind == ScopeKind::Apply,
                };
                if !fits {
                    let hint = "parsers are applied in parsers, controls in the apply block of controls";
                    self.error(Code::BadStatement, w.span, "an object cannot be applied here", hint);
                }
                let params = self.apply_params(object);
                self.plain_call(Callee::Apply(object), "apply", &params, w)
            }
            Type::Bad => Expr::bad(w.span),
            other => {
                let message = format!("{other} has no method `{}`", name.name);
                self.refuse(Code::UnknownMember, name.span, message, "its only method is apply()")
            }
        }
    }

    /// Checks `isValid`, `setValid`, `setInvalid`, `push_front`, `pop_front`, and sizes.
    fn builtin(&mut self, written: &ast::Expr, base: Expr, name: &ast::Ident, w: ArgumentList<'_>) -> Expr {
        let ArgumentList { args, span, .. } = w;
        if base.ty.is_bad() {
            return base;
        }
        let header = base.ty.is_header();
        let stack = matches!(base.ty.base(), Type::Stack(t, _) if t.is_header() || t.is_union());
        let callee = match &*name.name {
            "isValid" if (header || base.ty.is_union()) && args.is_empty() => {
                return Expr { kind: ExprKind::IsValid(Box::new(base)), ty: Type::Bool, span };
            }
            "setValid" | "setInvalid" if header && args.is_empty() => {
                if !self.assignable_as(written, &base) {
                    return Expr::bad(span);
                }
                if &*name.name == "setValid" { Callee::SetValid(base) } else { Callee::SetInvalid(base) }
            }
            "push_front" | "pop_front" if stack && args.len() == 1 => {
                let n = args[0].value.as_ref().and_then(|v| self.constant(v, None));
                let Some(n) = n.filter(|_| self.assignable_as(written, &base)) else {
                    return Expr::bad(span);
                };
                let Some(n) = crate::constant::small(&n) else {
                    let hint = "use a number that is not negative";
                    return self.refuse(Code::BadConstant, args[0].span, "negative number of elements", hint);
                };
                Callee::Push { stack: base, count: n, front: &*name.name == "push_front" }
            }
            _ => return self.size_of_type(&base.ty, name, w),
        };
        let call = Call { callee, type_args: Vec::new(), args: Vec::new().into(), span };
        Expr { kind: ExprKind::Call(Box::new(call)), ty: Type::Void, span }
    }

    /// Evaluates `minSizeInBits` and its variants for a type or a value of it; reports any other method.
    fn size_of_type(&mut self, ty: &Type, name: &ast::Ident, w: ArgumentList<'_>) -> Expr {
        if ty.is_bad() {
            return Expr::bad(w.span);
        }
        let sizes = ty.sizes().filter(|_| w.args.is_empty());
        let bits = match (&*name.name, sizes) {
            ("minSizeInBits", Some((min, _))) => min,
            ("minSizeInBytes", Some((min, _))) => min.div_ceil(8),
            ("maxSizeInBits", Some((_, max))) => max,
            ("maxSizeInBytes", Some((_, max))) => max.div_ceil(8),
            _ => {
                let message = format!("{ty} has no method `{}` with these arguments", name.name);
                let hint = match ty.base() {
                    t if t.is_header() => "a header has isValid(), setValid() and setInvalid()",
                    Type::Stack(..) => "a stack has push_front(n) and pop_front(n)",
                    _ => "only headers, stacks, tables and externs have methods",
                };
                return self.refuse(Code::UnknownMember, name.span, message, hint);
            }
        };
        Expr::constant(bits.into(), Type::InfInt, w.span)
    }
}

/// Whether `emit` accepts the type: headers, and types that contain only headers.
fn emittable(t: &Type) -> bool {
    match t.base() {
        Type::Composite(c) if c.kind == ast::Composite::Struct => c.fields.iter().all(|(_, t)| emittable(t)),
        Type::Composite(_) | Type::Var(..) | Type::Bad => true,
        Type::Stack(t, _) => emittable(t),
        Type::Tuple(ts) => ts.iter().all(emittable),
        _ => false,
    }
}
