//! Calls: the lowering inlines every callee with a body, with copy-in and copy-out as the language
//! specifies.

use super::storage::Value;
use super::{Binding, BoundObject, InlinedCallee, Lowering};
use crate::ast::Direction;
use crate::hir::{self, Call, CallArg, Callee, Constructed, CtorArg, InstId, Object, Param};
use crate::ir::Opnd;
use crate::lexer::Name;
use crate::source::Span;
use crate::types::Type;
use std::rc::Rc;

impl Lowering<'_> {
    /// Lowers a call; `ty` is its type if the result is used.
    pub(super) fn call(&mut self, c: &Call, ty: Option<&Type>) -> Option<Value> {
        match &c.callee {
            Callee::Extern(id) => {
                let f = &self.hir.extern_fns[id.0 as usize];
                self.extern_call(f, c)
            }
            Callee::Method { object, of, method } => {
                let e = &self.hir.externs[of.0 as usize];
                self.method(*object, &e.name, &e.methods[*method], c, ty)
            }
            Callee::Function(id) => {
                let f = self.hir.functions[id.0 as usize].clone();
                self.routine(&f, &c.args, None)
            }
            Callee::Action(id) => {
                let a = self.hir.actions[id.0 as usize].clone();
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
                if let Some(options) = self.options(h) {
                    self.for_option(&options, |l, s| {
                        if let super::storage::Storage::Header(h) = &**s {
                            l.b.write(h.valid, Opnd::C(u64::from(valid)));
                        }
                    });
                    // `setInvalid` also invalidates whichever member of the union is valid.
                    self.only_member(h, Opnd::C(1));
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
        args: &[CallArg],
        data: Option<&[Rc<super::storage::Storage>]>,
    ) -> Option<Value> {
        let mut data = data.map(<[_]>::iter);
        let mut args = args.iter();
        let mut copies = Vec::new();
        let mut bindings = Vec::new();
        for p in &r.params {
            if p.direction == Direction::None
                && let Some(data) = &mut data
            {
                if let Some(s) = data.next() {
                    bindings.push((p.var, Binding::Storage(s.clone())));
                }
                continue;
            }
            if let Some(arg) = args.next() {
                bindings.extend(self.bind(p, arg, &mut copies));
            }
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
        result: Option<Rc<super::storage::Storage>>,
        copy_out: Vec<(Rc<super::storage::Storage>, super::lvalue::LValue)>,
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
    fn or_reject(
        &mut self,
        copy_out: &[(Rc<super::storage::Storage>, super::lvalue::LValue)],
        body: impl FnOnce(&mut Self),
    ) {
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
    fn bind(
        &mut self,
        p: &Param,
        arg: &CallArg,
        copies: &mut Vec<(Rc<super::storage::Storage>, super::lvalue::LValue)>,
    ) -> Option<(hir::VarId, Binding)> {
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
                if matches!(arg, CallArg::InOut(_)) {
                    let v = self.value(e);
                    self.store(&s, &v);
                }
                if let Some(lvalue) = self.lvalue(e) {
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
    /// parameter can be the argument itself, unless another argument is a part of the same variable.
    /// Copies of all headers in and out of each control would make large programs larger.
    fn bind_all(
        &mut self,
        params: &[Param],
        args: &[CallArg],
        copies: &mut Vec<(Rc<super::storage::Storage>, super::lvalue::LValue)>,
    ) {
        let roots: Vec<Option<hir::VarId>> = args.iter().map(root).collect();
        let mut bindings = Vec::new();
        for (i, (p, a)) in params.iter().zip(args).enumerate() {
            let alone = roots[i].is_some() && roots.iter().filter(|r| **r == roots[i]).count() == 1;
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
    fn apply_object(&mut self, object: Object, args: &[CallArg], span: Span) {
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
    pub(super) fn control(
        &mut self,
        control: &hir::Control,
        inst: &hir::Instance,
        copies: Vec<(Rc<super::storage::Storage>, super::lvalue::LValue)>,
    ) {
        self.bind_ctor(&control.ctor_params, &inst.args);
        self.enter(inst);
        self.inline(&control.name, None, copies, |l| {
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
