//! Jump threading: if a path to a branch determines the branch's direction, the path bypasses the branch.

use super::facts::BranchFacts;
use super::fold;
use super::repair::Repair;
use crate::ir::graph::ControlFlowGraph;
use crate::ir::{Block, Function, Op, Opnd, Term, Ty, Val};
use std::collections::HashMap;

/// Maximum number of a block's instructions that are copied for one path.
const MAX_COPIED: usize = 12;
/// Maximum number of paths threaded in one pass, as a bound on its cost.
const MAX_THREADED: usize = 400;
/// Maximum number of blocks that one pass visits over all paths: in a large function, fewer paths
/// are threaded.
const MAX_VISITED: usize = 1_000_000;
const MAX_INSTS: usize = 200_000;

/// Threads jumps; returns whether anything changed.
pub(super) fn thread_jumps(f: &mut Function) -> bool {
    let limit = MAX_THREADED.min(MAX_VISITED / f.blocks.len().max(1));
    let mut threaded = 0;
    while threaded < limit && f.insts.len() <= MAX_INSTS {
        let (mut sweep, before) = (Sweep::new(f), threaded);
        for b in sweep.g.order.clone() {
            while threaded < limit
                && let Some((from, to)) = sweep.find(f, b)
            {
                sweep.bypass(f, from, b, to);
                threaded += 1;
            }
        }
        if threaded == before {
            break;
        }
    }
    threaded > 0
}

/// One pass over the blocks, each behind all its predecessors.
///
/// One graph and its facts serve the whole sweep, although each bypass adds a path: on the new path, the
/// copied block's condition has the value that the old edge implies, and what holds in the dominators of
/// the copied block holds in the predecessor.
struct Sweep {
    g: ControlFlowGraph,
    facts: BranchFacts,
    /// The predecessors of all blocks, with the copies.
    preds: Vec<Vec<Block>>,
    /// For each copy, the block of the graph whose facts hold in it.
    origins: HashMap<Block, Block>,
    repair: Repair,
}

impl Sweep {
    fn new(f: &Function) -> Self {
        let g = ControlFlowGraph::new(f);
        let mut facts = BranchFacts::default();
        for b in &g.order {
            facts.enter(f, &g, *b);
        }
        let (preds, repair) = (g.preds.clone(), Repair::new(f, &g.order));
        Self { g, facts, preds, origins: HashMap::new(), repair }
    }

    /// Finds a path through a block whose branch the path determines: the predecessor and the target.
    fn find(&self, f: &Function, b: Block) -> Option<(Block, Block)> {
        let data = f.block(b);
        let Term::Branch(c, t, e) = data.term else { return None };
        let preds = &self.preds[b.0 as usize];
        if preds.len() < 2 || data.insts.len() > MAX_COPIED {
            return None;
        }
        if data.insts.iter().any(|i| f.inst(*i).op.is_call()) {
            return None;
        }
        let twice = |p: Block| f.block(p).term.successors().iter().filter(|s| **s == b).count() > 1;
        preds.iter().filter(|p| !twice(**p)).find_map(|p| {
            let known_at = self.origins.get(p).copied().unwrap_or(*p);
            let edge = IncomingEdge { f, g: &self.g, facts: &self.facts, from: *p, known_at, over: b };
            edge.value(c, 8).map(|n| (*p, if n != 0 { t } else { e }))
        })
    }

