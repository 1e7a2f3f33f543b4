//! BranchFacts that branches imply about values in the blocks they dominate.

use crate::ir::graph::ControlFlowGraph;
use crate::ir::{Block, Cc, Function, Op, Opnd, Term, Val};
use std::collections::HashMap;

/// BranchFacts by value, each with the block from which it holds.
#[derive(Debug, Default)]
pub(super) struct BranchFacts {
    values: HashMap<Val, Vec<(Block, u64)>>,
    bounds: HashMap<(Opnd, Opnd), Vec<(Block, u32)>>,
}

impl BranchFacts {
    /// Records the facts that the only edge to `b` implies.
    pub(super) fn enter(&mut self, f: &Function, g: &ControlFlowGraph, b: Block) {
        let [p] = g.preds(b) else { return };
        if let Term::Branch(Opnd::V(c), t, e) = f.block(*p).term
            && t != e
        {
            self.learn(f, b, c, t == b);
        }
    }

    fn learn(&mut self, f: &Function, b: Block, c: Val, holds: bool) {
        self.values.entry(c).or_default().push((b, u64::from(holds)));
        match &f.inst(c).op {
            Op::Cmp(cc, Opnd::V(x), Opnd::C(n), _)
                if (*cc == Cc::Eq) == holds && matches!(cc, Cc::Eq | Cc::Ne) =>
            {
                self.values.entry(*x).or_default().push((b, *n));
            }
            Op::InBounds { base, len, end } if holds => {
                self.bounds.entry((*base, *end)).or_default().push((b, *len));
            }
            _ => {}
        }
    }

    /// Returns the value that `v` certainly has in `b`.
    pub(super) fn value(&self, g: &ControlFlowGraph, v: Val, b: Block) -> Option<u64> {
        self.values.get(&v)?.iter().find(|(from, _)| g.dominates(*from, b)).map(|(_, n)| *n)
    }

    /// Returns how many bytes from `base` are certainly in bounds in `b`.
    pub(super) fn in_bounds(&self, g: &ControlFlowGraph, base: Opnd, end: Opnd, b: Block) -> Option<u32> {
        let known = self.bounds.get(&(base, end))?;
        known.iter().filter(|(from, _)| g.dominates(*from, b)).map(|(_, n)| *n).max()
    }
}
