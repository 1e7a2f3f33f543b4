//! Calls: routines, parsers, controls, and externs.

use super::expression::{Place, copies_out};
use super::value::{Val, bytes, fit, num, zero};
use super::{Binding, Eval, Machine, Stop};
use crate::hir::{
    Call, CallArg, Callee, Constructed, CtorArg, Expr, ExprKind, InstId, Instance, Object, Ordered, Param,
    VarId,
};
use crate::types::Type;
use num_bigint::BigInt;

/// A parameter that is copied to a place of a type when the callee ends.
type Copy = (VarId, Place, Type);

impl Machine<'_> {
    pub(super) fn call(&mut self, c: &Call, ty: Option<&Type>) -> Eval<Val> {
        match &c.callee {
            Callee::Extern(id) => {
                let f = self.hir.extern_fns[id.0 as usize].clone();
                self.settled(&f.params, &c.args, |m, args| m.function(&f.name, &f.result, args))
            }
            Callee::Method { object, of, method } => {
                let e = &self.hir.externs[of.0 as usize];
                let f = e.methods[*method].clone();
                match self.object(*object) {
                    Some(Binding::PacketIn) => self.packet_in(&f.name, c, ty),
                    Some(Binding::PacketOut) => {
                        let [CallArg::In(e)] = &*c.args else { return self.skip("emit") };
                        let v = self.eval(e)?;
                        self.emit(&v, &e.ty);
                        Ok(Val::Nothing)
                    }
                    Some(Binding::Object(id, path)) => {
                        self.settled(&f.params, &c.args, |m, args| m.method(id, path, &e.name, &f.name, args))
                    }
                    _ => self.skip("a method of another object"),
                }
            }
            Callee::Function(id) => {
                let f = self.hir.functions[id.0 as usize].clone();
                self.routine(&f.params, &c.args, |m| m.stmts(&f.body))
            }
            Callee::Action(id) => {
                let f = self.hir.actions[id.0 as usize].clone();
                self.routine(&f.params, &c.args, |m| m.stmts(&f.body))
            }
            Callee::Apply(object) => self.apply(*object, &c.args),
            Callee::Table(t) => self.table(*t).map(|_| Val::Nothing),
            Callee::SetValid(h) | Callee::SetInvalid(h) => {
                let place = self.place(h)?;
                if let Some(Val::Header { valid, .. }) = self.at(&place) {
                    *valid = matches!(c.callee, Callee::SetValid(_));
                }
                self.no_other_member(&place);
                Ok(Val::Nothing)
            }
            Callee::Push { stack, count, front } => {
                let place = self.place(stack)?;
                let Type::Stack(t, _) = stack.ty.base() else { return self.skip("push of another value") };
                if let Some(Val::Stack { items, next }) = self.at(&place) {
                    let (n, len) = ((*count as usize).min(items.len()), items.len());
                    let new = std::iter::repeat_n(zero(t), n);
                    if *front {
                        items.splice(0..0, new);
                        items.truncate(len);
                        *next = (*next + n).min(len);
                    } else {
                        items.drain(..n);
                        items.extend(new);
                        *next = next.saturating_sub(n);
                    }
                }
                Ok(Val::Nothing)
            }
        }
    }

    /// Runs a body with its own copies of the parameters: "copy in, copy out".
    pub(super) fn routine(
        &mut self,
        params: &[Param],
        args: &Ordered<CallArg>,
        body: impl FnOnce(&mut Self) -> Eval<()>,
    ) -> Eval<Val> {
        let copies = self.bind(params, args)?;
        let ended = body(self);
        if ended.as_ref().err().is_none_or(copies_out) {
            self.copy_out(copies);
        }
        match ended {
            Ok(()) => Ok(Val::Nothing),
            Err(Stop::Return(v)) => Ok(v.unwrap_or(Val::Nothing)),
            Err(other) => Err(other),
        }
    }

    /// Evaluates each argument once, in the order of the source; returns the places of out and inout ones.
    fn bind(&mut self, params: &[Param], args: &Ordered<CallArg>) -> Eval<Vec<Copy>> {
        let (mut bound, mut copies) = (Vec::new(), Vec::new());
        for (i, a) in args.as_written() {
            let p = &params[i];
            let ty = a.expr().map_or(&p.ty, |e| &e.ty);
            let mut value = zero(ty);
            match a {
                CallArg::In(e) => value.assign(self.eval(e)?),
                CallArg::Out(e) | CallArg::InOut(e) => {
                    let place = self.place(e)?;
                    if matches!(a, CallArg::InOut(_)) {
                        value.assign(self.held(&place, ty));
                    }
                    copies.push((p.var, place, ty.clone()));
                }
                CallArg::Object(o) => {
                    let Some(o) = self.object(*o) else { return self.skip("an unknown object") };
                    bound.push((p.var, o));
                    continue;
                }
                CallArg::Skip => {}
            }
            bound.push((p.var, Binding::Value(value)));
        }
        self.vars.extend(bound);
        Ok(copies)
    }

    fn copy_out(&mut self, copies: Vec<Copy>) {
        for (var, place, ty) in copies {
            if let Some(Binding::Value(v)) = self.vars.get(&var) {
                let v = v.clone();
                self.assign(&place, v, &ty);
            }
        }
    }

    /// Calls an extern with arguments that are constants and its parameters.
    fn settled(
        &mut self,
        params: &[Param],
        args: &Ordered<CallArg>,
        call: impl FnOnce(&mut Self, &[CallArg]) -> Eval<Val>,
    ) -> Eval<Val> {
        let copies = self.bind(params, args)?;
        let settled = |(p, a): (&Param, &CallArg)| match a {
            CallArg::In(e) if e.as_const().is_some() => a.clone(),
            _ => a.clone().with_expr(ExprKind::Var(p.var)),
        };
        let result = call(self, &params.iter().zip(args.iter()).map(settled).collect::<Vec<_>>())?;
        self.copy_out(copies);
        Ok(result)
    }

    fn apply(&mut self, object: Object, args: &Ordered<CallArg>) -> Eval<Val> {
        let Some(Binding::Object(id, path)) = self.object(object) else {
            return self.skip("apply of another object");
        };
        let inst = self.hir.instances[id.0 as usize].clone();
        let (params, parser) = match inst.what {
            Constructed::Parser(p) => (self.hir.parsers[p.0 as usize].params.clone(), true),
            Constructed::Control(c) => (self.hir.controls[c.0 as usize].params.clone(), false),
            _ => return self.skip("apply of another object"),
        };
        self.routine(&params, args, |m| {
            let saved = std::mem::replace(&mut m.path, path);
            let ended = if parser { m.parser(&inst, id) } else { m.control(&inst, id) };
            m.path = saved;
            ended
        })
    }

    /// Binds the parameters of an instance's constructor and enters the instance.
    pub(super) fn construct(&mut self, params: &[Param], inst: &Instance, id: InstId) -> Eval<()> {
        let mut bound = Vec::new();
        for (p, a) in params.iter().zip(&inst.args) {
            match a {
                CtorArg::Value(e) => bound.push((p.var, Binding::Value(self.eval(e)?))),
                CtorArg::Object(o) => bound.extend(self.object(*o).map(|o| (p.var, o))),
                CtorArg::Missing => {}
            }
        }
        self.vars.extend(bound);
        self.path.push(id);
        Ok(())
    }

    pub(super) fn control(&mut self, inst: &Instance, id: InstId) -> Eval<()> {
        let Constructed::Control(c) = inst.what else { return self.skip("another object") };
        let control = self.hir.controls[c.0 as usize].clone();
        self.construct(&control.ctor_params, inst, id)?;
        self.stmts(&control.locals)?;
        self.stmts(&control.body)
    }

    pub(super) fn object(&self, o: Object) -> Option<Binding> {
        match o {
            Object::Instance(id) => {
                let path = if self.is_global(id) { Vec::new() } else { self.path.clone() };
                Some(Binding::Object(id, path))
            }
            Object::Param(v) => self.vars.get(&v).filter(|b| !matches!(b, Binding::Value(_))).cloned(),
        }
    }

    /// Whether no parser and no control declares the instance.
    fn is_global(&self, id: InstId) -> bool {
        let span = self.hir.instances[id.0 as usize].span;
        let stmts = self.hir.controls.iter().flat_map(|c| c.locals.iter().chain(&c.body));
        let stmts = stmts.chain(self.hir.parsers.iter().flat_map(|p| &p.locals));
        let inside =
            |s: crate::source::Span| s.file == span.file && s.start <= span.start && span.end <= s.end;
        !stmts.into_iter().any(|s| inside(s.span))
    }

    fn numbers(&mut self, args: &[CallArg]) -> Eval<Vec<BigInt>> {
        args.iter().filter_map(CallArg::expr).map(|e| Ok(self.eval(e)?.number())).collect()
    }

    fn function(&mut self, name: &str, result: &Type, args: &[CallArg]) -> Eval<Val> {
        match (name, args) {
            ("mark_to_drop", []) if self.standard.is_some() => {
                self.set_standard("egress_spec", 511);
                self.set_standard("mcast_grp", 0);
            }
            ("mark_to_drop", []) => self.pass = false,
            ("mark_to_pass", []) => self.pass = true,
            ("mark_to_drop", [CallArg::InOut(e)]) => {
                let (place, Type::Composite(c)) = (self.place(e)?, e.ty.base()) else {
                    return self.skip("mark_to_drop of another value");
                };
                for (field, v) in [("egress_spec", 511), ("mcast_grp", 0)] {
                    let at = c.fields.iter().position(|(n, _)| &**n == field).unwrap_or(usize::MAX);
                    if let Some(f) = self.at(&place).and_then(|v| v.field_mut(at)) {
                        *f = num(v);
                    }
                }
            }
            ("verify", [CallArg::In(check), CallArg::In(error)]) => {
                let (ok, error) = (self.eval(check)?.truth(), self.eval(error)?.index());
                if !ok {
                    return Err(Stop::Reject(error));
                }
            }
            ("truncate", [CallArg::In(len)]) => self.truncate = Some(self.eval(len)?.index()),
            ("assert", [CallArg::In(check)]) => {
                if !self.eval(check)?.truth() {
                    return Err(Stop::Drop);
                }
            }
            ("clone", [_, CallArg::In(session)]) => {
                self.asked.clone = Some((self.eval(session)?.index(), None));
            }
            ("clone_preserving_field_list", [_, CallArg::In(session), CallArg::In(list)]) => {
                self.asked.clone = Some((self.eval(session)?.index(), Some(self.eval(list)?.index())));
            }
            ("resubmit_preserving_field_list", [CallArg::In(list)]) => {
                self.asked.resubmit = Some(Some(self.eval(list)?.index()));
            }
            ("recirculate_preserving_field_list", [CallArg::In(list)]) => {
                self.asked.recirculate = Some(Some(self.eval(list)?.index()));
            }
            ("assume" | "log_msg" | "digest", _) => {}
            ("static_assert", _) => return Ok(num(1)),
            ("get_direction" | "get_vm" | "vm_info_status", []) => return Ok(num(0)),
            ("csum_replace2" | "csum_replace4", _) => {
                let n = self.numbers(args)?;
                let word = |v: &BigInt, i: u32| (v >> (16 * i)) & BigInt::from(0xffff);
                let not = |v: BigInt| BigInt::from(0xffff) - v;
                let mut sum = not(n[0].clone());
                for i in 0..2 {
                    // The upper word of a 16-bit number is 0, and its complement leaves the sum unchanged.
                    sum += not(word(&n[1], i)) + word(&n[2], i);
                }
                return Ok(num(not(fold(sum))));
            }
            ("verify_checksum" | "update_checksum", [c, data, sum, algorithm]) => {
                self.checksum(name.starts_with("update"), false, [c, data, sum, algorithm])?;
            }
            ("verify_checksum_with_payload" | "update_checksum_with_payload", [c, data, sum, algorithm]) => {
                self.checksum(name.starts_with("update"), true, [c, data, sum, algorithm])?;
            }
            _ => match self.information.iter().find(|(n, _)| *n == name) {
                Some((_, v)) => return Ok(num(fit(&BigInt::from(*v), result))),
                None => return self.skip(name),
            },
        }
        Ok(Val::Nothing)
    }

    /// Verifies or updates an Internet checksum (RFC 1071).
    fn checksum(&mut self, update: bool, payload: bool, args: [&CallArg; 4]) -> Eval<()> {
        let [CallArg::In(condition), CallArg::In(data), sum, CallArg::In(algorithm)] = args else {
            return self.skip("a checksum");
        };
        let Some(sum) = sum.expr() else { return self.skip("a checksum") };
        let named = match (algorithm.ty.base(), algorithm.as_const()) {
            (Type::Enum(e), Some(n)) => e.members.iter().find(|(_, v)| v == n).map(|(n, _)| n.to_string()),
            _ => None,
        };
        if !self.eval(condition)?.truth() {
            return Ok(());
        }
        if named.as_deref() != Some("csum16") {
            return self.skip("another algorithm");
        }
        let mut bits = Vec::new();
        self.eval(data)?.bits(&data.ty, &mut bits);
        let mut all = bytes(&bits);
        if payload {
            all.extend(&self.packet[self.cursor.min(self.packet.len())..]);
        }
        let words = all.chunks(2).map(|c| u32::from(c[0]) << 8 | c.get(1).map_or(0, |b| u32::from(*b)));
        let value = BigInt::from(0xffff) - fold(words.map(BigInt::from).sum());
        if update {
            let place = self.place(sum)?;
            self.assign(&place, num(fit(&value, &sum.ty)), &sum.ty);
        } else if self.eval(sum)?.number() != fit(&value, &sum.ty) {
            self.set_standard("checksum_error", 1);
        }
        Ok(())
    }

    fn method(&mut self, id: InstId, path: Vec<InstId>, of: &str, name: &str, args: &[CallArg]) -> Eval<Val> {
        let inst = self.hir.instances[id.0 as usize].clone();
        let Type::Extern(e) = &inst.ty else { return self.skip("a method") };
        match (of, name, args) {
            ("Register" | "register", ..) => {
                let Some(CtorArg::Value(size)) = inst.args.first() else { return self.skip("a register") };
                let (size, element) = (self.eval(size)?.index(), e.args[0].clone());
                if size > 1 << 16 || element.scalar_width().is_none() {
                    return self.skip("a large register");
                }
                let cells = |m: &mut Self| -> Vec<BigInt> {
                    let new = || vec![BigInt::default(); size];
                    m.registers.entry((id, path.clone())).or_insert_with(new).clone()
                };
                match (name, args) {
                    ("read", [CallArg::In(i)]) => {
                        let i = self.eval(i)?.index();
                        return Ok(num(cells(self).get(i).cloned().unwrap_or_default()));
                    }
                    ("read", [CallArg::Out(to), CallArg::In(i)]) => {
                        let i = self.eval(i)?.index();
                        let v = cells(self).get(i).cloned().unwrap_or_default();
                        self.assign_number(to, v)?;
                    }
                    ("write", [CallArg::In(i), CallArg::In(v)]) => {
                        let (i, v) = (self.eval(i)?.index(), self.eval(v)?.number());
                        let mut all = cells(self);
                        if let Some(c) = all.get_mut(i) {
                            *c = v;
                        }
                        self.registers.insert((id, path), all);
                    }
                    _ => return self.skip("a method of a register"),
                }
            }
            ("Counter" | "CounterArray" | "counter" | "direct_counter", ..) => {
                self.numbers(args)?;
            }
            _ => return self.skip(of),
        }
        Ok(Val::Nothing)
    }

    fn assign_number(&mut self, to: &Expr, v: BigInt) -> Eval<()> {
        let place = self.place(to)?;
        self.assign(&place, num(fit(&v, &to.ty)), &to.ty);
        Ok(())
    }
}

/// Adds the carries of a sum of 16-bit words.
fn fold(mut sum: BigInt) -> BigInt {
    while sum.bits() > 16 {
        sum = (&sum >> 16) + (&sum & BigInt::from(0xffff));
    }
    sum
}
