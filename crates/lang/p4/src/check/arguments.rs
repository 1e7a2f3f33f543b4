//! Binding of arguments to parameters.

use super::Checker;
use super::argument_list::{ArgumentList, count};
use super::infer::Inference;
use crate::ast::{self, Direction};
use crate::diagnostics::{Code, Diagnostic};
use crate::hir::{self, CallArg, Expr, Object, Ordered};
use crate::source::Span;
use crate::types::Type;

impl Checker<'_> {
    pub(super) fn wrong_count(&mut self, name: &str, params: &[hir::Param], w: ArgumentList<'_>) -> Expr {
        let names: Vec<&str> = params.iter().map(|p| &*p.name).collect();
        let message = format!("`{name}` takes {}, found {}", count(params.len(), "argument"), w.args.len());
        let hint = if names.is_empty() {
            "write ()".to_owned()
        } else {
            format!("the parameters are {}", names.join(", "))
        };
        self.refuse(Code::BadArguments, w.span, message, hint)
    }

    /// Binds arguments to parameters: by position, by name, with defaults. Reports mismatches.
    pub(super) fn bind(
        &mut self,
        name: &str,
        params: &[hir::Param],
        w: ArgumentList<'_>,
        inference: &mut Inference,
    ) -> Option<Ordered<CallArg>> {
        let order = self.order_arguments(name, params, w)?;
        let mut out = Vec::with_capacity(params.len());
        let mut ok = true;
        for (p, place) in params.iter().zip(order) {
            let bound = match place.map(|at| &w.args[at]) {
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
            out.extend(bound.map(|b| (place, b)));
        }
        if !ok {
            return None;
        }
        // Later arguments may have determined the types of earlier ones.
        let mut finish = |p: &hir::Param, a: CallArg| match a {
            CallArg::In(e) if p.ty.is_open() && !inference.apply(&p.ty).is_open() => {
                let e = self.coerce(e, &inference.apply(&p.ty));
                (!e.ty.is_bad()).then_some(CallArg::In(e))
            }
            other => Some(other),
        };
        let finished = params.iter().zip(out).map(|(p, (place, a))| Some((place, finish(p, a)?)));
        let out = Ordered::by_place(finished.collect::<Option<_>>()?);
        let fit = params.iter().zip(out.iter()).all(|(p, a)| self.runtime_argument(p, a));
        fit.then_some(out)
    }

    /// Whether the argument has a run-time value, for a parameter with a direction whose type
    /// the argument determines; reports it if not.
    fn runtime_argument(&mut self, p: &hir::Param, a: &CallArg) -> bool {
        let CallArg::In(e) = a else { return true };
        if !p.ty.is_open() || p.direction == Direction::None {
            return true;
        }
        match &e.ty {
            Type::Composite(c) if c.is_anonymous() => {
                let hint = "prefix it with its type, as in (S) {...}";
                self.refuse(Code::CannotInfer, e.span, "cannot infer the type of this struct", hint)
            }
            Type::InfInt => {
                let hint = "give the number a width, for example 32w1";
                self.refuse(Code::CannotInfer, e.span, "cannot infer the width of this number", hint)
            }
            Type::Text | Type::MatchKind | Type::List(_) | Type::Extern(_) => {
                let message = format!("a parameter of type {} cannot have a direction", e.ty);
                let d = Diagnostic::new(Code::BadType, p.span, message).hint("pass another value");
                self.sink.add(d.related(e.span, "this argument determines the type"));
                false
            }
            _ => true,
        }
    }

    /// Returns the place in the list of the argument of each parameter, `None` if it is omitted.
    pub(super) fn order_arguments(
        &mut self,
        name: &str,
        params: &[hir::Param],
        w: ArgumentList<'_>,
    ) -> Option<Vec<Option<usize>>> {
        let mut order: Vec<Option<usize>> = vec![None; params.len()];
        let named = w.args.iter().filter(|a| a.name.is_some()).count();
        if named > 0 && named < w.args.len() {
            let hint = "give all arguments by name, or none";
            return self.refuse(Code::BadArguments, w.span, "mixed named and positional arguments", hint);
        }
        for (i, arg) in w.args.iter().enumerate() {
            let at = match &arg.name {
                None => i,
                Some(n) => match params.iter().position(|p| p.name == n.name) {
                    Some(at) => at,
                    None => {
                        let message = format!("`{name}` has no parameter `{}`", n.name);
                        return self.refuse(Code::BadArguments, n.span, message, "check its declaration");
                    }
                },
            };
            match order.get_mut(at) {
                Some(slot @ None) => *slot = Some(i),
                Some(_) => {
                    let hint = "remove one of them";
                    return self.refuse(Code::BadArguments, arg.span, "duplicate argument", hint);
                }
                None => {
                    self.wrong_count(name, params, w);
                    return None;
                }
            }
        }
        let complete =
            params.iter().zip(&order).all(|(p, a)| a.is_some() || p.default.is_some() || p.optional);
        if !complete {
            self.wrong_count(name, params, w);
            return None;
        }
        Some(order)
    }

    fn bind_one(&mut self, p: &hir::Param, arg: &ast::Arg, inference: &mut Inference) -> Option<CallArg> {
        let Some(value) = &arg.value else {
            if p.direction != Direction::Out {
                let message = "`_` is only for out parameters";
                return self.refuse(Code::BadArguments, arg.span, message, "pass a value");
            }
            return Some(CallArg::Skip);
        };
        if let Some(made) = self.constructed_by(value) {
            made?;
            let hint = "declare it and pass its name";
            return self.refuse(Code::BadInstance, arg.span, "an instance cannot be created here", hint);
        }
        if let Some(object) = self.object_named_by(value) {
            return self.object_argument(p, object, arg.span, inference).then_some(CallArg::Object(object));
        }
        let (e, want) = self.argument(p, value, inference)?;
        if want.is_bad()
            && matches!(p.ty, Type::Var(..))
            && e.ty == Type::InfInt
            && p.direction != Direction::None
        {
            let hint = "replace `_` by the type where the extern is instantiated";
            return self.refuse(Code::CannotInfer, e.span, "cannot infer the type of this argument", hint);
        }
        if want.is_open() {
            if matches!(p.direction, Direction::None | Direction::In) {
                return Some(CallArg::In(e));
            }
            let message = format!("expected {want}, found {}", e.ty);
            let hint = "pass a variable of the parameter's type";
            return self.refuse(Code::TypeMismatch, e.span, message, hint);
        }
        match p.direction {
            Direction::None | Direction::In => {
                let e = self.coerce(e, &want);
                (!e.ty.is_bad()).then_some(CallArg::In(e))
            }
            Direction::Out | Direction::InOut => {
                if !self.assignable_as(value, &e) {
                    return None;
                }
                if e.ty != want {
                    let message = format!("expected {want}, found {}", e.ty);
                    let hint = "out and inout arguments must have exactly the parameter's type";
                    return self.refuse(Code::TypeMismatch, e.span, message, hint);
                }
                Some(if p.direction == Direction::Out { CallArg::Out(e) } else { CallArg::InOut(e) })
            }
        }
    }

    /// Checks the value for a parameter and infers type arguments from it; also returns the
    /// parameter's type.
    pub(super) fn argument(
        &mut self,
        p: &hir::Param,
        value: &ast::Expr,
        inference: &mut Inference,
    ) -> Option<(Expr, Type)> {
        let want = inference.apply(&p.ty);
        let e = self.expr(value, Some(&want).filter(|t| !t.is_open()));
        if e.ty.is_bad() {
            return None;
        }
        inference.learn(&p.ty, &e.ty);
        let want = inference.apply(&p.ty);
        Some((e, want))
    }

    /// Like [`Self::argument`], for an object: whether its type matches.
    pub(super) fn object_argument(
        &mut self,
        p: &hir::Param,
        object: Object,
        span: Span,
        inference: &mut Inference,
    ) -> bool {
        let have = self.object_type_of(object);
        inference.learn(&p.ty, &have);
        self.fits_object(&inference.apply(&p.ty), &have, span)
    }
}

/// Chooses the overload for these arguments, by number and names; prefers one that needs no default.
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
