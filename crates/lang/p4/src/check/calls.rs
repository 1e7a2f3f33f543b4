//! Calls of functions, actions and extern functions. [`super::methods`] checks methods,
//! [`super::arguments`] binds arguments to parameters.

use super::argument_list::ArgumentList;
use super::arguments::choose;
use super::infer::Inference;
use super::{Checker, FunctionDecl, ScopeKind, Symbol};
use crate::ast::{self, Direction, ExprKind as Ast};
use crate::diagnostics::Code;
use crate::hir::{self, Call, CallArg, Callee, Expr, ExprKind, ExternFnId};
use crate::types::Type;
use std::rc::Rc;

impl Checker<'_> {
    /// Checks a call whose result is used.
    pub(super) fn call_expr(&mut self, callee: &ast::Expr, w: ArgumentList<'_>) -> Expr {
        let e = self.call(callee, w);
        if e.ty == Type::Void {
            let hint = "call it as a separate statement";
            return self.refuse(Code::TypeMismatch, w.span, "this call returns no value", hint);
        }
        e
    }

    /// Checks any call; the type is void if it returns no value.
    pub(super) fn call(&mut self, callee: &ast::Expr, w: ArgumentList<'_>) -> Expr {
        match &callee.kind {
            Ast::Path { name, absolute } => match self.resolve(name, *absolute) {
                Symbol::ExternFns(ids) => self.extern_call(&ids, w),
                Symbol::Functions(fs) => self.function_call(&fs, w),
                Symbol::Action(id) if w.type_args.is_empty() => self.action_call(id, w),
                Symbol::Action(_) => {
                    self.refuse(Code::BadArguments, w.span, "an action has no type arguments", "remove them")
                }
                Symbol::Bad => Expr::bad(w.span),
                other => self.not_callable(name, &other),
            },
            Ast::Member(base, name) => self.method_call(base, name, w),
            _ => {
                let hint = "call a function or a method";
                self.refuse(Code::WrongKind, callee.span, "this expression cannot be called", hint)
            }
        }
    }

    fn not_callable(&mut self, name: &ast::Ident, symbol: &Symbol) -> Expr {
        let hint = match symbol {
            Symbol::Table(_) | Symbol::Instance(_) => format!("write {}.apply(...)", name.name),
            _ => "call a function, an action or a method".to_owned(),
        };
        let message = format!("`{}` is {} and cannot be called", name.name, symbol.describe());
        self.refuse(Code::WrongKind, name.span, message, hint)
    }

    fn action_call(&mut self, id: hir::ActionId, w: ArgumentList<'_>) -> Expr {
        if matches!(self.scope_kind, ScopeKind::Parser | ScopeKind::Function(_)) {
            let hint = "actions belong to controls; use a function";
            self.error(Code::BadStatement, w.span, "an action cannot be called outside of a control", hint);
        }
        let a = self.program.actions[id.0 as usize].clone();
        self.plain_call(Callee::Action(id), &a.name, &a.params, w)
    }

    fn extern_call(&mut self, ids: &[ExternFnId], w: ArgumentList<'_>) -> Expr {
        let fns = ids.iter().map(|i| (*i, self.program.extern_fns[i.0 as usize].clone()));
        let fns: Vec<_> = fns.collect();
        let Some((id, f)) = choose(&fns, |(_, f)| &f.params, w.args) else {
            return self.wrong_count(&fns[0].1.name, &fns[0].1.params, w);
        };
        if self.ambiguous(fns.iter().map(|(_, f)| &f.params), w) {
            return Expr::bad(w.span);
        }
        if &*f.name == "static_assert" {
            return self.static_assert(f, w);
        }
        if &*f.name == "verify" && f.params.len() == 2 && !matches!(self.scope_kind, ScopeKind::Parser) {
            let hint = "controls have no parser error; use `if`";
            self.error(Code::BadStatement, w.span, "verify cannot be called outside of a parser", hint);
        }
        self.generic_call(Callee::Extern(*id), f, w, Inference::default())
    }

    /// Reports a call that several overloads match.
    pub(super) fn ambiguous<'a>(
        &mut self,
        overloads: impl Iterator<Item = &'a Vec<hir::Param>>,
        w: ArgumentList<'_>,
    ) -> bool {
        let all_named = w.args.iter().all(|a| a.name.is_some()) && !w.args.is_empty();
        let count = overloads.filter(|ps| ps.len() == w.args.len()).count();
        if count > 1 && !all_named {
            let hint = "give the arguments by name";
            self.error(Code::DuplicateName, w.span, "ambiguous call: several declarations match", hint);
        }
        count > 1 && !all_named
    }

    /// Evaluates `static_assert` at compile time.
    fn static_assert(&mut self, f: &hir::ExternFn, w: ArgumentList<'_>) -> Expr {
        let span = w.span;
        let Some(bound) = self.bind(&f.name, &f.params, w, &mut Inference::default()) else {
            return Expr::bad(span);
        };
        let held = match bound.first() {
            Some(CallArg::In(e)) => e.as_const().map(|v| *v != 0.into()),
            _ => None,
        };
        let message = match bound.get(1) {
            Some(CallArg::In(Expr { kind: ExprKind::Text(t), .. })) => t.to_string(),
            _ => "static assertion failed".to_owned(),
        };
        match held {
            Some(true) => return Expr::constant(1.into(), Type::Bool, span),
            Some(false) => self.error(Code::UserError, span, message, "the program asserts this condition"),
            None => {
                let hint = "use constants";
                self.error(Code::NotConstant, span, "this condition is not known at compile time", hint);
            }
        }
        Expr::bad(span)
    }

    fn function_call(&mut self, overloads: &[Rc<FunctionDecl>], w: ArgumentList<'_>) -> Expr {
        let Some(f) = choose(overloads, |f| &f.params, w.args).cloned() else {
            let first = overloads[0].clone();
            return self.wrong_count(&first.name, &first.params, w);
        };
        let mut inference = Inference::default();
        let Some((args, types)) = self.typed_arguments(&f.name, &f.type_params, &f.params, w, &mut inference)
        else {
            return Expr::bad(w.span);
        };
        self.directionless_constants(&f.params, &args);
        let callee = Callee::Function(self.function_for(&f, &types, w.span));
        self.called(&callee);
        let call = Call { callee, type_args: Vec::new(), args, span: w.span };
        Expr { kind: ExprKind::Call(Box::new(call)), ty: inference.apply(&f.result), span: w.span }
    }

    /// Reports arguments without direction that are not known at compile time; those of actions may be.
    fn directionless_constants(&mut self, params: &[hir::Param], args: &[CallArg]) {
        for (p, a) in params.iter().zip(args) {
            if let (Direction::None, CallArg::In(e)) = (p.direction, a)
                && !self.is_known_after_instantiation(e)
                && !e.ty.is_bad()
            {
                let hint = format!("parameter `{}` has no direction; use a constant", p.name);
                self.error(Code::NotConstant, e.span, "this value is not known at compile time", hint);
            }
        }
    }

    /// Checks a call of an extern function, or of a method of an extern with the type arguments
    /// in `inference`.
    pub(super) fn generic_call(
        &mut self,
        callee: Callee,
        f: &hir::ExternFn,
        w: ArgumentList<'_>,
        mut inference: Inference,
    ) -> Expr {
        let span = w.span;
        let Some((args, type_args)) =
            self.typed_arguments(&f.name, &f.type_params, &f.params, w, &mut inference)
        else {
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

    /// Checks a call of a callee without type parameters and result.
    pub(super) fn plain_call(
        &mut self,
        callee: Callee,
        name: &str,
        params: &[hir::Param],
        w: ArgumentList<'_>,
    ) -> Expr {
        let span = w.span;
        let Some(args) = self.bind(name, params, w, &mut Inference::default()) else {
            return Expr::bad(span);
        };
        self.called(&callee);
        let call = Call { callee, type_args: Vec::new(), args, span };
        Expr { kind: ExprKind::Call(Box::new(call)), ty: Type::Void, span }
    }
}
