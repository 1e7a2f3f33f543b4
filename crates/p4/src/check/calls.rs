//! Calls: functions, actions, methods, `apply`, and the built-in methods of headers and stacks.

use super::infer::Inference;
use super::{Checker, Place, Symbol};
use crate::ast::{self, Direction, ExprKind as Ast};
use crate::diagnostics::Code;
use crate::hir::{self, Call, CallArg, Callee, Expr, ExprKind, ExternFnId, ExternId, Object};
use crate::source::Span;
use crate::types::{ObjectKind, Type};

impl Checker<'_> {
    /// A call whose result is used.
    pub(super) fn call_expr(
        &mut self,
        callee: &ast::Expr,
        type_args: &[ast::TypeExpr],
        args: &[ast::Arg],
        span: Span,
    ) -> Expr {
        let e = self.call(callee, type_args, args, span);
        if e.ty == Type::Void {
            self.error(
                Code::TypeMismatch,
                span,
                "this call has no value",
                "call it as a statement of its own",
            );
            return Expr::bad(span);
        }
        e
    }

    /// Any call; the type is void if it has no value.
    pub(super) fn call(
        &mut self,
        callee: &ast::Expr,
        type_args: &[ast::TypeExpr],
        args: &[ast::Arg],
        span: Span,
    ) -> Expr {
        match &callee.kind {
            Ast::Path { name, absolute } => match self.resolve(name, *absolute) {
                Symbol::ExternFns(ids) => self.extern_call(&ids, type_args, args, span),
                Symbol::Function(id) => {
                    let f = self.program.functions[id.0 as usize].clone();
                    self.finish(Callee::Function(id), &f.params, &f.result, args, span)
                }
                Symbol::Action(id) => self.action_call(id, args, span),
                Symbol::Bad => Expr::bad(span),
                other => self.not_callable(name, &other, span),
            },
            Ast::Member(base, name) => self.method_call(base, name, type_args, args, span),
            _ => {
                self.error(
                    Code::WrongKind,
                    callee.span,
                    "this cannot be called",
                    "call a function or a method",
                );
                Expr::bad(span)
            }
        }
    }

    fn not_callable(&mut self, name: &ast::Ident, symbol: &Symbol, span: Span) -> Expr {
        let hint = match symbol {
            Symbol::Table(_) | Symbol::Instance(_) => format!("write {}.apply(...)", name.name),
            _ => "call a function, an action or a method".to_owned(),
        };
        let message = format!("`{}` is {} and cannot be called", name.name, symbol.describe());
        self.error(Code::WrongKind, name.span, message, hint);
        Expr::bad(span)
    }

    fn action_call(&mut self, id: hir::ActionId, args: &[ast::Arg], span: Span) -> Expr {
        if self.place == Place::Parser {
            self.error(
                Code::BadStatement,
                span,
                "an action called in a parser",
                "actions belong to controls",
            );
        }
        let a = self.program.actions[id.0 as usize].clone();
        self.finish(Callee::Action(id), &a.params, &Type::Void, args, span)
    }

    fn extern_call(
        &mut self,
        ids: &[ExternFnId],
        type_args: &[ast::TypeExpr],
        args: &[ast::Arg],
        span: Span,
    ) -> Expr {
        let fns = ids.iter().map(|i| (*i, self.program.extern_fns[i.0 as usize].clone()));
        let fns: Vec<_> = fns.collect();
        let Some((id, f)) = choose(&fns, |(_, f)| &f.params, args) else {
            return self.wrong_count(&fns[0].1.name, &fns[0].1.params, args, span);
        };
        self.generic_call(Callee::Extern(*id), f, type_args, args, span, Inference::default())
    }

    fn wrong_count(&mut self, name: &str, params: &[hir::Param], args: &[ast::Arg], span: Span) -> Expr {
        let names: Vec<&str> = params.iter().map(|p| &*p.name).collect();
        let message = format!("`{name}` takes {}, not {}", count(params.len(), "argument"), args.len());
        let hint =
            if names.is_empty() { "write ()".to_owned() } else { format!("they are {}", names.join(", ")) };
        self.error(Code::BadArguments, span, message, hint);
        Expr::bad(span)
    }

    fn generic_call(
        &mut self,
        callee: Callee,
        f: &hir::ExternFn,
        type_args: &[ast::TypeExpr],
        args: &[ast::Arg],
        span: Span,
        mut inference: Inference,
    ) -> Expr {
        if !type_args.is_empty() && type_args.len() != f.type_params.len() {
            let message = format!(
                "`{}` takes {}, not {}",
                f.name,
                count(f.type_params.len(), "type argument"),
                type_args.len()
            );
            self.error(Code::BadArguments, span, message, "leave them out, or give all of them");
            return Expr::bad(span);
        }
        for (id, t) in f.type_params.iter().zip(type_args) {
            if !matches!(t.kind, ast::TypeKind::DontCare) {
                let ty = self.ty(t);
                inference.set(*id, ty);
            }
        }
        let Some(args) = self.bind(&f.name, &f.params, args, &mut inference, span) else {
            return Expr::bad(span);
        };
        let mut type_args = Vec::new();
        for id in &f.type_params {
            match inference.get(*id) {
                Some(t) => type_args.push(t.clone()),
                None => {
                    let message = format!("a type argument of `{}` cannot be inferred", f.name);
                    self.error(Code::CannotInfer, span, message, format!("write {}<T>(...)", f.name));
                    return Expr::bad(span);
                }
            }
        }
        let ty = inference.apply(&f.result);
        Expr { kind: ExprKind::Call(Box::new(Call { callee, type_args, args, span })), ty, span }
    }

    fn finish(
        &mut self,
        callee: Callee,
        params: &[hir::Param],
        result: &Type,
        args: &[ast::Arg],
        span: Span,
    ) -> Expr {
        let name = match &callee {
            Callee::Action(id) => self.program.actions[id.0 as usize].name.clone(),
            Callee::Function(id) => self.program.functions[id.0 as usize].name.clone(),
            _ => "apply".into(),
        };
        let Some(args) = self.bind(&name, params, args, &mut Inference::default(), span) else {
            return Expr::bad(span);
        };
        let call = Call { callee, type_args: Vec::new(), args, span };
        Expr { kind: ExprKind::Call(Box::new(call)), ty: result.clone(), span }
    }

    /// Matches arguments with parameters: by position, by name, with defaults. Reports what does not fit.
    pub(super) fn bind(
        &mut self,
        name: &str,
        params: &[hir::Param],
        args: &[ast::Arg],
        inference: &mut Inference,
        span: Span,
    ) -> Option<Vec<CallArg>> {
        let order = self.order_arguments(name, params, args, span)?;
        let mut out = Vec::with_capacity(params.len());
        let mut ok = true;
        for (p, arg) in params.iter().zip(order) {
            let bound = match arg {
                None => match &p.default {
                    Some(d) => Some(CallArg::In(d.clone())),
                    None => Some(CallArg::Skip),
                },
                Some(arg) => self.bind_one(p, arg, inference),
            };
            ok &= bound.is_some();
            out.extend(bound);
        }
        ok.then_some(out)
    }

    /// For each parameter its argument, `None` if it is left out.
    pub(super) fn order_arguments<'a>(
        &mut self,
        name: &str,
        params: &[hir::Param],
        args: &'a [ast::Arg],
        span: Span,
    ) -> Option<Vec<Option<&'a ast::Arg>>> {
        let mut order: Vec<Option<&ast::Arg>> = vec![None; params.len()];
        for (i, arg) in args.iter().enumerate() {
            let at = match &arg.name {
                None => i,
                Some(n) => match params.iter().position(|p| p.name == n.name) {
                    Some(at) => at,
                    None => {
                        let message = format!("`{name}` has no parameter `{}`", n.name);
                        self.error(Code::BadArguments, n.span, message, "check its declaration");
                        return None;
                    }
                },
            };
            match order.get_mut(at) {
                Some(slot @ None) => *slot = Some(arg),
                Some(_) => {
                    self.error(
                        Code::BadArguments,
                        arg.span,
                        "this argument is given twice",
                        "remove one of them",
                    );
                    return None;
                }
                None => {
                    self.wrong_count(name, params, args, span);
                    return None;
                }
            }
        }
        let complete =
            params.iter().zip(&order).all(|(p, a)| a.is_some() || p.default.is_some() || p.optional);
        if !complete {
            self.wrong_count(name, params, args, span);
            return None;
        }
        Some(order)
    }

    fn bind_one(&mut self, p: &hir::Param, arg: &ast::Arg, inference: &mut Inference) -> Option<CallArg> {
        let Some(value) = &arg.value else {
            if p.direction != Direction::Out {
                self.error(Code::BadArguments, arg.span, "`_` is only for out parameters", "give it a value");
                return None;
            }
            return Some(CallArg::Skip);
        };
        if let Some(object) = self.object_named_by(value) {
            let ty = self.object_type_of(object);
            inference.learn(&p.ty, &ty);
            return self
                .fits_object(&inference.apply(&p.ty), &ty, arg.span)
                .then_some(CallArg::Object(object));
        }
        let want = inference.apply(&p.ty);
        let e = self.expr(value, Some(&want).filter(|t| !t.is_open()));
        if e.ty.is_bad() {
            return None;
        }
        inference.learn(&p.ty, &e.ty);
        let want = inference.apply(&p.ty);
        if want.is_open() {
            if e.ty == Type::InfInt {
                let hint = "give the number a width, for example 32w1";
                self.error(Code::CannotInfer, e.span, "the width of this number is not known", hint);
                return None;
            }
            return Some(CallArg::In(e));
        }
        match p.direction {
            Direction::None | Direction::In => {
                let e = self.coerce(e, &want);
                (!e.ty.is_bad()).then_some(CallArg::In(e))
            }
            Direction::Out | Direction::InOut => {
                if !self.assignable(&e) {
                    return None;
                }
                if e.ty != want {
                    let message = format!("expected {want}, found {}", e.ty);
                    let hint = "out and inout arguments need exactly the parameter's type";
                    self.error(Code::TypeMismatch, e.span, message, hint);
                    return None;
                }
                Some(if p.direction == Direction::Out { CallArg::Out(e) } else { CallArg::InOut(e) })
            }
        }
    }

    /// Reports what cannot stand on the left of an assignment.
    pub(super) fn assignable(&mut self, e: &Expr) -> bool {
        let ok = match &e.kind {
            ExprKind::Var(v) => !self.read_only(*v),
            ExprKind::Field(b, _) | ExprKind::Element(b, _) | ExprKind::Slice(b, _, _) => {
                return self.assignable(b);
            }
            ExprKind::StackNext(b) | ExprKind::StackLast(b) => return self.assignable(b),
            ExprKind::Bad => return false,
            _ => false,
        };
        if !ok {
            let hint = match &e.kind {
                ExprKind::Var(_) => "it is an `in` parameter; make it inout or use a variable of your own",
                _ => "assign to a variable, a field or a slice",
            };
            self.error(Code::NotAssignable, e.span, "this cannot be assigned", hint);
        }
        ok
    }

    fn method_call(
        &mut self,
        base: &ast::Expr,
        name: &ast::Ident,
        type_args: &[ast::TypeExpr],
        args: &[ast::Arg],
        span: Span,
    ) -> Expr {
        if let Ast::Path { name: n, absolute } = &base.kind
            && let Some(Symbol::Table(id)) = self.lookup(&n.name, *absolute)
        {
            let callee = Callee::Table(*id);
            if &*name.name != "apply" {
                let message = format!("a table has no method `{}`", name.name);
                self.error(Code::UnknownMember, name.span, message, "it has apply()");
                return Expr::bad(span);
            }
            if self.place != Place::Control {
                let hint = "apply tables in the apply block of a control";
                self.error(Code::BadStatement, span, "a table cannot be applied here", hint);
            }
            return self.finish(callee, &[], &Type::Void, args, span);
        }
        if let Some(object) = self.object_named_by(base) {
            return self.object_call(object, name, type_args, args, span);
        }
        if &*name.name == "apply"
            && let Some(object) = self.object_of_type(base, span)
        {
            return self.object_call(object, name, type_args, args, span);
        }
        let base = self.expr(base, None);
        self.builtin(base, name, args, span)
    }

    fn object_call(
        &mut self,
        object: Object,
        name: &ast::Ident,
        type_args: &[ast::TypeExpr],
        args: &[ast::Arg],
        span: Span,
    ) -> Expr {
        match self.object_type_of(object) {
            Type::Extern(e) => {
                let of = ExternId(e.id);
                let decl = &self.program.externs[e.id as usize];
                let named = decl.methods.iter().cloned().enumerate().filter(|(_, m)| m.name == name.name);
                let overloads: Vec<_> = named.collect();
                let mut inference = Inference::default();
                decl.type_params.iter().zip(&e.args).for_each(|(id, t)| inference.set(*id, t.clone()));
                let Some(first) = overloads.first() else {
                    let known: Vec<_> = decl.methods.iter().map(|m| m.name.to_string()).collect();
                    let message = format!("{} has no method `{}`", e.name, name.name);
                    self.error(
                        Code::UnknownMember,
                        name.span,
                        message,
                        format!("it has {}", known.join(", ")),
                    );
                    return Expr::bad(span);
                };
                let Some((method, f)) = choose(&overloads, |(_, f)| &f.params, args) else {
                    return self.wrong_count(&name.name, &first.1.params, args, span);
                };
                let callee = Callee::Method { object, of, method: *method };
                self.generic_call(callee, f, type_args, args, span, inference)
            }
            Type::Object(o) if &*name.name == "apply" && o.kind != ObjectKind::Package => {
                let params = self.apply_params(object);
                self.finish(Callee::Apply(object), &params, &Type::Void, args, span)
            }
            Type::Bad => Expr::bad(span),
            other => {
                self.error(
                    Code::UnknownMember,
                    name.span,
                    format!("{other} has no method `{}`", name.name),
                    "it has apply",
                );
                Expr::bad(span)
            }
        }
    }

    /// `isValid`, `setValid`, `setInvalid`, `push_front`, `pop_front`.
    fn builtin(&mut self, base: Expr, name: &ast::Ident, args: &[ast::Arg], span: Span) -> Expr {
        if base.ty.is_bad() {
            return base;
        }
        let header = base.ty.is_header();
        let stack = matches!(base.ty.base(), Type::Stack(..));
        let callee = match &*name.name {
            "isValid" if header && args.is_empty() => {
                return Expr { kind: ExprKind::IsValid(Box::new(base)), ty: Type::Bool, span };
            }
            "setValid" | "setInvalid" if header && args.is_empty() => {
                if !self.assignable(&base) {
                    return Expr::bad(span);
                }
                if &*name.name == "setValid" { Callee::SetValid(base) } else { Callee::SetInvalid(base) }
            }
            "push_front" | "pop_front" if stack && args.len() == 1 => {
                if args[0].value.as_ref().and_then(|v| self.constant(v, None)).is_none() {
                    return Expr::bad(span);
                }
                Callee::Push
            }
            "minSizeInBytes" | "minSizeInBits" if base.ty.packed_width().is_some() => {
                let bits = base.ty.packed_width().unwrap_or(0);
                let n = if &*name.name == "minSizeInBits" { bits } else { bits.div_ceil(8) };
                return Expr::constant(n.into(), Type::InfInt, span);
            }
            _ => {
                let message = format!("{} has no method `{}`", base.ty, name.name);
                let hint = if header {
                    "a header has isValid(), setValid() and setInvalid()"
                } else if stack {
                    "a stack has push_front(n) and pop_front(n)"
                } else {
                    "only headers, stacks, tables and externs have methods"
                };
                self.error(Code::UnknownMember, name.span, message, hint);
                return Expr::bad(span);
            }
        };
        let call = Call { callee, type_args: Vec::new(), args: Vec::new(), span };
        Expr { kind: ExprKind::Call(Box::new(call)), ty: Type::Void, span }
    }
}

/// The overload that takes these arguments: by number and names, as P4 chooses.
pub(super) fn choose<'a, T>(
    overloads: &'a [T],
    params: impl Fn(&T) -> &Vec<hir::Param>,
    args: &[ast::Arg],
) -> Option<&'a T> {
    overloads.iter().find(|o| {
        let ps = params(o);
        let needed = ps.iter().filter(|p| p.default.is_none() && !p.optional).count();
        let named = args.iter().filter_map(|a| a.name.as_ref());
        args.len() <= ps.len()
            && args.len() >= needed
            && named.into_iter().all(|n| ps.iter().any(|p| p.name == n.name))
    })
}

/// A number of things, in words.
pub(super) fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