    /// Copies `over` for the path from `from`, and lets the copy jump to `to`.
    fn bypass(&mut self, f: &mut Function, from: Block, over: Block, to: Block) {
        let (label, span) = (f.block(over).label.clone(), f.block(over).span);
        let copy = f.add_block(&label, span);
        let mut map: HashMap<Val, Opnd> = HashMap::new();
        f.for_each_phi(over, |v, ins| {
            if let Some(i) = ins.iter().position(|(p, _)| *p == from) {
                map.insert(v, ins.remove(i).1);
            }
        });
        for v in f.block(over).insts.clone() {
            let mut inst = f.inst(v).clone();
            inst.op.for_each_operand(&mut |o| *o = mapped(&map, *o));
            let new = f.make(inst.op, inst.ty, inst.span);
            f.block_mut(copy).insts.push(new);
            map.insert(v, Opnd::V(new));
        }
        f.block_mut(copy).term = Term::Jump(to);
        f.for_each_phi(to, |_, ins| {
            let operand = ins.iter().find(|(p, _)| *p == over).map(|(_, o)| mapped(&map, *o));
            ins.extend(operand.map(|o| (copy, o)));
        });
        f.block_mut(from).term.redirect(over, copy);
        self.preds[over.0 as usize].retain(|p| *p != from);
        self.preds[to.0 as usize].push(copy);
        self.preds.resize(f.blocks.len(), vec![from]);
        let origin = self.origins.get(&from).copied().unwrap_or(from);
        self.origins.insert(copy, origin);
        self.repair.split(f, &self.preds, (over, copy), &map);
    }
}

/// The facts on entry to a block from one predecessor.
struct IncomingEdge<'a> {
    f: &'a Function,
    g: &'a ControlFlowGraph,
    facts: &'a BranchFacts,
    from: Block,
    /// The block of the graph whose facts hold in the predecessor.
    known_at: Block,
    over: Block,
}

impl IncomingEdge<'_> {
    /// Returns the value of an operand on this path, if known.
    fn value(&self, o: Opnd, depth: u8) -> Option<u64> {
        let v = match o {
            Opnd::C(c) => return Some(c),
            Opnd::V(v) => v,
        };
        if depth == 0 {
            return None;
        }
        let data = self.f.block(self.over);
        let inst = self.f.inst(v);
        if data.phis.contains(&v) {
            return match self.f.phi_operand(v, self.from)? {
                Opnd::C(c) => Some(c),
                Opnd::V(v) => self.known(v),
            };
        }
        if !data.insts.contains(&v) {
            return self.known(v);
        }
        match (&inst.op, inst.ty) {
            (Op::Cmp(cc, a, b, w), _) => {
                Some(u64::from(cc.holds(self.value(*a, depth - 1)?, self.value(*b, depth - 1)?, *w)))
            }
            (Op::Bin(op, a, b), Ty::Int(w)) => {
                let (x, y) = (self.value(*a, depth - 1), self.value(*b, depth - 1));
                match (op, x, y) {
                    (crate::ir::BinOp::And, Some(0), _) | (crate::ir::BinOp::And, _, Some(0)) => Some(0),
                    (_, Some(x), Some(y)) => Some(fold::constant(*op, x, y, w)),
                    _ => None,
                }
            }
            (Op::Swap(n, a), _) => Some(fold::swap(*n, self.value(*a, depth - 1)?)),
            (Op::InBounds { base, len, end }, _) => {
                let (base, end) = (self.pointer(*base), self.pointer(*end));
                self.facts.in_bounds(self.g, base, end, self.known_at).filter(|n| n >= len).map(|_| 1)
            }
            _ => None,
        }
    }

    /// Returns a pointer as it is at the end of the predecessor.
    fn pointer(&self, o: Opnd) -> Opnd {
        match o {
            Opnd::V(v) if self.f.block(self.over).phis.contains(&v) => {
                self.f.phi_operand(v, self.from).unwrap_or(o)
            }
            _ => o,
        }
    }

    /// Returns what earlier branches, or the edge to this block, imply about a value.
    fn known(&self, v: Val) -> Option<u64> {
        self.facts.value(self.g, v, self.known_at).or(match self.f.block(self.from).term {
            Term::Branch(Opnd::V(c), t, e) if t != e && c == v => Some(u64::from(t == self.over)),
            _ => None,
        })
    }
}

fn mapped(map: &HashMap<Val, Opnd>, o: Opnd) -> Opnd {
    match o {
        Opnd::V(v) => map.get(&v).copied().unwrap_or(o),
        Opnd::C(_) => o,
    }
}
