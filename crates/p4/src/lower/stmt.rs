//! Statements.

use super::storage::{Storage, Value};
use super::{Binding, Lower};
use crate::constant::limbs;
use crate::hir::{Expr, ExprKind, Stmt, StmtKind, TableId};
use crate::ir::{Cc, Opnd};
use crate::source::Span;
use std::rc::Rc;

/// Something assignable: slots, or some bits of a scalar.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) storage: Rc<Storage>,
    pub(super) slice: Option<(u32, u32)>,
}

impl Lower<'_> {
    pub(super) fn stmts(&mut self, stmts: &[Stmt]) {
        for s in stmts {
            // What follows a return or an exit is never reached and need not be lowered.
            if self.b.is_dead() || !self.count(s.span) {
                return;
            }
            self.b.span = s.span;
            self.stmt(s);
        }
    }

    fn stmt(&mut self, s: &Stmt) {
        match &s.kind {
            StmtKind::Declare(v, init) => {
                let ty = self.hir.vars[v.0 as usize].ty.clone();
                let storage = self.storage(&ty);
                match init {
                    None => self.reset(&storage),
                    Some(e) => {
                        let value = self.value(e);
                        self.reset(&storage);
                        self.store(&storage, &value);
                    }
                }
                self.env.insert(*v, Binding::Storage(storage));
            }
            StmtKind::Instance => {}
            StmtKind::Assign(target, value) => {
                let value = self.value(value);
                if let Some(place) = self.place(target) {
                    self.assign(&place, &value);
                }
            }
            StmtKind::Call(c) => {
                self.call(c, None);
            }
            StmtKind::If(c, t, f) => self.if_statement(c, t, f),
            StmtKind::Block(b) => self.stmts(b),
            StmtKind::Return(value) => {
                let value = value.as_ref().map(|e| self.value(e));
                self.do_return(value.as_ref());
            }
            StmtKind::Exit => self.do_exit(),
            StmtKind::Break
            | StmtKind::Continue
            | StmtKind::For { .. }
            | StmtKind::ForRange { .. }
            | StmtKind::ForEach { .. } => self.unsupported(s.span, "a for loop"),
            StmtKind::SwitchAction { table, cases } => self.switch_action(*table, cases, s.span),
            StmtKind::SwitchValue { subject, cases } => self.switch_value(subject, cases),
        }
    }

    pub(super) fn place(&mut self, e: &Expr) -> Option<Place> {
        if let ExprKind::Slice(inner, hi, lo) = &e.kind {
            let p = self.place(inner)?;
            let base = p.slice.map_or(0, |(_, lo)| lo);
            return Some(Place { storage: p.storage, slice: Some((base + hi, base + lo)) });
        }
        match self.storage_of(e) {
            Some(storage) => Some(Place { storage, slice: None }),
            None => {
                self.unsupported(e.span, "an assignment to an element of a header stack by a variable index");
                None
            }
        }
    }

    pub(super) fn assign(&mut self, place: &Place, value: &Value) {
        let (Some((hi, lo)), Storage::Scalar(slots, width), Value::Scalar(new, _)) =
            (place.slice, &*place.storage, value)
        else {
            return self.store(&place.storage, value);
        };
        let old = self.read_slots(slots);
        let middle = hi - lo + 1;
        let low = self.extract_bits(&old, 0, lo);
        let high = self.extract_bits(&old, hi + 1, width - hi - 1);
        let tail = self.concat(new, middle, &low, lo);
        let whole = self.concat(&high, width - hi - 1, &tail, hi + 1);
        self.store(&place.storage.clone(), &Value::Scalar(whole, *width));
    }

    fn if_statement(&mut self, c: &Expr, t: &[Stmt], f: &[Stmt]) {
        let (yes, no, end) = (self.b.new_block("then"), self.b.new_block("else"), self.b.new_block("join"));
        self.condition(c, yes, no);
        for (block, body) in [(yes, t), (no, f)] {
            self.b.switch_to(block);
            self.stmts(body);
            self.b.jump(end);
        }
        self.b.switch_to(end);
    }

    fn switch_value(&mut self, subject: &Expr, cases: &[(Vec<Option<Expr>>, Vec<Stmt>)]) {
        let width = subject.ty.scalar_width().unwrap_or(0);
        let value = self.limbs(subject);
        self.switch(cases, |l, label: &Expr| {
            let want: Vec<Opnd> = label
                .as_const()
                .map(|v| limbs(v, width))
                .unwrap_or_default()
                .into_iter()
                .map(Opnd::C)
                .collect();
            l.equal(&value, &want, width)
        });
    }

    fn switch_action(&mut self, table: TableId, cases: &[(Vec<Option<usize>>, Vec<Stmt>)], span: Span) {
        let (_, run) = self.apply_table(table, span);
        self.switch(cases, |l, i: &usize| l.b.cmp(Cc::Eq, run, Opnd::C(*i as u64), 32));
    }

    /// The first case of which a label matches; `None` labels match always.
    fn switch<T>(
        &mut self,
        cases: &[(Vec<Option<T>>, Vec<Stmt>)],
        mut matches: impl FnMut(&mut Self, &T) -> Opnd,
    ) {
        let end = self.b.new_block("join");
        let bodies: Vec<_> = cases.iter().map(|_| self.b.new_block("case")).collect();
        let mut default = end;
        for ((labels, _), body) in cases.iter().zip(&bodies) {
            for label in labels {
                let Some(label) = label else {
                    default = *body;
                    continue;
                };
                let next = self.b.new_block("next case");
                let hit = matches(self, label);
                self.b.branch(hit, *body, next);
                self.b.switch_to(next);
            }
        }
        self.b.jump(default);
        for ((_, stmts), body) in cases.iter().zip(&bodies) {
            self.b.switch_to(*body);
            self.stmts(stmts);
            self.b.jump(end);
        }
        self.b.switch_to(end);
    }

    fn do_return(&mut self, value: Option<&Value>) {
        let Some(scope) = self.scopes.last() else { return };
        let (end, result) = (scope.end, scope.result.clone());
        if let (Some(s), Some(v)) = (result, value) {
            self.store(&s, v);
        }
        self.b.jump(end);
        self.b.stop();
    }

    /// Leaves everything that is being inlined, with the copies that are due on the way.
    fn do_exit(&mut self) {
        for i in (1..self.scopes.len()).rev() {
            let copies = self.scopes[i].copy_out.clone();
            self.copy_out(&copies);
        }
        if let Some(outermost) = self.scopes.first() {
            let end = outermost.end;
            self.b.jump(end);
        }
        self.b.stop();
    }

    pub(super) fn copy_out(&mut self, copies: &[(Rc<Storage>, Place)]) {
        for (from, to) in copies {
            let v = self.load(from);
            self.assign(to, &v);
        }
    }
}
