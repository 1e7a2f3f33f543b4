//! Warnings about reads of unwritten variables and accesses to fields of invalid headers.
//!
//! The analysis follows each parser, control and function from its start, with two bits for each scalar
//! and header ([`super::state`]). It follows calls of actions, because they share the variables of their
//! control, but not those of parsers and controls, which exchange values only through parameters.

use super::Warnings;
use super::layout::{CellLayout, text};
use super::state::{FlowState, UNWRITTEN, WRITTEN, is_scalar};
use crate::ast::Direction;
use crate::diagnostics::{Code, Diagnostic};
use crate::hir::{self, CallArg, Expr, Param, Program, Stmt, VarId};
use crate::source::Span;
use crate::types::Type;

/// Maximum number of cells and statements visited in one program; the rest gets no warnings.
const BUDGET: usize = 4_000_000;
/// Maximum depth of actions that call each other.
pub(super) const MAX_CALLS: usize = 32;

pub(super) fn warnings(program: &Program) -> Vec<Diagnostic> {
    let mut f = FlowAnalysis {
        program,
        found: Warnings::default(),
        layout: CellLayout::default(),
        left: BUDGET,
        quiet: 0,
        calls: 0,
    };
    for p in &program.parsers {
        f.parser(p);
    }
    for c in &program.controls {
        f.control(c);
    }
    for r in &program.functions {
        f.function(r);
    }
    f.found.all
}

/// The states at the targets of jumps out of a block.
#[derive(Debug)]
pub(super) struct Exits {
    pub(super) returns: FlowState,
    pub(super) breaks: FlowState,
    pub(super) continues: FlowState,
}

impl Default for Exits {
    fn default() -> Self {
        Self { returns: FlowState::dead(), breaks: FlowState::dead(), continues: FlowState::dead() }
    }
}

pub(super) struct FlowAnalysis<'a> {
    pub(super) program: &'a Program,
    found: Warnings,
    pub(super) layout: CellLayout,
    /// The rest of the budget.
    left: usize,
    /// Number of enclosing loops in their first iteration, when the effect of later iterations is
    /// unknown.
    pub(super) quiet: usize,
    /// Depth of actions within actions.
    pub(super) calls: usize,
}

