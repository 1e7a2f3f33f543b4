//! Dead code elimination.

use crate::ir::graph::ControlFlowGraph;
use crate::ir::{Function, Opnd, Val};

/// Removes values that no effect and no branch depends on.
pub(super) fn remove_dead(f: &mut Function) {
    let g = ControlFlowGraph::new(f);
    let mut live = vec![false; f.insts.len()];
    let mut open: Vec<Val> = Vec::new();
    for b in &g.order {
        let data = f.block(*b);
        open.extend(data.insts.iter().filter(|v| f.inst(**v).op.has_effect()));
        if let Some(Opnd::V(v)) = data.term.operand() {
            open.push(v);
        }
    }
    while let Some(v) = open.pop() {
        if std::mem::replace(&mut live[v.0 as usize], true) {
            continue;
        }
        f.inst(v).op.visit_values(&mut |v| open.push(v));
    }
    for b in g.order {
        let data = f.block_mut(b);
        data.phis.retain(|v| live[v.0 as usize]);
        data.insts.retain(|v| live[v.0 as usize]);
    }
}
