//! Simplification of the control flow graph: known branches, empty blocks, chains, equal exits.

use crate::ir::graph::ControlFlowGraph;
use crate::ir::{Block, Function, Opnd, Term};
use std::collections::HashMap;

/// Applies all rules until none matches; returns whether anything changed.
pub(super) fn tidy(f: &mut Function) -> bool {
    let mut any = false;
    loop {
        let mut changed = fold_branches(f);
        prune_phis(f);
        changed |= return_early(f);
        changed |= share_returns(f);
        changed |= skip_empty(f);
        prune_phis(f);
        changed |= drop_pointless(f);
        changed |= join_lines(f);
        prune_phis(f);
        changed |= super::joins::flatten(f);
        prune_phis(f);
        if !changed {
            return any;
        }
        any = true;
    }
}

fn fold_branches(f: &mut Function) -> bool {
    let mut changed = false;
    for b in &mut f.blocks {
        let new = match b.term {
            Term::Branch(Opnd::C(c), t, e) => Term::Jump(if c != 0 { t } else { e }),
            Term::Branch(_, t, e) if t == e => Term::Jump(t),
            _ => continue,
        };
        b.term = new;
        changed = true;
    }
    changed
}

/// Removes the phi operands of removed edges.
pub(super) fn prune_phis(f: &mut Function) {
    let g = ControlFlowGraph::new(f);
    for b in &g.order {
        let preds = g.preds(*b);
        // Each predecessor has one operand.
        f.for_each_phi(*b, |_, ins| {
            if ins.len() > preds.len() {
                ins.retain(|(p, _)| preds.contains(p));
            }
        });
    }
}

/// Lets a predecessor return directly if a block only returns the value of its phi.
fn return_early(f: &mut Function) -> bool {
    let g = ControlFlowGraph::new(f);
    let mut changed = false;
    for b in &g.order {
        let data = f.block(*b);
        let Term::Return(Opnd::V(v)) = data.term else { continue };
        if data.phis != [v] || !data.insts.is_empty() {
            continue;
        }
        for (p, o) in f.phi(v).to_vec() {
            if f.block(p).term == Term::Jump(*b) {
                f.block_mut(p).term = Term::Return(o);
                changed = true;
            }
        }
    }
    changed
}

/// Merges all empty blocks that return the same constant.
fn share_returns(f: &mut Function) -> bool {
    let g = ControlFlowGraph::new(f);
    let mut shared: HashMap<u64, Block> = HashMap::new();
    let mut to: HashMap<Block, Block> = HashMap::new();
    for b in &g.order {
        let data = f.block(*b);
        if let (Term::Return(Opnd::C(c)), true, true) =
            (&data.term, data.insts.is_empty(), data.phis.is_empty())
            && *b != Block(0)
        {
            let first = *shared.entry(*c).or_insert(*b);
            if first != *b {
                to.insert(*b, first);
            }
        }
    }
    for b in &g.order {
        f.block_mut(*b).term.for_each_successor(|s| {
            if let Some(n) = to.get(s) {
                *s = *n;
            }
        });
    }
    !to.is_empty()
}

/// Redirects edges past blocks that only jump.
fn skip_empty(f: &mut Function) -> bool {
    let mut changed = false;
    let g = ControlFlowGraph::new(f);
    // Kept up to date: a new graph for each block would take quadratic time.
    let mut preds: HashMap<Block, Vec<Block>> = g.order.iter().map(|b| (*b, g.preds(*b).to_vec())).collect();
    for b in g.order {
        let data = f.block(b);
        let Term::Jump(to) = data.term else { continue };
        if !data.phis.is_empty() || !data.insts.is_empty() || b == Block(0) || to == b {
            continue;
        }
        let into = preds.get(&b).cloned().unwrap_or_default();
        let has_phis = !f.block(to).phis.is_empty();
        let mut left = Vec::new();
        for p in into {
            // A block has at most one edge to a block with phis, because phis identify edges by
            // their origin.
            if has_phis && f.block(p).term.successors().contains(&to) {
                left.push(p);
                continue;
            }
            f.block_mut(p).term.redirect(b, to);
            let onto = preds.entry(to).or_default();
            if !onto.contains(&p) {
                onto.push(p);
            }
            f.for_each_phi(to, |_, ins| {
                let from = |b: Block| ins.iter().find(|(q, _)| *q == b).map(|(_, o)| *o);
                ins.extend(from(b).filter(|_| from(p).is_none()).map(|o| (p, o)));
            });
            changed = true;
        }
        // Without predecessors, the block is no predecessor: in a long chain of empty blocks, each would
        // have all those before it.
        if left.is_empty() {
            preds.entry(to).or_default().retain(|q| *q != b);
        }
        preds.insert(b, left);
    }
    changed
}

/// Removes branches whose two edges lead to the same block with the same values.
fn drop_pointless(f: &mut Function) -> bool {
    let mut changed = false;
    for b in ControlFlowGraph::new(f).order {
        let Term::Branch(_, t, e) = f.block(b).term else { continue };
        let ((to, by_t), (other, by_e)) = (target_through(f, b, t), target_through(f, b, e));
        if to != other || by_t == by_e {
            continue;
        }
        let same = f.block(to).phis.iter().all(|v| {
            let value = f.phi_operand(*v, by_t);
            value.is_some() && value == f.phi_operand(*v, by_e)
        });
        if same {
            f.block_mut(b).term = Term::Jump(t);
            changed = true;
        }
    }
    changed
}

/// Follows an edge from `b` through `to` if that block is empty; returns the target and its last
/// predecessor.
fn target_through(f: &Function, b: Block, to: Block) -> (Block, Block) {
    let data = f.block(to);
    match data.term {
        Term::Jump(end) if data.phis.is_empty() && data.insts.is_empty() => (end, to),
        _ => (to, b),
    }
}

/// Appends a block to its only predecessor if that has no other successor.
fn join_lines(f: &mut Function) -> bool {
    let g = ControlFlowGraph::new(f);
    let mut changed = false;
    // From the end, so that one pass joins whole chains.
    for b in g.order.iter().rev() {
        let [p] = g.preds(*b) else { continue };
        if f.block(*p).term != Term::Jump(*b) || !f.block(*b).phis.is_empty() {
            continue;
        }
        let data = f.block_mut(*b);
        let (insts, term) = (std::mem::take(&mut data.insts), std::mem::replace(&mut data.term, Term::None));
        for s in term.successors() {
            f.for_each_phi(s, |_, ins| ins.iter_mut().filter(|(q, _)| q == b).for_each(|(q, _)| *q = *p));
        }
        let into = f.block_mut(*p);
        into.insts.extend(insts);
        into.term = term;
        changed = true;
    }
    changed
}
