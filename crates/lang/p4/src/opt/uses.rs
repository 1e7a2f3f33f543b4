//! Uses of values.

use crate::ir::graph::ControlFlowGraph;
use crate::ir::{Block, Function, Opnd, Val};

/// A use of a value.
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

/// Returns, by value, the number of uses in reachable blocks.
pub(super) fn count(f: &Function) -> Vec<u32> {
    let mut n = vec![0; f.insts.len()];
    for b in ControlFlowGraph::new(f).order {
        in_block(f, b, &mut |v, _| n[v.0 as usize] += 1);
    }
    n
}
