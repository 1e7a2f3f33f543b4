//! Fusion of conditions with the branches that use them.

use crate::ir::graph::ControlFlowGraph;
use crate::ir::{BinOp, Cc, Function, Op, Opnd, Term, Val};
use std::collections::{HashMap, HashSet};

/// Returns the comparisons used only by branches, and the masks used only by such comparisons with zero.
pub(super) fn fused_conditions(f: &Function, g: &ControlFlowGraph) -> HashSet<Val> {
    let mut values: HashSet<Val> = HashSet::new();
    let mut branches: HashSet<Val> = HashSet::new();
    for b in &g.order {
        let data = f.block(*b);
        for v in data.phis.iter().chain(&data.insts) {
            f.inst(*v).op.visit_values(&mut |u| _ = values.insert(u));
        }
        match data.term {
            Term::Branch(Opnd::V(c), ..) => {
                branches.insert(c);
            }
            Term::Return(Opnd::V(v)) => {
                values.insert(v);
            }
            _ => {}
        }
    }
    let comparison = |v: &Val| matches!(f.inst(*v).op, Op::Cmp(..) | Op::InBounds { .. });
    let mut fused: HashSet<Val> =
        branches.into_iter().filter(|v| comparison(v) && !values.contains(v)).collect();
    let mut tests: HashMap<Val, bool> = HashMap::new();
    for b in &g.order {
        for v in f.block(*b).phis.iter().chain(&f.block(*b).insts) {
            let by_test =
                fused.contains(v) && matches!(f.inst(*v).op, Op::Cmp(Cc::Eq | Cc::Ne, _, Opnd::C(0), _));
            f.inst(*v).op.visit_values(&mut |u| *tests.entry(u).or_insert(true) &= by_test);
        }
        if let Some(Opnd::V(v)) = f.block(*b).term.operand()
            && !fused.contains(&v)
        {
            tests.insert(v, false);
        }
    }
    let masks = tests.into_iter().filter(|(v, all)| *all && matches!(f.inst(*v).op, Op::Bin(BinOp::And, ..)));
    fused.extend(masks.map(|(v, _)| v));
    fused
}
