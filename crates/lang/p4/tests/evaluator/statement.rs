//! Execution of statements and tables.

use super::value::{Val, num, unsigned, zero};
use super::{Binding, Eval, Machine, Stop};
use crate::ast::Direction;
use crate::hir::{BoundAction, Entry, Expr, Keyset, MatchKind, Stmt, StmtKind, Table, TableId};
use num_bigint::BigInt;
use num_traits::{One, Zero};

/// Iterations after which the evaluator gives up: the compiler unrolls loops a limited number of times.
const MAX_ROUNDS: usize = 16;

impl Machine<'_> {
    pub(super) fn stmts(&mut self, stmts: &[Stmt]) -> Eval<()> {
        stmts.iter().try_for_each(|s| self.stmt(s))
    }

    fn stmt(&mut self, s: &Stmt) -> Eval<()> {
        match &s.kind {
            StmtKind::Declare(v, init) => {
                let ty = self.hir.vars[v.0 as usize].ty.clone();
                let mut value = zero(&ty);
                if let Some(e) = init {
                    value.assign(self.eval(e)?);
                }
                self.vars.insert(*v, Binding::Value(value));
            }
            StmtKind::Instance => {}
            StmtKind::Assign(target, value) => {
                let place = self.place(target)?;
                let value = self.eval(value)?;
                self.assign(&place, value, &target.ty);
            }
            StmtKind::Update { target, old, value } => {
                let place = self.place(target)?;
                let held = self.held(&place, &target.ty);
                self.vars.insert(*old, Binding::Value(held));
                let value = self.eval(value)?;
                self.assign(&place, value, &target.ty);
            }
            StmtKind::Call(c) => {
                self.call(c, None)?;
            }
            StmtKind::If(c, t, f) => {
                return if self.eval(c)?.truth() { self.stmts(t) } else { self.stmts(f) };
            }
            StmtKind::Block(b) => return self.stmts(b),
            StmtKind::Return(value) => {
                let value = value.as_ref().map(|e| self.eval(e)).transpose()?;
                return Err(Stop::Return(value));
            }
            StmtKind::Exit => return Err(Stop::Exit),
            StmtKind::Break => return Err(Stop::Break),
            StmtKind::Continue => return Err(Stop::Continue),
            StmtKind::For { init, condition, update, body } => {
                self.stmts(init)?;
                let mut rounds = 0;
                while self.eval(condition)?.truth() {
                    if self.round(body, &mut rounds)? {
                        break;
                    }
                    self.stmts(update)?;
                }
            }
            StmtKind::ForRange { variable, low, high, body } => {
                let (mut at, last) = (self.eval(low)?.number(), self.eval(high)?.number());
                let mut rounds = 0;
                while at <= last {
                    self.vars.insert(*variable, Binding::Value(num(at.clone())));
                    if self.round(body, &mut rounds)? {
                        break;
                    }
                    at += BigInt::one();
                }
            }
            StmtKind::ForEach { variable, array, body } => {
                let (Val::Record(items) | Val::Stack { items, .. }) = self.eval(array)? else {
                    return self.skip("iteration over another value");
                };
                let mut rounds = 0;
                for item in items {
                    self.vars.insert(*variable, Binding::Value(item));
                    if self.round(body, &mut rounds)? {
                        break;
                    }
                }
            }
            StmtKind::SwitchAction { table, cases } => {
                let run = self.table(*table)?.1;
                return self.switch(cases, |_, label| Ok(run == Some(*label)));
            }
            StmtKind::SwitchValue { subject, cases } => {
                let subject = self.eval(subject)?;
                return self.switch(cases, |m, label: &Expr| Ok(m.eval(label)?.equals(&subject)));
            }
        }
        Ok(())
    }

    /// Executes the body of a loop once; returns whether it ends the loop.
    fn round(&mut self, body: &[Stmt], rounds: &mut usize) -> Eval<bool> {
        *rounds += 1;
        if *rounds > MAX_ROUNDS {
            return self.skip("a long loop");
        }
        match self.stmts(body) {
            Ok(()) | Err(Stop::Continue) => Ok(false),
            Err(Stop::Break) => Ok(true),
            Err(e) => Err(e),
        }
    }

    fn switch<T>(
        &mut self,
        cases: &[(Vec<Option<T>>, Vec<Stmt>)],
        matches: impl Fn(&mut Self, &T) -> Eval<bool>,
    ) -> Eval<()> {
        for (labels, body) in cases {
            for label in labels.iter().flatten() {
                if matches(self, label)? {
                    return self.stmts(body);
                }
            }
        }
        let default = cases.iter().find(|(labels, _)| labels.iter().any(Option::is_none));
        default.map_or(Ok(()), |(_, body)| self.stmts(body))
    }

    /// Applies a table; returns whether it hit and the index of the action that ran.
    pub(super) fn table(&mut self, id: TableId) -> Eval<(bool, Option<usize>)> {
        let t = self.hir.tables[id.0 as usize].clone();
        let keys: Vec<_> = t.keys.iter().filter(|k| k.kind != MatchKind::Selector).collect();
        let mut values = Vec::new();
        for k in &keys {
            values.push(self.eval(&k.value)?.number());
        }
        let prefixes = keys.iter().all(|k| matches!(k.kind, MatchKind::Exact | MatchKind::Lpm));
        if !prefixes && t.entries.iter().any(|e| e.priority.is_some() || e.rank.is_some()) {
            return self.skip("priorities");
        }
        // "The longest prefix wins"; otherwise, the first entry.
        let mut best: Option<(u64, &Entry)> = None;
        for e in &t.entries {
            if !self.matches(&values, &e.keys)? {
                continue;
            }
            let length = if prefixes { self.prefix(&e.keys)? } else { 0 };
            if best.is_none_or(|(l, _)| length > l) {
                best = Some((length, e));
            }
        }
        let (hit, bound) = match best {
            Some((_, e)) => (true, Some(&e.action)),
            None => (false, t.default.as_ref()),
        };
        if let Some(b) = bound {
            self.run_action(&t, b)?;
        }
        Ok((hit, bound.map(|b| b.index)))
    }

    fn run_action(&mut self, t: &Table, bound: &BoundAction) -> Eval<()> {
        let used = &t.actions[bound.index];
        let action = self.hir.actions[used.action.0 as usize].clone();
        let mut data = Vec::new();
        for d in &bound.data {
            data.push(self.eval(d)?);
        }
        let (directed, plain): (Vec<_>, Vec<_>) =
            action.params.iter().cloned().partition(|p| p.direction != Direction::None);
        self.routine(&directed, &used.args, |m| {
            let data = plain.iter().zip(data).map(|(p, v)| (p.var, Binding::Value(v)));
            m.vars.extend(data);
            m.stmts(&action.body)
        })
        .map(|_| ())
    }

    fn prefix(&mut self, keys: &[Keyset]) -> Eval<u64> {
        let mut bits = 0;
        for k in keys {
            if let Keyset::Mask(_, m) = k {
                let width = m.ty.scalar_width().unwrap_or(0);
                let m = unsigned(&self.eval(m)?.number(), width);
                bits += (0..u64::from(width)).filter(|i| m.bit(*i)).count() as u64;
            } else if let Keyset::Value(v) = k {
                bits += u64::from(v.ty.scalar_width().unwrap_or(0));
            }
        }
        Ok(bits)
    }

    /// Whether all keysets match.
    pub(super) fn matches(&mut self, values: &[BigInt], keys: &[Keyset]) -> Eval<bool> {
        for (v, k) in values.iter().zip(keys) {
            let ok = match k {
                Keyset::Any => true,
                Keyset::Value(e) => self.eval(e)?.number() == *v,
                Keyset::Mask(e, m) => {
                    let (e, m) = (self.eval(e)?.number(), self.eval(m)?.number());
                    ((v ^ e) & m).is_zero()
                }
                Keyset::Range(a, b) => self.eval(a)?.number() <= *v && *v <= self.eval(b)?.number(),
                // The control plane has not set any member.
                Keyset::Set(_) => false,
            };
            if !ok {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
