//! `for` loops, which the lowering unrolls: the code has no loops (see [`super::states`]).
//!
//! A loop with constant bounds is unrolled exactly as often as it iterates. Any other loop is
//! unrolled [`MAX_ROUNDS`] times, or [`MAX_INNER`] times within another loop, with a warning at
//! compile time; a packet that needs more iterations is dropped.

use super::Lowering;
use super::storage::Value;
use super::{Binding, LoopTargets};
use crate::constant::limbs;
use crate::hir::{Expr, Stmt, VarId};
use crate::ir::{BinOp, Block, Cc, Opnd};
use crate::source::Span;
use crate::types::Type;
use num_bigint::BigInt;
use p4shield_abi::ProgramLimit;

/// Iterations of a loop whose number of iterations is unknown.
const MAX_ROUNDS: usize = 64;
/// Iterations of such a loop within another loop: their code sizes multiply.
const MAX_INNER: usize = 16;
/// Maximum number of iterations of a loop with constant bounds.
const MAX_KNOWN: usize = 1024;

impl Lowering<'_> {
    pub(super) fn for_loop(&mut self, init: &[Stmt], condition: &Expr, update: &[Stmt], body: &[Stmt]) {
        self.stmts(init);
        let end = self.b.new_block("loop end");
        let (mut unknown, mut rounds) = (0, 0);
        while rounds < MAX_KNOWN {
            let inside = self.b.new_block("loop");
            let before = self.b.at;
            self.condition(condition, inside, end);
            self.b.switch_to(inside);
            if self.b.is_dead() || self.too_large {
                break;
            }
            // A constant condition decides at compile time when to stop.
            unknown += usize::from(!self.b.jumps(before, inside));
            if unknown > self.rounds_allowed() {
                break;
            }
            rounds += 1;
            self.round(end, body);
            self.stmts(update);
            if self.b.is_dead() {
                break;
            }
        }
        self.end_loop(condition.span, rounds, end);
    }

    /// Drops packets that need more iterations than these; continues behind the loop.
    fn end_loop(&mut self, at: Span, rounds: usize, end: Block) {
        if !self.b.is_dead() && !self.too_large {
            let hint = "loop over constant bounds, and leave the loop with `break`";
            self.cut_loop(at, rounds as u32, "a packet that needs more is dropped", hint);
        }
        let beyond = self.at_limit(ProgramLimit::Loop);
        self.b.jump(beyond);
        self.b.switch_to(end);
    }

    fn rounds_allowed(&self) -> usize {
        if self.loops.is_empty() { MAX_ROUNDS } else { MAX_INNER }
    }

    /// Lowers the body once; continues where the next iteration begins.
    fn round(&mut self, end: Block, body: &[Stmt]) {
        let next = self.b.new_block("loop next");
        self.loops.push(LoopTargets { end, next });
        self.stmts(body);
        self.loops.pop();
        self.b.jump(next);
        self.b.switch_to(next);
    }

    pub(super) fn for_range(&mut self, v: VarId, low: &Expr, high: &Expr, body: &[Stmt]) {
        let ty = low.ty.clone();
        let width = ty.scalar_width().unwrap_or(0);
        let variable = self.storage(&ty);
        if let (Some(a), Some(b)) = (self.known(low), self.known(high)) {
            let end = self.b.new_block("loop end");
            let mut i = a;
            while i <= b && !self.b.is_dead() && self.count(low.span) {
                let value = Value::Scalar(limbs(&i, width).into_iter().map(Opnd::C).collect(), width);
                self.env.insert(v, Binding::Storage(variable.clone()));
                self.store(&variable, &value);
                self.round(end, body);
                i += BigInt::from(1);
            }
            self.b.jump(end);
            return self.b.switch_to(end);
        }
        let (at, last) = (self.value(low), self.limbs(high));
        self.store(&variable, &at);
        self.env.insert(v, Binding::Storage(variable.clone()));
        let end = self.b.new_block("loop end");
        let first = self.limbs_of(&variable);
        let cc = if matches!(ty.base(), Type::Int(_)) { Cc::Sle } else { Cc::Ule };
        let any = self.ordered(cc, &first, &last, width);
        // A variable of few bits has few values.
        let values = 1usize.checked_shl(width).unwrap_or(usize::MAX);
        let rounds = self.rounds_allowed().min(values);
        for _ in 0..rounds {
            let inside = self.b.new_block("loop");
            let now = self.limbs_of(&variable);
            self.b.branch(any, inside, end);
            self.b.switch_to(inside);
            if self.b.is_dead() || self.too_large {
                break;
            }
            // The body must not change the number of iterations.
            let shown = self.storage(&ty);
            self.store(&shown, &Value::Scalar(now.clone(), width));
            self.env.insert(v, Binding::Storage(shown));
            self.round(end, body);
            let more = self.b.new_block("loop more");
            let done = self.equal(&now, &last, width);
            self.b.branch(done, end, more);
            self.b.switch_to(more);
            let mut one = vec![Opnd::C(0); now.len()];
            one[0] = Opnd::C(1);
            let next = self.add_sub(BinOp::Add, &now, &one, width);
            self.store(&variable, &Value::Scalar(next, width));
        }
        if rounds == values {
            self.b.jump(end);
            return self.b.switch_to(end);
        }
        self.end_loop(high.span, rounds, end);
    }

    fn limbs_of(&mut self, s: &super::storage::Storage) -> Vec<Opnd> {
        match self.load(s) {
            Value::Scalar(limbs, _) => limbs,
            _ => Vec::new(),
        }
    }

    pub(super) fn for_each(&mut self, v: VarId, array: &Expr, body: &[Stmt]) {
        let items = match self.value(array) {
            Value::Stack(items, _) | Value::Group(items) => items,
            _ => return self.unsupported(array.span, "iteration over this value"),
        };
        let ty = self.hir.vars[v.0 as usize].ty.clone();
        let end = self.b.new_block("loop end");
        for item in items {
            let variable = self.storage(&ty);
            self.reset(&variable);
            self.store(&variable, &item);
            self.env.insert(v, Binding::Storage(variable));
            self.round(end, body);
            if self.b.is_dead() || !self.count(array.span) {
                break;
            }
        }
        self.b.jump(end);
        self.b.switch_to(end);
    }

    /// Lowers `break`, or `continue` if `next`.
    pub(super) fn leave_loop(&mut self, next: bool) {
        if let Some(l) = self.loops.last() {
            let to = if next { l.next } else { l.end };
            self.b.jump(to);
            self.b.stop();
        }
    }
}
