//! Use counts of values.

use crate::ir::graph::ControlFlowGraph;
use crate::ir::{Function, Opnd};

/// Returns, by value, the number of uses in reachable blocks.
pub(super) fn count(f: &Function) -> Vec<u32> {
    let mut n = vec![0; f.insts.len()];
    let mut count = |o: Opnd| {
        if let Opnd::V(v) = o {
            n[v.0 as usize] += 1;
        }
    };
    for b in ControlFlowGraph::new(f).order {
        let data = f.block(b);
        data.phis.iter().chain(&data.insts).for_each(|i| f.inst(*i).op.visit(&mut count));
        data.term.operand().into_iter().for_each(&mut count);
    }
    n
}
