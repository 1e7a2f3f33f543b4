//! Merging of the bounds checks of extractions that follow each other without a branch between them.

use super::uses;
use crate::ir::graph::ControlFlowGraph;
use crate::ir::{Block, Function, Op, Opnd, Term, Val};
use p4shield_abi::Verdict;

/// If a larger check of the same pointer with the same failure target follows a check, enlarges the
/// first.
pub(super) fn merge(f: &mut Function) {
    let g = ControlFlowGraph::new(f);
    let uses = uses::count(f);
    // From the end, so that a chain of checks collapses into its first.
    for b in g.order.iter().rev() {
        let [p] = g.preds(*b) else { continue };
        let (Some(first), Some(second)) = (check(f, &uses, *p), check(f, &uses, *b)) else { continue };
        // If a failing check drops the packet, stores to the packet before the check do not matter.
        let failed = f.block(first.fail);
        let drops = failed.insts.is_empty()
            && matches!(failed.term, Term::Return(Opnd::C(n)) if n != Verdict::Pass as u64);
        let harmless = |op: &Op| !op.has_effect() && !op.is_call() || drops && matches!(op, Op::Store { .. });
        let quiet = f.block(*b).insts.iter().all(|i| harmless(&f.inst(*i).op));
        let same = first.base == second.base && first.end == second.end && first.fail == second.fail;
        if !same
            || first.ok != *b
            || !quiet
            || !f.block(first.fail).phis.is_empty()
            || second.len <= first.len
        {
            continue;
        }
        if let Op::InBounds { len, .. } = &mut f.inst_mut(first.value).op {
            *len = second.len;
        }
        f.block_mut(*b).term = Term::Jump(second.ok);
    }
}

struct BoundsCheck {
    value: Val,
    base: Opnd,
    end: Opnd,
    len: u32,
    ok: Block,
    fail: Block,
}

fn check(f: &Function, uses: &[u32], b: Block) -> Option<BoundsCheck> {
    let Term::Branch(Opnd::V(value), ok, fail) = f.block(b).term else { return None };
    // The check must belong to this branch alone: another user must not get the larger check.
    if !f.block(b).insts.contains(&value) || uses[value.0 as usize] != 1 {
        return None;
    }
    let Op::InBounds { base, len, end } = f.inst(value).op else { return None };
    Some(BoundsCheck { value, base, end, len, ok, fail })
}
