//! Calls: the lowering inlines every callee with a body, with copy-in and copy-out as the language
//! specifies.

use super::lvalue::LValue;
use super::storage::{Storage, Value};
use super::{Binding, BoundObject, InlinedCallee, Lowering};
use crate::ast::Direction;
use crate::hir::{self, Call, CallArg, Callee, Constructed, CtorArg, InstId, Object, Ordered, Param};
use crate::ir::Opnd;
use crate::lexer::Name;
use crate::source::Span;
use crate::types::Type;
use p4shield_tables::trace::PointKind;
use std::collections::HashSet;
use std::rc::Rc;

/// Copies of out and inout parameters to arguments at the end of a call.
pub(super) type Copies = Vec<(Rc<Storage>, LValue)>;

impl Lowering<'_> {
    /// Lowers a call; `ty` is its type if the result is used.
    pub(super) fn call(&mut self, c: &Call, ty: Option<&Type>) -> Option<Value> {
        match &c.callee {
            Callee::Extern(id) => {
                let f = &self.hir.extern_fns[id.0 as usize];
                self.trace(PointKind::Extern, Some(&f.name), c.span, &[]);
                self.with_settled(c, &f.params, |l, c| l.extern_call(f, c))
            }
            Callee::Method { object, of, method } => {
                let e = &self.hir.externs[of.0 as usize];
                let f = &e.methods[*method];
                match &*e.name {
                    // They evaluate each argument once themselves: a header in them is no copy.
                    "packet_in" | "packet_out" => self.method(*object, &e.name, f, c, ty),
                    name => {
                        self.trace(PointKind::Extern, Some(&format!("{name}.{}", f.name)), c.span, &[]);
                        self.with_settled(c, &f.params, |l, c| l.method(*object, name, f, c, ty))
                    }
                }
            }
            Callee::Function(id) => {
                let f = self.hir.functions[id.0 as usize].clone();
                self.routine(&f, &c.args, None)
            }
            Callee::Action(id) => {
                self.claim_action(*id, &self.path.clone());
                let a = self.hir.actions[id.0 as usize].clone();
                self.trace(PointKind::Call, Some(&a.name), c.span, &[]);
                self.routine(&a, &c.args, None)
            }
            Callee::Apply(object) => {
                self.apply_object(*object, &c.args, c.span);
                None
            }
            Callee::Table(t) => {
                self.apply_table(*t, c.span);
                None
            }
            Callee::SetValid(h) | Callee::SetInvalid(h) => {
                let valid = matches!(c.callee, Callee::SetValid(_));
                if let Some(header) = self.lvalue(h) {
                    self.for_option(&header.options, |l, s| {
                        if let Storage::Header(h) = &**s {
                            l.b.write(h.valid, Opnd::C(u64::from(valid)));
                        }
                    });
                    // `setInvalid` also invalidates whichever member of the union is valid.
                    self.invalidate_siblings(&header);
                }
                None
            }
            Callee::Push { stack, count, front } => {
                self.push(stack, *count, *front);
                None
            }
        }
    }

    /// Inlines an action or a function. `data` are the storages of parameters without
    /// direction, if a table supplies them; `args` then are the arguments of the others.
    pub(super) fn routine(
        &mut self,
        r: &hir::Routine,
        args: &Ordered<CallArg>,
        data: Option<&[Rc<Storage>]>,
    ) -> Option<Value> {
        let is_data = |p: &&Param| data.is_some() && p.direction == Direction::None;
        let (stored, given): (Vec<&Param>, Vec<&Param>) = r.params.iter().partition(is_data);
        let stored = stored.into_iter().zip(data.into_iter().flatten());
        let mut bindings: Vec<_> = stored.map(|(p, s)| (p.var, Binding::Storage(s.clone()))).collect();
        let mut copies = Vec::new();
        for (i, arg) in args.as_written() {
            bindings.extend(given.get(i).and_then(|p| self.bind(p, arg, &mut copies)));
        }
        // Only now: an argument may call the same routine.
        self.env.extend(bindings);
        let result = (r.result != Type::Void).then(|| self.storage(&r.result));
        self.inline(&r.name, result.clone(), copies, |l| l.stmts(&r.body));
        result.map(|s| self.load(&s))
    }

    /// Lowers a body whose `return` jumps to its end, then the copies to out and inout arguments.
    fn inline(
        &mut self,
        name: &Name,
        result: Option<Rc<Storage>>,
        copy_out: Copies,
        body: impl FnOnce(&mut Self),
    ) {
        let end = self.b.new_block(&format!("end of {name}"));
        self.scopes.push(InlinedCallee { end, result, copy_out: copy_out.clone() });
        self.or_reject(&copy_out, body);
        self.b.jump(end);
        self.scopes.pop();
        self.b.switch_to(end);
        self.copy_out(&copy_out);
    }

    /// Lowers the body of a callee. Where it rejects the packet, the copies to out and inout arguments
    /// precede the caller's reject: "The sub-parser's reject state is identified with the reject state of
    /// the current parser", and the architecture may continue with what the parser extracted so far.
    fn or_reject(&mut self, copy_out: &[(Rc<Storage>, LValue)], body: impl FnOnce(&mut Self)) {
        if copy_out.is_empty() {
            return body(self);
        }
        let rejected = self.b.new_block("callee rejects");
        let outer = std::mem::replace(&mut self.reject, rejected);
        body(self);
        self.reject = outer;
        let end = self.b.at;
        self.b.switch_to(rejected);
        if !self.b.is_dead() {
            self.copy_out(copy_out);
            self.b.jump(outer);
        }
        self.b.switch_to(end);
    }

    /// Evaluates an argument; returns the parameter and what it refers to.
    fn bind(&mut self, p: &Param, arg: &CallArg, copies: &mut Copies) -> Option<(hir::VarId, Binding)> {
        let binding = match arg {
            CallArg::Object(o) => Binding::Object(self.object(*o)?),
            CallArg::In(e) if p.ty.contains(&|t| *t == Type::InfInt) => {
                Binding::Constant(self.constant_argument(e))
            }
            CallArg::In(e) => {
                let v = self.value(e);
                let s = self.storage(&p.ty);
                self.reset(&s);
                self.store(&s, &v);
                Binding::Storage(s)
            }
            CallArg::Out(e) | CallArg::InOut(e) => {
                let s = self.storage(&p.ty);
                self.reset(&s);
                if let Some(lvalue) = self.lvalue(e) {
                    if matches!(arg, CallArg::InOut(_)) {
                        let v = self.load_lvalue(&lvalue, &p.ty);
                        self.store(&s, &v);
                    }
                    copies.push((s.clone(), lvalue));
                }
                Binding::Storage(s)
            }
            CallArg::Skip => {
                let s = self.storage(&p.ty);
                self.reset(&s);
                Binding::Storage(s)
            }
        };
        Some((p.var, binding))
    }

    /// Binds the parameters of a parser or control. Its body sees nothing else of the caller, so an inout
    /// parameter can be the argument itself, unless another argument is a part of the same variable or may
    /// change it. Copies of all headers in and out of each control would make large programs larger.
    fn bind_all(&mut self, params: &[Param], args: &Ordered<CallArg>, copies: &mut Copies) {
        let roots: Vec<Option<hir::VarId>> = args.iter().map(root).collect();
        let changes = args.iter().any(CallArg::has_effect);
        let mut bindings = Vec::new();
        for (i, a) in args.as_written() {
            let Some(p) = params.get(i) else { continue };
            let alone =
                !changes && roots[i].is_some() && roots.iter().filter(|r| **r == roots[i]).count() == 1;
            if let CallArg::InOut(e) = a
                && alone
                && let Some(storage) = self.storage_of(e)
            {
                bindings.push((p.var, Binding::Storage(storage)));
                continue;
            }
            bindings.extend(self.bind(p, a, copies));
        }
        self.env.extend(bindings);
    }

    /// Lowers the call of an extern. Its code evaluates the arguments as it needs them; if the evaluation of
    /// one may change another, each is evaluated before the call, in the order of the source.
    fn with_settled(
        &mut self,
        c: &Call,
        params: &[Param],
        call: impl FnOnce(&mut Self, &Call) -> Option<Value>,
    ) -> Option<Value> {
        if !c.args.iter().any(CallArg::has_effect) {
            return call(self, c);
        }
        let (mut bindings, mut copies) = (Vec::new(), Vec::new());
        for (i, arg) in c.args.as_written() {
            if let (Some(p), true) = (params.get(i), arg.is_runtime()) {
                // A generic parameter gets the type of its argument.
                let ty = arg.expr().map_or(&p.ty, |e| &e.ty).clone();
                bindings.extend(self.bind(&Param { ty, ..p.clone() }, arg, &mut copies));
            }
        }
        let held: HashSet<hir::VarId> = bindings.iter().map(|(var, _)| *var).collect();
        self.env.extend(bindings);
        let mut vars = params.iter().map(|p| p.var);
        let args = c.args.clone().map(|a| match vars.next() {
            Some(var) if held.contains(&var) => a.with_expr(hir::ExprKind::Var(var)),
            _ => a,
        });
        let result = call(self, &Call { args, ..c.clone() });
        self.copy_out(&copies);
        result
    }

    /// Returns an argument that contains numbers without a width; reports parts that are known only at run
    /// time, because its value must not change while the body runs.
    fn constant_argument(&mut self, e: &hir::Expr) -> hir::Expr {
        let e = self.resolved(e);
        let open = |e: &hir::Expr| matches!(e.kind, hir::ExprKind::Var(_) | hir::ExprKind::Call(_));
        if e.any(&open) {
            self.number(&e);
        }
        e
    }

    pub(super) fn object(&self, o: Object) -> Option<BoundObject> {
        match o {
            Object::Instance(id) => {
                // An instance belongs to the control it is declared in; top-level instances exist once.
                let path = if self.is_global(id) { Rc::from([]) } else { self.path.clone().into() };
                Some(BoundObject::Instance(id, path))
            }
            Object::Param(v) => match self.env.get(&v) {
                Some(Binding::Object(o)) => Some(o.clone()),
                _ => None,
            },
        }
    }

    /// Whether an instance is declared outside of all parsers and controls.
    pub(super) fn is_global(&self, id: InstId) -> bool {
        let inst = &self.hir.instances[id.0 as usize];
        let within = |s: Span, o: Span| o.file == s.file && o.start <= s.start && s.end <= o.end;
        let local = |stmts: &[hir::Stmt]| stmts.iter().any(|s| within(inst.span, s.span));
        !self.hir.controls.iter().any(|c| local(&c.locals) || local(&c.body))
            && !self.hir.parsers.iter().any(|p| local(&p.locals))
    }

    /// Inlines a control or a parser.
    fn apply_object(&mut self, object: Object, args: &Ordered<CallArg>, span: Span) {
        let Some(BoundObject::Instance(id, path)) = self.object(object) else {
            return self.unsupported(span, "`apply` of this object");
        };
        let inst = self.hir.instances[id.0 as usize].clone();
        match inst.what {
            Constructed::Control(c) => {
                let control = self.hir.controls[c.0 as usize].clone();
                let mut copies = Vec::new();
                self.bind_all(&control.params, args, &mut copies);
                let saved = std::mem::replace(&mut self.path, path.to_vec());
                self.control(&control, &inst, copies);
                self.path = saved;
            }
            Constructed::Parser(p) => {
                let parser = self.hir.parsers[p.0 as usize].clone();
                let mut copies = Vec::new();
                self.bind_all(&parser.params, args, &mut copies);
                let saved = std::mem::replace(&mut self.path, path.to_vec());
                self.bind_ctor(&parser.ctor_params, &inst.args);
                self.enter(&inst);
                self.or_reject(&copies, |l| l.parse_states(&parser));
                self.path = saved;
                self.copy_out(&copies);
            }
            _ => self.unsupported(span, "`apply` of this object"),
        }
    }

    /// Inlines a control whose parameters are bound.
    pub(super) fn control(&mut self, control: &hir::Control, inst: &hir::Instance, copies: Copies) {
        self.bind_ctor(&control.ctor_params, &inst.args);
        self.enter(inst);
        self.inline(&control.name, None, copies, |l| {
            l.trace(PointKind::Control, Some(&control.name), inst.span, &[]);
            l.stmts(&control.locals);
            l.stmts(&control.body);
        });
        self.path.pop();
    }

    pub(super) fn bind_ctor(&mut self, params: &[Param], args: &[CtorArg]) {
        let mut bindings = Vec::new();
        for (p, a) in params.iter().zip(args) {
            let binding = match a {
                CtorArg::Value(e) => match &e.kind {
                    hir::ExprKind::Var(v) => self.env.get(v).cloned(),
                    // Now: its parameters may have other values when the body is lowered.
                    _ => Some(Binding::Constant(self.resolved(e))),
                },
                CtorArg::Object(o) => self.object(*o).map(Binding::Object),
                CtorArg::Missing => None,
            };
            bindings.extend(binding.map(|b| (p.var, b)));
        }
        self.env.extend(bindings);
    }

    /// Returns the number of a constructor argument.
    pub(super) fn ctor_number(&mut self, a: &CtorArg) -> Option<num_bigint::BigInt> {
        if let CtorArg::Value(e) = a { self.known(e) } else { None }
    }
}

/// Returns the variable that an out or inout argument is a plain part of, if any.
fn root(a: &CallArg) -> Option<hir::VarId> {
    let (CallArg::Out(e) | CallArg::InOut(e)) = a else { return None };
    let mut e = e;
    loop {
        match &e.kind {
            hir::ExprKind::Var(v) => return Some(*v),
            // An assignment to a member of a union must invalidate the others.
            hir::ExprKind::Field(b, _) if !b.ty.is_union() => e = b,
            _ => return None,
        }
    }
}
