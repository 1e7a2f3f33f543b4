//! Calls: functions, actions, methods, `apply`, and the built-in methods of headers and stacks.

use super::infer::Inference;
use super::{Checker, FunctionDecl, Place, Symbol};
use crate::ast::{self, Direction, ExprKind as Ast};
use crate::diagnostics::{Code, Diagnostic};
use crate::hir::{self, Call, CallArg, Callee, Expr, ExprKind, ExternFnId, ExternId, Object};
use crate::source::Span;
use crate::types::{ObjectKind, Type};
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
    fn ambiguous<'a>(
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
            if self.place != Place::Apply {
                let hint = "apply tables in the apply block of a control";
                self.error(Code::BadStatement, span, "a table cannot be applied here", hint);
            }
            return self.finish(callee, &[], &Type::Void, args, span);
        }
        if let Some(object) = self.object_named_by(base) {
            return self.object_call(object, name, type_args, args, span);
        }
        if let Ast::This = &base.kind {
            return self.this_call(name, args, span);
        }
        if &*name.name == "apply"
            && let Some(object) = self.object_of_type(base, span)
        {
            return self.object_call(object, name, type_args, args, span);
        }
        if self.names_type(base)
            && let Some(ty) = self.type_named_by(base)
        {
            return self.size_of_type(&ty, name, args, span);
        }
        if let Some(made) = self.constructed_by(base) {
            return match made {
                Some(object) => self.object_call(object, name, type_args, args, span),
                None => Expr::bad(span),
            };
        }
        let base = self.expr(base, None);
        if let Type::Extern(e) = &base.ty {
            return self.method_of_result(e, name, args, span);
        }
        self.builtin(base, name, args, span)
    }

    /// A method of an extern that a call returned.
    fn method_of_result(
        &mut self,
        e: &crate::types::ExternRef,
        name: &ast::Ident,
        args: &[ast::Arg],
        span: Span,
    ) -> Expr {
        let decl = &self.program.externs[e.id as usize];
        let Some(f) = decl.methods.iter().find(|m| m.name == name.name).cloned() else {
            let message = format!("{} has no method `{}`", e.name, name.name);
            self.error(Code::UnknownMember, name.span, message, "check its declaration");
            return Expr::bad(span);
        };
        let mut inference = Inference::default();
        decl.type_params.iter().zip(&e.args).for_each(|(id, t)| inference.set(*id, t.clone()));
        if self.bind(&f.name, &f.params, args, &mut inference, span).is_some() {
            self.unsupported(span, "a method of an extern that a call returns");
        }
        Expr { kind: ExprKind::Bad, ty: inference.apply(&f.result), span }
    }

    /// A method of the instance whose abstract methods are implemented here.
    fn this_call(&mut self, name: &ast::Ident, args: &[ast::Arg], span: Span) -> Expr {
        let Some((_, Type::Extern(e))) = self.this.clone() else {
            let hint = "`this` is the instance whose methods are implemented in its initializer";
            self.error(Code::WrongKind, span, "there is no `this` here", hint);
            return Expr::bad(span);
        };
        let decl = &self.program.externs[e.id as usize];
        let Some(f) = decl.methods.iter().find(|m| m.name == name.name).cloned() else {
            let message = format!("{} has no method `{}`", e.name, name.name);
            self.error(Code::UnknownMember, name.span, message, "check its declaration");
            return Expr::bad(span);
        };
        let mut inference = Inference::default();
        decl.type_params.iter().zip(&e.args).for_each(|(id, t)| inference.set(*id, t.clone()));
        let ty = inference.apply(&f.result);
        if self.bind(&f.name, &f.params, args, &mut inference, span).is_none() {
            return Expr::bad(span);
        }
        self.unsupported(span, "a call of a method of `this`");
        Expr { kind: ExprKind::Bad, ty, span }
    }

    /// What the core library demands of arguments beyond their types; false if that was reported.
    fn packet_method(
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
                _ if !t.is_header() => (at, format!("{t} is no header")),
                1 if varbit(&t) => (at, "a header with a varbit field needs its size as well".to_owned()),
                2 if !varbit(&t) => (at, "this header has no varbit field".to_owned()),
                _ => return true,
            },
            ("packet_in", "lookahead", _) => match types.first() {
                Some(t) if !t.is_open() && t.sizes().is_none_or(|(min, max)| min != max) => {
                    (span, "the type of a lookahead has to be of fixed width".to_owned())
                }
                _ => return true,
            },
            ("packet_out", "emit", Some((t, at))) if !emittable(&t) => (at, format!("{t} cannot be emitted")),
            _ => return true,
        };
        self.error(Code::TypeMismatch, at, message, "use a header");
        false
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
                if self.ambiguous(overloads.iter().map(|(_, f)| &f.params), args, span) {
                    return Expr::bad(span);
                }
                let callee = Callee::Method { object, of, method: *method };
                self.generic_call(callee, f, type_args, args, span, inference)
            }
            Type::Object(o) if &*name.name == "apply" && o.kind != ObjectKind::Package => {
                let fits = match o.kind {
                    ObjectKind::Parser => self.place == Place::Parser,
                    _ => self.place == Place::Apply,
                };
                if !fits {
                    let hint = "parsers are applied in parsers, controls in the apply block of controls";
                    self.error(Code::BadStatement, span, "this cannot be applied here", hint);
                }
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

    /// `isValid`, `setValid`, `setInvalid`, `push_front`, `pop_front`, and sizes.
    fn builtin(&mut self, base: Expr, name: &ast::Ident, args: &[ast::Arg], span: Span) -> Expr {
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
                if !self.assignable(&base) {
                    return Expr::bad(span);
                }
                if &*name.name == "setValid" { Callee::SetValid(base) } else { Callee::SetInvalid(base) }
            }
            "push_front" | "pop_front" if stack && args.len() == 1 => {
                let n = args[0].value.as_ref().and_then(|v| self.constant(v, None));
                let Some(n) = n.filter(|_| self.assignable(&base)) else { return Expr::bad(span) };
                let Some(n) = crate::constant::small(&n) else {
                    let hint = "use a number that is not negative";
                    self.error(Code::BadConstant, args[0].span, "this many elements cannot be moved", hint);
                    return Expr::bad(span);
                };
                Callee::Push { stack: base, count: n, front: &*name.name == "push_front" }
            }
            _ => return self.size_of_type(&base.ty, name, args, span),
        };
        let call = Call { callee, type_args: Vec::new(), args: Vec::new(), span };
        Expr { kind: ExprKind::Call(Box::new(call)), ty: Type::Void, span }
    }

    /// `minSizeInBits` and its like, of a type or a value of it; reports any other method.
    fn size_of_type(&mut self, ty: &Type, name: &ast::Ident, args: &[ast::Arg], span: Span) -> Expr {
        let sizes = ty.sizes().filter(|_| args.is_empty());
        let bits = match (&*name.name, sizes) {
            ("minSizeInBits", Some((min, _))) => min,
            ("minSizeInBytes", Some((min, _))) => min.div_ceil(8),
            ("maxSizeInBits", Some((_, max))) => max,
            ("maxSizeInBytes", Some((_, max))) => max.div_ceil(8),
            _ => {
                let message = format!("{ty} has no method `{}` like this", name.name);
                let hint = match ty.base() {
                    t if t.is_header() => "a header has isValid(), setValid() and setInvalid()",
                    Type::Stack(..) => "a stack has push_front(n) and pop_front(n)",
                    _ => "only headers, stacks, tables and externs have methods",
                };
                self.error(Code::UnknownMember, name.span, message, hint);
                return Expr::bad(span);
            }
        };
        Expr::constant(bits.into(), Type::InfInt, span)
    }
}

/// Whether `emit` takes it: headers, and whatever holds only such.
fn emittable(t: &Type) -> bool {
    match t.base() {
        Type::Composite(c) if c.kind == ast::Composite::Struct => c.fields.iter().all(|(_, t)| emittable(t)),
        Type::Composite(_) | Type::Var(..) | Type::Bad => true,
        Type::Stack(t, _) => emittable(t),
        Type::Tuple(ts) => ts.iter().all(emittable),
        _ => false,
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
