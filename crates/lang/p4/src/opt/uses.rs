//! Uses of values.

use crate::ir::graph::ControlFlowGraph;
use crate::ir::{Block, Function, Opnd, Val};
use std::collections::HashMap;

/// A use of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    Inst(Block, Val),
    Term(Block),
    /// By a phi, on the edge from this block.
    Edge(Val, Block),
}

/// Calls `found` with every use of a value in a block.
pub(super) fn in_block(f: &Function, b: Block, found: &mut dyn FnMut(Val, Use)) {
    let data = f.block(b);
    for phi in &data.phis {
        for (p, o) in f.phi(*phi) {
            if let Opnd::V(v) = o {
                found(*v, Use::Edge(*phi, *p));
            }
        }
    }
    for i in &data.insts {
        f.inst(*i).op.visit_values(&mut |v| found(v, Use::Inst(b, *i)));
    }
    if let Some(Opnd::V(v)) = data.term.operand() {
        found(v, Use::Term(b));
    }
}

/// The uses of values; a use that an operand has lost since then stays listed.
#[derive(Debug, Default)]
pub(super) struct UseIndex(HashMap<Val, Vec<Use>>);

impl UseIndex {
    /// Returns the uses in these blocks.
    pub(super) fn new(f: &Function, blocks: &[Block]) -> Self {
        let mut index = Self::default();
        blocks.iter().for_each(|b| in_block(f, *b, &mut |v, u| index.add(v, u)));
        index
    }

    pub(super) fn add(&mut self, v: Val, found: Use) {
        self.0.entry(v).or_default().push(found);
    }

    /// Returns the listed uses that still exist.
    pub(super) fn of(&self, f: &Function, v: Val) -> Vec<Use> {
        let listed = self.0.get(&v).map_or(&[][..], Vec::as_slice);
        listed.iter().filter(|u| u.exists(f, v)).copied().collect()
    }
}

impl Use {
    fn exists(&self, f: &Function, v: Val) -> bool {
        match self {
            Self::Inst(_, i) => {
                let mut found = false;
                f.inst(*i).op.visit_values(&mut |o| found |= o == v);
                found
            }
            Self::Term(b) => f.block(*b).term.operand() == Some(Opnd::V(v)),
            Self::Edge(phi, p) => f.phi(*phi).iter().any(|(q, o)| q == p && *o == Opnd::V(v)),
        }
    }
}

/// Returns, by value, the number of uses in reachable blocks.
pub(super) fn count(f: &Function) -> Vec<u32> {
    let mut n = vec![0; f.insts.len()];
    for b in ControlFlowGraph::new(f).order {
        in_block(f, b, &mut |v, _| n[v.0 as usize] += 1);
    }
    n
}
