//! Sinking: moves computations to their uses, so that a field is loaded only on paths that use it.

use crate::ir::graph::ControlFlowGraph;
use crate::ir::{Block, Function, Op, Opnd, Val};
use p4shield_abi::context::offset;
use std::collections::{HashMap, HashSet};

/// Sinks computations that have no effect and depend on nothing that changes.
pub(super) fn sink(f: &mut Function) {
    let g = ControlFlowGraph::new(f);
    let dirty = dirty_blocks(f, &g);
    let mut home: HashMap<Val, Block> = HashMap::new();
    for b in &g.order {
        home.extend(f.block(*b).insts.iter().map(|v| (*v, *b)));
    }
    // Users before operands, so that each computation sees the new positions of its users.
    let all: Vec<(Block, Val)> = g
        .order
        .iter()
        .rev()
        .flat_map(|b| f.block(*b).insts.iter().rev().map(|v| (*b, *v)).collect::<Vec<_>>())
        .collect();
    let uses = use_blocks(f, &g);
    for (b, v) in all {
        let packet = reads_packet(&f.inst(v).op);
        if !movable(&f.inst(v).op) {
            continue;
        }
        let Some(uses_of) = uses.get(&v) else { continue };
        let uses_of: Vec<Block> = uses_of.iter().map(|u| u.block(&home)).collect();
        let Some(mut target) = uses_of.iter().copied().reduce(|a, p| g.meet(a, p)) else { continue };
        while packet && target != b && dirty.contains(&target) {
            target = g.idom(target);
        }
        if !g.dominates(b, target) {
            continue;
        }
        f.block_mut(b).insts.retain(|i| *i != v);
        let at = position(f, target, v, packet);
        f.block_mut(target).insts.insert(at, v);
        home.insert(v, target);
    }
}

/// A use of a value.
enum Use {
    By(Val),
    In(Block),
}

impl Use {
    fn block(&self, home: &HashMap<Val, Block>) -> Block {
        match self {
            Self::By(v) => home[v],
            Self::In(b) => *b,
        }
    }
}

fn use_blocks(f: &Function, g: &ControlFlowGraph) -> HashMap<Val, Vec<Use>> {
    let mut uses: HashMap<Val, Vec<Use>> = HashMap::new();
    for b in &g.order {
        for phi in &f.block(*b).phis {
            if let Op::Phi(ins) = &f.inst(*phi).op {
                for (p, o) in ins {
                    if let Opnd::V(v) = o {
                        uses.entry(*v).or_default().push(Use::In(*p));
                    }
                }
            }
        }
        for i in &f.block(*b).insts {
            f.inst(*i).op.visit(&mut |o| {
                if let Opnd::V(v) = o {
                    uses.entry(v).or_default().push(Use::By(*i));
                }
            });
        }
        if let Some(Opnd::V(v)) = f.block(*b).term.operand() {
            uses.entry(v).or_default().push(Use::In(*b));
        }
    }
    uses
}

const fn movable(op: &Op) -> bool {
    // A context field that the program sets must be read before.
    let set = matches!(op, Op::Context(offset::OUTPUT_ACTION | offset::OUTPUT_PORT, _));
    !set && matches!(
        op,
        Op::Bin(..)
            | Op::Cmp(..)
            | Op::Swap(..)
            | Op::Offset(..)
            | Op::InBounds { .. }
            | Op::Load { .. }
            | Op::Context(..)
    )
}

/// Whether the result changes when the packet does.
const fn reads_packet(op: &Op) -> bool {
    matches!(op, Op::Load { .. } | Op::Context(offset::DATA | offset::DATA_END, _))
}

/// Returns the blocks at whose start the packet may already have changed.
fn dirty_blocks(f: &Function, g: &ControlFlowGraph) -> HashSet<Block> {
    let mut dirty = HashSet::new();
    for b in &g.order {
        let changes =
            |p: &Block| dirty.contains(p) || f.block(*p).insts.iter().any(|i| f.inst(*i).op.changes_packet());
        if g.preds(*b).iter().any(changes) {
            dirty.insert(*b);
        }
    }
    dirty
}

/// Returns the position for a value in a block: right before its first user and, if it reads the
/// packet, before the packet changes.
fn position(f: &Function, b: Block, v: Val, packet: bool) -> usize {
    let insts = &f.block(b).insts;
    let stops = |i: &Val| {
        let op = &f.inst(*i).op;
        op.uses(v) || packet && op.changes_packet()
    };
    insts.iter().position(stops).unwrap_or(insts.len())
}
