//! Flattening of nested joins.
//!
//! A chain of `else if` ends in as many two-way joins, each with phis for the same variables. One
//! join with many predecessors needs the phis only once.

use super::uses;
use crate::ir::graph::ControlFlowGraph;
use crate::ir::{Block, Function, Op, Opnd, Term, Val};
use std::collections::HashMap;

/// Maximum number of additional phi operands that flattening may cause, over all edges.
const MAX_REPEATED: usize = 8;

/// Redirects edges past blocks that only join; returns whether anything changed. The phis have
/// operands for exactly the existing edges.
pub(super) fn flatten(f: &mut Function) -> bool {
    let uses = uses::count(f);
    let mut changed = false;
    // Inner blocks first: outer blocks then join their predecessors.
    for b in ControlFlowGraph::new(f).order {
        if let Some(to) = joins_for(f, &uses, b) {
            changed |= redirect_past(f, b, to);
        }
    }
    changed
}

/// Returns the successor of a join block if only that successor uses the joined values.
fn joins_for(f: &Function, uses: &[u32], b: Block) -> Option<Block> {
    let data = f.block(b);
    let Term::Jump(to) = data.term else { return None };
    if data.phis.is_empty() || !data.insts.is_empty() {
        return None;
    }
    let mut operands = 0;
    let mut inside: HashMap<Val, usize> = HashMap::new();
    for o in f.block(to).phis.iter().filter_map(|v| f.phi_operand(*v, b)) {
        operands += 1;
        if let Opnd::V(v) = o {
            *inside.entry(v).or_default() += 1;
        }
    }
    let joined = |v: &Val| inside.get(v).copied().unwrap_or_default();
    if data.phis.iter().any(|v| uses[v.0 as usize] as usize != joined(v)) {
        return None;
    }
    let repeated = operands - data.phis.iter().map(joined).sum::<usize>();
    (repeated * predecessors(f, b).len().saturating_sub(1) <= MAX_REPEATED).then_some(to)
}

/// Returns the predecessors of a block with phis.
fn predecessors(f: &Function, b: Block) -> Vec<Block> {
    f.block(b).phis.first().into_iter().flat_map(|v| f.phi(*v)).map(|(p, _)| *p).collect()
}

fn redirect_past(f: &mut Function, b: Block, to: Block) -> bool {
    let mut changed = false;
    for p in predecessors(f, b) {
        // A block has at most one edge to a block with phis.
        if f.block(p).term.successors().contains(&to) {
            continue;
        }
        for phi in f.block(to).phis.clone() {
            let Some(o) = f.phi_operand(phi, b) else { continue };
            let joined = match o {
                Opnd::V(v) if f.block(b).phis.contains(&v) => f.phi_operand(v, p).unwrap_or(o),
                _ => o,
            };
            if let Op::Phi(ins) = &mut f.inst_mut(phi).op {
                ins.push((p, joined));
            }
        }
        f.for_each_phi(b, |_, ins| ins.retain(|(q, _)| *q != p));
        f.block_mut(p).term.redirect(b, to);
        changed = true;
    }
    changed
}
