//! The effect of statements, expressions and calls on the analysis state.

use super::flow::{Exits, FlowAnalysis, MAX_CALLS};
use super::state::{FlowState, UNWRITTEN, WRITTEN};
use crate::ast::{BinaryOp, Direction, UnaryOp};
use crate::hir::{
    Call, CallArg, Callee, Case, Expr, ExprKind, Param, Routine, Stmt, StmtKind, TableId, VarId,
};

impl FlowAnalysis<'_> {
    pub(super) fn stmt(&mut self, stmt: &Stmt, s: &mut FlowState, exits: &mut Exits) {
        match &stmt.kind {
            StmtKind::Declare(v, init) => self.declaration(*v, init.as_ref(), s),
            StmtKind::Instance => {}
            StmtKind::Assign(target, value) => self.assign(target, value, s),
            StmtKind::Update { target, old, value } => {
                self.read(target, s);
                self.declare(*old, WRITTEN, s);
                self.read(value, s);
                self.check_write(target, s);
            }
            StmtKind::Call(c) => self.call(c, s),
            StmtKind::If(c, then, otherwise) => {
                let (mut yes, mut no) = self.condition(c, s);
                self.block(then, &mut yes, exits);
                self.block(otherwise, &mut no, exits);
                yes.join(&no);
                *s = yes;
            }
            StmtKind::Block(b) => self.block(b, s, exits),
            StmtKind::Return(value) => {
                if let Some(v) = value {
                    self.read(v, s);
                }
                leave(s, &mut exits.returns);
            }
            StmtKind::Exit => *s = FlowState::dead(),
            StmtKind::Break => leave(s, &mut exits.breaks),
            StmtKind::Continue => leave(s, &mut exits.continues),
            StmtKind::For { init, condition, update, body } => {
                self.block(init, s, exits);
                self.rounds(s, exits, |f, s, exits| {
                    let (mut inside, outside) = f.condition(condition, s);
                    f.block(body, &mut inside, exits);
                    inside.join(&std::mem::replace(&mut exits.continues, FlowState::dead()));
                    f.block(update, &mut inside, exits);
                    exits.breaks.join(&outside);
                    *s = inside;
                });
            }
            StmtKind::ForRange { variable, low, high, body } => {
                self.read(low, s);
                self.read(high, s);
                self.for_each(*variable, body, s, exits);
            }
            StmtKind::ForEach { variable, array, body } => {
                self.read(array, s);
                self.for_each(*variable, body, s, exits);
            }
            StmtKind::SwitchAction { table, cases } => self.switch_action(*table, cases, s, exits),
            StmtKind::SwitchValue { subject, cases } => {
                self.read(subject, s);
                let bodies = cases.iter().map(|(_, b)| b);
                let branches = bodies.map(|b| (self.fork(s), b)).collect::<Vec<_>>();
                let all = cases.iter().any(|(labels, _)| labels.iter().any(Option::is_none));
                let mut end = if all { FlowState::dead() } else { std::mem::replace(s, FlowState::dead()) };
                for (mut branch, body) in branches {
                    self.block(body, &mut branch, exits);
                    end.join(&branch);
                }
                *s = end;
            }
        }
    }

    fn declaration(&mut self, v: VarId, init: Option<&Expr>, s: &mut FlowState) {
        let Some(init) = init else { return self.declare(v, UNWRITTEN, s) };
        self.read(init, s);
        self.declare(v, WRITTEN, s);
        let ty = self.program.vars[v.0 as usize].ty.clone();
        let target = Expr { kind: ExprKind::Var(v), ty, span: init.span };
        self.taken(init, &target, s);
    }

    fn assign(&mut self, target: &Expr, value: &Expr, s: &mut FlowState) {
        // A part of a struct may still be unwritten when the whole is copied.
        self.read(value, s);
        self.indexes(target, s);
        self.check_write(target, s);
        self.taken(value, target, s);
    }

    /// Copies the state of a value to its target: a header may be invalid, fields may be unwritten.
    fn taken(&mut self, value: &Expr, target: &Expr, s: &mut FlowState) {
        match &value.kind {
            ExprKind::InvalidHeader if target.ty.is_header() => self.set_valid(target, false, s),
            _ => {
                self.copy(value, target, s);
            }
        }
    }

    /// Visits a loop's body twice: the second iteration sees the writes of the first.
    fn rounds(
        &mut self,
        s: &mut FlowState,
        exits: &mut Exits,
        mut round: impl FnMut(&mut Self, &mut FlowState, &mut Exits),
    ) {
        let mut inner = Exits::default();
        self.quiet += 1;
        let mut first = self.fork(s);
        round(self, &mut first, &mut inner);
        self.quiet -= 1;
        s.join(&first);
        let mut inner = Exits { returns: inner.returns, ..Exits::default() };
        round(self, s, &mut inner);
        s.join(&inner.breaks);
        exits.returns.join(&inner.returns);
    }

    fn for_each(&mut self, v: VarId, body: &[Stmt], s: &mut FlowState, exits: &mut Exits) {
        self.rounds(s, exits, |f, s, exits| {
            let none = f.fork(s);
            f.declare(v, WRITTEN, s);
            f.block(body, s, exits);
            s.join(&std::mem::replace(&mut exits.continues, FlowState::dead()));
            s.join(&none);
        });
    }

    /// Returns the states on which a condition holds, and on which it does not.
    fn condition(&mut self, c: &Expr, s: &mut FlowState) -> (FlowState, FlowState) {
        match &c.kind {
            ExprKind::Unary(UnaryOp::Not, inner) => {
                let (yes, no) = self.condition(inner, s);
                (no, yes)
            }
            ExprKind::Binary(BinaryOp::And, a, b) => {
                let (mut both, mut none) = self.condition(a, s);
                let (yes, no) = self.condition(b, &mut both);
                none.join(&no);
                (yes, none)
            }
            ExprKind::Binary(BinaryOp::Or, a, b) => {
                let (mut some, mut neither) = self.condition(a, s);
                let (yes, no) = self.condition(b, &mut neither);
                some.join(&yes);
                (some, no)
            }
            ExprKind::IsValid(h) => {
                self.indexes(h, s);
                let (mut yes, mut no) = (self.fork(s), self.fork(s));
                if let Some(p) = self.layout.cell_ref(h).filter(|_| h.ty.is_header()) {
                    yes.set(p.at, WRITTEN);
                    no.set(p.at, UNWRITTEN);
                }
                (yes, no)
            }
            ExprKind::TableHit { table, miss } => {
                let branches = self.table(*table, s);
                let t = &self.program.tables[table.0 as usize];
                let on_miss = |i: usize| match &t.default {
                    Some(d) if t.default_is_const => d.index == i,
                    _ => !t.actions[i].table_only,
                };
                let (mut hit, mut missed) = (FlowState::dead(), FlowState::dead());
                for (i, branch) in branches.iter().enumerate() {
                    if !t.actions[i].default_only {
                        hit.join(branch);
                    }
                    if on_miss(i) {
                        missed.join(branch);
                    }
                }
                if *miss { (missed, hit) } else { (hit, missed) }
            }
            _ => {
                self.read(c, s);
                (self.fork(s), self.fork(s))
            }
        }
    }

    /// Visits an expression whose value is used.
    pub(super) fn read(&mut self, e: &Expr, s: &mut FlowState) {
        if s.dead || !self.spend(1) {
            return;
        }
        match &e.kind {
            ExprKind::Var(_) => self.check_read(e, s),
            ExprKind::Field(base, _) => match self.layout.cell_ref(e) {
                Some(_) => self.check_read(e, s),
                None => self.read(base, s),
            },
            ExprKind::StackNext(base) | ExprKind::StackLast(base) | ExprKind::StackLastIndex(base) => {
                self.indexes(base, s);
            }
            ExprKind::Binary(BinaryOp::And | BinaryOp::Or, ..)
            | ExprKind::IsValid(_)
            | ExprKind::TableHit { .. } => {
                let (mut yes, no) = self.condition(e, s);
                yes.join(&no);
                *s = yes;
            }
            ExprKind::Ternary(c, a, b) => {
                let (mut yes, mut no) = self.condition(c, s);
                self.read(a, &mut yes);
                self.read(b, &mut no);
                yes.join(&no);
                *s = yes;
            }
            ExprKind::Call(c) => self.call(c, s),
            _ => e.parts().into_iter().for_each(|part| self.read(part, s)),
        }
    }

    /// Visits the reads in the target of an assignment: indexes.
    pub(super) fn indexes(&mut self, e: &Expr, s: &mut FlowState) {
        match &e.kind {
            ExprKind::Element(base, index) | ExprKind::PlusSlice(base, index, _) => {
                self.indexes(base, s);
                self.read(index, s);
            }
            ExprKind::Field(base, _) | ExprKind::Slice(base, ..) => self.indexes(base, s),
            ExprKind::StackNext(base) | ExprKind::StackLast(base) => self.indexes(base, s),
            _ => {}
        }
    }

    fn call(&mut self, c: &Call, s: &mut FlowState) {
        match &c.callee {
            Callee::SetValid(h) => self.set_valid(h, true, s),
            Callee::SetInvalid(h) => self.set_valid(h, false, s),
            Callee::Push { .. } => {}
            Callee::Table(t) => {
                let branches = self.table(*t, s);
                *s = joined(&branches);
            }
            Callee::Action(id) => {
                let a = self.program.actions[id.0 as usize].clone();
                self.arguments_in(&c.args, s);
                self.inline(&a, &a.params, &c.args, s);
                self.arguments_out(&c.args, s);
            }
            Callee::Extern(_) | Callee::Function(_) | Callee::Method { .. } | Callee::Apply(_) => {
                self.arguments_in(&c.args, s);
                self.arguments_out(&c.args, s);
            }
        }
    }

    /// Visits an action's body at its call.
    fn inline(&mut self, a: &Routine, params: &[Param], args: &[CallArg], s: &mut FlowState) {
        if self.calls >= MAX_CALLS {
            // Too deep to follow: nothing is known, so no warnings.
            self.spend(usize::MAX);
            return;
        }
        self.declare_params(params, s);
        // Omitted arguments are not checked.
        let skipped = |p: &Param| params.iter().position(|q| q.var == p.var).and_then(|i| args.get(i));
        let wanted = |p: &&Param| p.direction == Direction::Out && !matches!(skipped(p), Some(CallArg::Skip));
        let outs: Vec<Param> = params.iter().filter(wanted).cloned().collect();
        let mut exits = Exits::default();
        self.calls += 1;
        self.block(&a.body, s, &mut exits);
        self.calls -= 1;
        s.join(&exits.returns);
        self.end(&outs, s);
    }

    /// Visits a table's keys, then each of its actions; returns the state behind each.
    fn table(&mut self, id: TableId, s: &mut FlowState) -> Vec<FlowState> {
        let t = self.program.tables[id.0 as usize].clone();
        t.keys.iter().for_each(|k| self.read(&k.value, s));
        let mut branches = Vec::with_capacity(t.actions.len());
        for u in &t.actions {
            let mut branch = self.fork(s);
            let a = self.program.actions[u.action.0 as usize].clone();
            let directed: Vec<Param> =
                a.params.iter().filter(|p| p.direction != Direction::None).cloned().collect();
            let data: Vec<Param> =
                a.params.iter().filter(|p| p.direction == Direction::None).cloned().collect();
            self.arguments_in(&u.args, &mut branch);
            self.declare_params(&data, &mut branch);
            self.inline(&a, &directed, &u.args, &mut branch);
            self.arguments_out(&u.args, &mut branch);
            branches.push(branch);
        }
        if branches.is_empty() {
            branches.push(self.fork(s));
        }
        branches
    }

    fn switch_action(&mut self, table: TableId, cases: &[Case<usize>], s: &mut FlowState, exits: &mut Exits) {
        let branches = self.table(table, s);
        let named = |i: &usize| cases.iter().any(|(labels, _)| labels.contains(&Some(*i)));
        let others: Vec<FlowState> =
            (0..branches.len()).filter(|i| !named(i)).map(|i| branches[i].clone()).collect();
        let others = joined(&others);
        let mut end = FlowState::dead();
        let mut default = false;
        for (labels, body) in cases {
            let mut branch = FlowState::dead();
            for label in labels {
                default |= label.is_none();
                branch.join(label.map_or(&others, |i| branches.get(i).unwrap_or(&others)));
            }
            self.block(body, &mut branch, exits);
            end.join(&branch);
        }
        if !default {
            end.join(&others);
        }
        *s = end;
    }
}

/// Moves the state to a jump target.
fn leave(s: &mut FlowState, to: &mut FlowState) {
    to.join(s);
    *s = FlowState::dead();
}

fn joined(branches: &[FlowState]) -> FlowState {
    let mut all = FlowState::dead();
    branches.iter().for_each(|b| _ = all.join(b));
    all
}