impl FlowAnalysis<'_> {
    fn control(&mut self, c: &hir::Control) {
        let mut s = self.start(&c.params);
        self.declare_params(&c.ctor_params, &mut s);
        let mut exits = Exits::default();
        self.block(&c.locals, &mut s, &mut exits);
        self.block(&c.body, &mut s, &mut exits);
        s.join(&exits.returns);
        self.end(&c.params, &s);
    }

    fn function(&mut self, r: &hir::Routine) {
        let mut s = self.start(&r.params);
        let mut exits = Exits::default();
        self.block(&r.body, &mut s, &mut exits);
        s.join(&exits.returns);
        self.end(&r.params, &s);
    }

    /// Iterates over the states until nothing changes, then once more to warn.
    fn parser(&mut self, p: &hir::Parser) {
        let mut s = self.start(&p.params);
        self.declare_params(&p.ctor_params, &mut s);
        self.block(&p.locals, &mut s, &mut Exits::default());
        let mut before: Vec<FlowState> = vec![FlowState::dead(); p.states.len()];
        let mut open = vec![0];
        if let Some(first) = before.first_mut() {
            first.join(&s);
        } else {
            return;
        }
        self.quiet += 1;
        while let Some(i) = open.pop() {
            let after = self.state(&p.states[i], &before[i]);
            open.extend(p.states[i].next.states().filter(|to| before[*to].join(&after)));
        }
        self.quiet -= 1;
        let mut end = FlowState::dead();
        for (state, before) in p.states.iter().zip(&before) {
            let after = self.state(state, before);
            if state.next.targets().contains(&hir::Target::Accept) {
                end.join(&after);
            }
        }
        self.end(&p.params, &end);
    }

    fn state(&mut self, state: &hir::State, before: &FlowState) -> FlowState {
        let mut s = before.clone();
        self.block(&state.body, &mut s, &mut Exits::default());
        if let hir::Next::Select { subjects, .. } = &state.next {
            subjects.iter().for_each(|e| self.read(e, &mut s));
        }
        s
    }

    /// Returns the state at the start of a body with these parameters.
    fn start(&mut self, params: &[Param]) -> FlowState {
        let mut s = FlowState::default();
        self.declare_params(params, &mut s);
        s
    }

    pub(super) fn declare_params(&mut self, params: &[Param], s: &mut FlowState) {
        for p in params {
            let state = if p.direction == Direction::Out { UNWRITTEN } else { WRITTEN };
            self.declare(p.var, state, s);
        }
    }

    /// Resets the cells of a variable.
    pub(super) fn declare(&mut self, v: VarId, state: u8, s: &mut FlowState) {
        let ty = &self.program.vars[v.0 as usize].ty;
        if let Some(at) = self.layout.add(v, ty) {
            s.fill(ty, at, state);
        }
    }

    /// Warns about `out` parameters that are not written on some path.
    pub(super) fn end(&mut self, params: &[Param], s: &FlowState) {
        if s.dead {
            return;
        }
        for p in params.iter().filter(|p| p.direction == Direction::Out && is_scalar(&p.ty)) {
            let Some(at) = self.layout.add(p.var, &p.ty) else { continue };
            let message = match s.get(at) {
                UNWRITTEN => format!("`{}` is never written", p.name),
                WRITTEN => continue,
                _ => format!("`{}` is not written on every path", p.name),
            };
            self.warn(Code::Uninitialised, p.span, message, "assign it on every path: the caller reads it");
        }
    }

    pub(super) fn block(&mut self, stmts: &[Stmt], s: &mut FlowState, exits: &mut Exits) {
        for stmt in stmts {
            if s.dead || !self.spend(1) {
                return;
            }
            self.stmt(stmt, s, exits);
        }
    }

    /// Deducts from the budget; false if it is exhausted.
    pub(super) fn spend(&mut self, cost: usize) -> bool {
        self.left = self.left.saturating_sub(cost);
        self.left > 0
    }

    /// Copies the state for a path that branches off here.
    pub(super) fn fork(&mut self, s: &FlowState) -> FlowState {
        if self.spend(1 + s.len() / 16) { s.clone() } else { FlowState::dead() }
    }

    pub(super) fn warn(&mut self, code: Code, span: Span, message: String, hint: &str) {
        if self.quiet == 0 && self.left > 0 {
            self.found.add(Diagnostic::new(code, span, message).hint(hint));
        }
    }

    /// Checks a read of a scalar or of a whole value.
    pub(super) fn check_read(&mut self, e: &Expr, s: &FlowState) {
        let Some(p) = self.layout.cell_ref(e) else { return };
        if p.header.is_some_and(|h| s.get(h) == UNWRITTEN) {
            return self.invalid(e, "read", "check it with isValid(), or extract it first");
        }
        let Some(states) = s.scalars(&e.ty, p.at) else { return };
        let Some(what) = self.text(e) else { return };
        // Some fields of a struct may be omitted on purpose.
        let whole = !is_scalar(&e.ty);
        let message = if states.iter().all(|x| *x == UNWRITTEN) {
            format!("`{what}` is read, but never written before")
        } else if !whole && states.iter().any(|x| x & UNWRITTEN != 0) {
            format!("`{what}` may be read before it is written")
        } else {
            return;
        };
        self.warn(Code::Uninitialised, e.span, message, "give it a value where it is declared");
    }

    /// Checks an assignment and records it.
    pub(super) fn check_write(&mut self, e: &Expr, s: &mut FlowState) {
        let Some(p) = self.layout.cell_ref(e) else { return };
        if p.header.is_some_and(|h| s.get(h) == UNWRITTEN) {
            self.invalid(e, "written", "call setValid() before");
        }
        s.fill(&e.ty, p.at, WRITTEN);
    }

    fn invalid(&mut self, e: &Expr, what: &str, hint: &str) {
        if let Some(path) = self.text(e) {
            let message = format!("`{path}` is {what}, but its header is not valid here");
            self.warn(Code::InvalidHeader, e.span, message, hint);
        }
    }

    fn text(&self, e: &Expr) -> Option<String> {
        text(e, &|v| self.program.vars[v.0 as usize].name.to_string())
    }

    /// Records that a header is valid or invalid from here.
    pub(super) fn set_valid(&mut self, header: &Expr, valid: bool, s: &mut FlowState) {
        let Some(p) = self.layout.cell_ref(header) else { return };
        if valid && s.get(p.at) == UNWRITTEN {
            s.fill(&header.ty, p.at, UNWRITTEN);
        }
        s.set(p.at, if valid { WRITTEN } else { UNWRITTEN });
    }

    /// Checks and records the arguments at the start of a call.
    pub(super) fn arguments_in(&mut self, args: &[CallArg], s: &mut FlowState) {
        for a in args {
            match a {
                CallArg::In(e) | CallArg::InOut(e) => self.read(e, s),
                CallArg::Out(e) => self.indexes(e, s),
                CallArg::Object(_) | CallArg::Skip => {}
            }
        }
    }

    /// Records the arguments at the end of a call.
    pub(super) fn arguments_out(&mut self, args: &[CallArg], s: &mut FlowState) {
        for a in args {
            if let CallArg::Out(e) | CallArg::InOut(e) = a {
                self.check_write(e, s);
            }
        }
    }

    /// Copies the cells of an l-value to another one of the same type; returns whether it did.
    pub(super) fn copy(&mut self, from: &Expr, to: &Expr, s: &mut FlowState) -> bool {
        let (Some(a), Some(b)) = (self.layout.cell_ref(from), self.layout.cell_ref(to)) else { return false };
        if from.ty != to.ty || is_scalar(&from.ty) || matches!(from.ty, Type::Bad) {
            return false;
        }
        let count = super::state::count(&from.ty).unwrap_or(0);
        for i in 0..count {
            let state = s.get(a.at + i);
            s.set(b.at + i, state);
        }
        true
    }
}
