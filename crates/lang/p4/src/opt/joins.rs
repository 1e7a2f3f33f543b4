//! Ways that meet only to meet others right behind.
//!
//! A chain of `else if` ends in as many blocks where two ways meet each, and each tells again what every variable is.
//! Where they meet in one block, that is told once.

use super::uses;
use crate::ir::graph::Graph;
use crate::ir::{Block, Function, Op, Opnd, Term, Val};

/// Values that may have to be told on more ways than before, counted over the ways.
const MAX_REPEATED: usize = 8;

/// Leads ways past blocks that do nothing but join them; returns whether anything changed. The phis know the edges
/// that there are, and no others.
pub(super) fn flatten(f: &mut Function) -> bool {
    let uses = uses::count(f);
    let mut changed = false;
    // Inner blocks first: what they join is joined by the outer ones then.
    for b in Graph::new(f).order {
        if let Some(to) = joins_for(f, &uses, b) {
            changed |= lead_past(f, b, to);
        }
    }
    changed
}

/// The block that a join leads to, if the values that it joins matter there alone.
fn joins_for(f: &Function, uses: &[u32], b: Block) -> Option<Block> {
    let data = f.block(b);
    let Term::Jump(to) = data.term else { return None };
    if data.phis.is_empty() || !data.insts.is_empty() {
        return None;
    }
    let told: Vec<Opnd> = f.block(to).phis.iter().filter_map(|v| from(f, *v, b)).collect();
    let inside = |v: Val| told.iter().filter(|o| **o == Opnd::V(v)).count();
    if data.phis.iter().any(|v| uses[v.0 as usize] as usize != inside(*v)) {
        return None;
    }
    let repeated = told.iter().filter(|o| !data.phis.iter().any(|v| **o == Opnd::V(*v))).count();
    (repeated * ways(f, b).len().saturating_sub(1) <= MAX_REPEATED).then_some(to)
}

/// The blocks that lead to a block with phis.
fn ways(f: &Function, b: Block) -> Vec<Block> {
    match f.block(b).phis.first().map(|v| &f.inst(*v).op) {
        Some(Op::Phi(ins)) => ins.iter().map(|(p, _)| *p).collect(),
        _ => Vec::new(),
    }
}

/// What a phi is on the way from a block.
fn from(f: &Function, phi: Val, p: Block) -> Option<Opnd> {
    let Op::Phi(ins) = &f.inst(phi).op else { return None };
    ins.iter().find(|(q, _)| *q == p).map(|(_, o)| *o)
}

fn lead_past(f: &mut Function, b: Block, to: Block) -> bool {
    let mut changed = false;
    for p in ways(f, b) {
        // A block has at most one edge to a block with phis.
        if f.block(p).term.successors().contains(&to) {
            continue;
        }
        for phi in f.block(to).phis.clone() {
            let Some(o) = from(f, phi, b) else { continue };
            let joined = match o {
                Opnd::V(v) if f.block(b).phis.contains(&v) => from(f, v, p).unwrap_or(o),
                _ => o,
            };
            if let Op::Phi(ins) = &mut f.inst_mut(phi).op {
                ins.push((p, joined));
            }
        }
        for v in f.block(b).phis.clone() {
            if let Op::Phi(ins) = &mut f.inst_mut(v).op {
                ins.retain(|(q, _)| *q != p);
            }
        }
        f.block_mut(p).term.for_each_successor(|s| {
            if *s == b {
                *s = to;
            }
        });
        changed = true;
    }
    changed
}
