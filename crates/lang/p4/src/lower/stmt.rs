//! Lowering of statements.

use super::lvalue::LValue;
use super::storage::{Storage, Value};
use super::{Binding, Lowering};
use crate::constant::limbs;
use crate::hir::{Case, Expr, Stmt, StmtKind, TableId};
use crate::ir::{Cc, Opnd};
use crate::source::Span;
use std::rc::Rc;

impl Lowering<'_> {
    pub(super) fn stmts(&mut self, stmts: &[Stmt]) {
        for s in stmts {
            // Code behind a return or an exit is unreachable.
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
                // The l-value comes first: an index in it is evaluated before the value.
                let lvalue = self.lvalue(target);
                let value = self.value(value);
                if let Some(lvalue) = lvalue {
                    self.assign(&lvalue, &value);
                }
            }
            StmtKind::Update { target, old, value } => {
                let Some(lvalue) = self.lvalue(target) else { return };
                let held = self.load_lvalue(&lvalue, &target.ty);
                let storage = self.storage(&target.ty);
                self.store(&storage, &held);
                self.env.insert(*old, Binding::Storage(storage));
                let value = self.value(value);
                self.assign(&lvalue, &value);
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
            StmtKind::Break => self.leave_loop(false),
            StmtKind::Continue => self.leave_loop(true),
            StmtKind::For { init, condition, update, body } => self.for_loop(init, condition, update, body),
            StmtKind::ForRange { variable, low, high, body } => self.for_range(*variable, low, high, body),
            StmtKind::ForEach { variable, array, body } => self.for_each(*variable, array, body),
            StmtKind::SwitchAction { table, cases } => self.switch_action(*table, cases, s.span),
            StmtKind::SwitchValue { subject, cases } => self.switch_value(subject, cases),
        }
    }

    fn if_statement(&mut self, c: &Expr, t: &[Stmt], f: &[Stmt]) {
        let (yes, no, end) = (self.b.new_block("then"), self.b.new_block("else"), self.b.new_block("join"));
        self.condition(c, yes, no);
        for (block, body, is_true) in [(yes, t, true), (no, f, false)] {
            self.b.switch_to(block);
            self.trace_condition(c.span, is_true);
            self.stmts(body);
            self.b.jump(end);
        }
        self.b.switch_to(end);
    }

    fn switch_value(&mut self, subject: &Expr, cases: &[Case<Expr>]) {
        let width = subject.ty.scalar_width().unwrap_or(0);
        let value = self.limbs(subject);
        self.switch(cases, |l, label: &Expr| {
            let want = label.as_const().map(|v| limbs(v, width)).unwrap_or_default();
            l.equal(&value, &want.into_iter().map(Opnd::C).collect::<Vec<_>>(), width)
        });
    }

    fn switch_action(&mut self, table: TableId, cases: &[Case<usize>], span: Span) {
        let (_, run) = self.apply_table(table, span);
        self.switch(cases, |l, i: &usize| l.b.cmp(Cc::Eq, run, Opnd::C(*i as u64), 32));
    }

    /// Runs the first case with a matching label; `None` labels always match.
    fn switch<T>(&mut self, cases: &[Case<T>], mut matches: impl FnMut(&mut Self, &T) -> Opnd) {
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

    /// Leaves all inlined callees, and performs their copies to out and inout arguments.
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

    pub(super) fn copy_out(&mut self, copies: &[(Rc<Storage>, LValue)]) {
        for (from, to) in copies {
            let v = self.load(from);
            self.assign(to, &v);
        }
    }
}
