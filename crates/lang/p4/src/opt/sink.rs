//! Sinking: moves computations to their uses, so that a field is loaded only on paths that use it.

use super::uses::{self, Use};
use crate::ir::graph::ControlFlowGraph;
use crate::ir::{Block, Function, Op, Val};
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
    let in_block = |b: &Block| f.block(*b).insts.iter().rev().map(|v| (*b, *v)).collect::<Vec<_>>();
    let all: Vec<(Block, Val)> = g.order.iter().rev().flat_map(in_block).collect();
    let mut by_value: HashMap<Val, Vec<Use>> = HashMap::new();
    for b in &g.order {
        uses::in_block(f, *b, &mut |v, found| by_value.entry(v).or_default().push(found));
    }
    for (b, v) in all {
        let packet = reads_packet(&f.inst(v).op);
        if !movable(&f.inst(v).op) {
            continue;
        }
        let block = |u: &Use| match u {
            Use::Inst(_, user) => home[user],
            Use::Term(b) | Use::Edge(_, b) => *b,
        };
        let blocks = by_value.get(&v).into_iter().flatten().map(block);
        let Some(mut target) = blocks.reduce(|a, p| g.meet(a, p)) else { continue };
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
    matches!(op, Op::Load { .. } | Op::Context(offset::DATA | offset::DATA_END | offset::PACKET_LENGTH, _))
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
