//! Calls: functions, actions, methods, `apply`, and the built-in methods of headers and stacks.

use super::infer::Inference;
use super::{Checker, FunctionDecl, Place, Symbol};
use crate::ast::{self, Direction, ExprKind as Ast};
use crate::diagnostics::{Code, Diagnostic};
use crate::hir::{self, Call, CallArg, Callee, Expr, ExprKind, ExternFnId};
use crate::source::Span;
use crate::types::Type;
use std::rc::Rc;

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
                Symbol::Functions(fs) => self.function_call(&fs, type_args, args, span),
                Symbol::Action(id) if type_args.is_empty() => self.action_call(id, args, span),
                Symbol::Action(_) => {
                    self.error(Code::BadArguments, span, "type arguments of an action", "remove them");
                    Expr::bad(span)
                }
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
        if matches!(self.place, Place::Parser | Place::Function(_)) {
            let hint = "actions belong to controls; make it a function";
            self.error(Code::BadStatement, span, "an action called outside of a control", hint);
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
        if self.ambiguous(fns.iter().map(|(_, f)| &f.params), args, span) {
            return Expr::bad(span);
        }
        if &*f.name == "static_assert" {
            return self.static_assert(f, args, span);
        }
        if &*f.name == "verify" && f.params.len() == 2 && !matches!(self.place, Place::Parser) {
            let hint = "a control has no parser error; use `if`";
            self.error(Code::BadStatement, span, "verify outside of a parser", hint);
        }
        self.generic_call(Callee::Extern(*id), f, type_args, args, span, Inference::default())
    }

    /// Reports a call that more than one overload takes.
    pub(super) fn ambiguous<'a>(
        &mut self,
        overloads: impl Iterator<Item = &'a Vec<hir::Param>>,
        args: &[ast::Arg],
        span: Span,
    ) -> bool {
        let all_named = args.iter().all(|a| a.name.is_some()) && !args.is_empty();
        let count = overloads.filter(|ps| ps.len() == args.len()).count();
        if count > 1 && !all_named {
            let hint = "give the arguments by name";
            self.error(Code::DuplicateName, span, "more than one declaration fits this call", hint);
        }
        count > 1 && !all_named
    }

    /// Evaluated when the program is compiled.
    fn static_assert(&mut self, f: &hir::ExternFn, args: &[ast::Arg], span: Span) -> Expr {
        let Some(bound) = self.bind(&f.name, &f.params, args, &mut Inference::default(), span) else {
            return Expr::bad(span);
        };
        let held = match bound.first() {
            Some(CallArg::In(e)) => e.as_const().map(|v| *v != 0.into()),
            _ => None,
        };
        let message = match bound.get(1) {
            Some(CallArg::In(Expr { kind: ExprKind::Text(t), .. })) => t.to_string(),
            _ => "this does not hold".to_owned(),
        };
        match held {
            Some(true) => return Expr::constant(1.into(), Type::Bool, span),
            Some(false) => self.error(Code::UserError, span, message, "the program asserts it"),
            None => {
                let hint = "use constants";
                self.error(Code::NotConstant, span, "this is not known at compile time", hint);
            }
        }
        Expr::bad(span)
    }

    fn function_call(
        &mut self,
        overloads: &[Rc<FunctionDecl>],
        type_args: &[ast::TypeExpr],
        args: &[ast::Arg],
        span: Span,
    ) -> Expr {
        let Some(f) = choose(overloads, |f| &f.params, args).cloned() else {
            let first = overloads[0].clone();
            return self.wrong_count(&first.name, &first.params, args, span);
        };
        let mut inference = Inference::default();
        let Some(()) = self.written_types(&f.name, &f.type_params, type_args, &mut inference, span) else {
            return Expr::bad(span);
        };
        let Some(bound) = self.bind(&f.name, &f.params, args, &mut inference, span) else {
            return Expr::bad(span);
        };
        let Some(types) = self.inferred_types(&f.name, &f.type_params, &inference, span) else {
            return Expr::bad(span);
        };
        self.directionless_constants(&f.params, &bound);
        let id = self.function_for(&f, &types, span);
        let call = Call { callee: Callee::Function(id), type_args: Vec::new(), args: bound, span };
        Expr { kind: ExprKind::Call(Box::new(call)), ty: inference.apply(&f.result), span }
    }

    /// Arguments without direction of anything but actions are known at compile time.
    fn directionless_constants(&mut self, params: &[hir::Param], args: &[CallArg]) {
        for (p, a) in params.iter().zip(args) {
            if let (Direction::None, CallArg::In(e)) = (p.direction, a)
                && !self.is_put_together(e)
                && !e.ty.is_bad()
            {
                let hint = format!("parameter `{}` has no direction; use a constant", p.name);
                self.error(Code::NotConstant, e.span, "this value is not known at compile time", hint);
            }
        }
    }

    fn written_types(
        &mut self,
        name: &str,
        params: &[u32],
        type_args: &[ast::TypeExpr],
        inference: &mut Inference,
        span: Span,
    ) -> Option<()> {
        if !type_args.is_empty() && type_args.len() != params.len() {
            let message =
                format!("`{name}` takes {}, not {}", count(params.len(), "type argument"), type_args.len());
            self.error(Code::BadArguments, span, message, "leave them out, or give all of them");
            return None;
        }
        for (id, t) in params.iter().zip(type_args) {
            if !matches!(t.kind, ast::TypeKind::DontCare) {
                let ty = self.type_args(std::slice::from_ref(t)).pop().unwrap_or(Type::Bad);
                if ty.is_bad() {
                    return None;
                }
                inference.set(*id, ty);
            }
        }
        Some(())
    }

    fn inferred_types(
        &mut self,
        name: &str,
        params: &[u32],
        inference: &Inference,
        span: Span,
    ) -> Option<Vec<Type>> {
        let one = |p: &u32| inference.get(*p).cloned().or_else(|| inference.is_idle(*p).then_some(Type::Bad));
        let types: Option<Vec<Type>> = params.iter().map(one).collect();
        if types.is_none() {
            let message = format!("a type argument of `{name}` cannot be inferred");
            self.error(Code::CannotInfer, span, message, format!("write {name}<T>(...)"));
        }
        types
    }

    pub(super) fn wrong_count(
        &mut self,
        name: &str,
        params: &[hir::Param],
        args: &[ast::Arg],
        span: Span,
    ) -> Expr {
        let names: Vec<&str> = params.iter().map(|p| &*p.name).collect();
        let message = format!("`{name}` takes {}, not {}", count(params.len(), "argument"), args.len());
        let hint =
            if names.is_empty() { "write ()".to_owned() } else { format!("they are {}", names.join(", ")) };
        self.error(Code::BadArguments, span, message, hint);
        Expr::bad(span)
    }

    pub(super) fn generic_call(
        &mut self,
        callee: Callee,
        f: &hir::ExternFn,
        type_args: &[ast::TypeExpr],
        args: &[ast::Arg],
        span: Span,
        mut inference: Inference,
    ) -> Expr {
        let Some(()) = self.written_types(&f.name, &f.type_params, type_args, &mut inference, span) else {
            return Expr::bad(span);
        };
        let Some(args) = self.bind(&f.name, &f.params, args, &mut inference, span) else {
            return Expr::bad(span);
        };
        let Some(type_args) = self.inferred_types(&f.name, &f.type_params, &inference, span) else {
            return Expr::bad(span);
        };
        if let Callee::Method { of, .. } = &callee
            && !self.packet_method(*of, f, &args, &type_args, span)
        {
            return Expr::bad(span);
        }
        let ty = inference.apply(&f.result);
        Expr { kind: ExprKind::Call(Box::new(Call { callee, type_args, args, span })), ty, span }
    }

    pub(super) fn finish(
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
                    None => {
                        inference.idle(&p.ty);
                        Some(CallArg::Skip)
                    }
                },
                Some(arg) => self.bind_one(p, arg, inference),
            };
            ok &= bound.is_some();
            out.extend(bound);
        }
        if !ok {
            return None;
        }
        // Later arguments may have told more about the types of earlier ones.
        let finish = |(p, a): (&hir::Param, CallArg)| match a {
            CallArg::In(e) if p.ty.is_open() && !inference.apply(&p.ty).is_open() => {
                let e = self.coerce(e, &inference.apply(&p.ty));
                (!e.ty.is_bad()).then_some(CallArg::In(e))
            }
            other => Some(other),
        };
        let out: Vec<CallArg> = params.iter().zip(out).map(finish).collect::<Option<_>>()?;
        for (p, a) in params.iter().zip(&out) {
            if let CallArg::In(e) = a
                && p.ty.is_open()
                && p.direction != Direction::None
                && matches!(
                    e.ty,
                    Type::Text | Type::MatchKind | Type::List(_) | Type::Extern(_) | Type::InfInt
                )
            {
                if e.ty == Type::InfInt {
                    let hint = "give the number a width, for example 32w1";
                    self.error(Code::CannotInfer, e.span, "the width of this number is not known", hint);
                } else {
                    let message = format!("a parameter of type {} has no direction", e.ty);
                    let d = Diagnostic::new(Code::BadType, p.span, message).hint("pass another value");
                    self.sink.add(d.related(e.span, "it is of this type because of this argument"));
                }
                return None;
            }
        }
        Some(out)
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
        let named = args.iter().filter(|a| a.name.is_some()).count();
        if named > 0 && named < args.len() {
            let hint = "give all arguments by name, or none";
            self.error(Code::BadArguments, span, "some arguments have names, others not", hint);
            return None;
        }
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
        if let Some(made) = self.constructed_by(value) {
            made?;
            let hint = "declare it and pass its name";
            self.error(Code::BadInstance, arg.span, "an instance cannot be made here", hint);
            return None;
        }
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
            if matches!(p.direction, Direction::None | Direction::In) {
                return Some(CallArg::In(e));
            }
            let message = format!("expected {want}, found {}", e.ty);
            self.error(Code::TypeMismatch, e.span, message, "pass a variable of the parameter's type");
            return None;
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
            ExprKind::Var(v) => !self.read_only(*v) && e.ty.is_runtime(),
            ExprKind::Field(b, _) | ExprKind::Element(b, _) | ExprKind::Slice(b, _, _) => {
                return self.assignable(b);
            }
            ExprKind::StackNext(b) | ExprKind::StackLast(b) | ExprKind::PlusSlice(b, ..) => {
                return self.assignable(b);
            }
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
}

/// The overload that takes these arguments, by number and names; one that needs no default goes first.
pub(super) fn choose<'a, T>(
    overloads: &'a [T],
    params: impl Fn(&T) -> &Vec<hir::Param>,
    args: &[ast::Arg],
) -> Option<&'a T> {
    let fits = |o: &&T| {
        let ps = params(o);
        let needed = ps.iter().filter(|p| p.default.is_none() && !p.optional).count();
        let named = args.iter().filter_map(|a| a.name.as_ref());
        args.len() <= ps.len()
            && args.len() >= needed
            && named.into_iter().all(|n| ps.iter().any(|p| p.name == n.name))
    };
    let exact = overloads.iter().filter(fits).find(|o| params(o).len() == args.len());
    exact.or_else(|| overloads.iter().find(fits))
}

/// A number of things, in words.
pub(super) fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
