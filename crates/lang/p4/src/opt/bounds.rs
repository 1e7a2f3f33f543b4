//! One bounds check for extractions that follow each other without a decision between them.

use super::uses;
use crate::ir::graph::Graph;
use crate::ir::{Block, Function, Op, Opnd, Term, Val};

/// Where a check is followed by a larger one of the same pointer that fails to the same place, the first takes over.
pub(super) fn merge(f: &mut Function) {
    let g = Graph::new(f);
    let uses = uses::count(f);
    // From the end, so that a line of checks collapses into its first.
    for b in g.order.iter().rev() {
        let [p] = g.preds(*b) else { continue };
        let (Some(first), Some(second)) = (check(f, &uses, *p), check(f, &uses, *b)) else { continue };
        // Where the check fails the packet is dropped, and then it does not matter what was stored in it before.
        let drops =
            f.block(first.fail).insts.is_empty() && f.block(first.fail).term == Term::Return(Opnd::C(0));
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

struct Check {
    value: Val,
    base: Opnd,
    end: Opnd,
    len: u32,
    ok: Block,
    fail: Block,
}

fn check(f: &Function, uses: &[u32], b: Block) -> Option<Check> {
    let Term::Branch(Opnd::V(value), ok, fail) = f.block(b).term else { return None };
    // The check must belong to this branch alone: a longer one elsewhere would be another question.
    if !f.block(b).insts.contains(&value) || uses[value.0 as usize] != 1 {
        return None;
    }
    let Op::InBounds { base, len, end } = f.inst(value).op else { return None };
    Some(Check { value, base, end, len, ok, fail })
}
