//! Restoration of SSA form after a block was copied for some of its predecessors.

use super::uses::{self, Use};
use crate::ir::graph::ControlFlowGraph;
use crate::ir::{Block, Function, Op, Opnd, Val};
use std::collections::HashMap;

/// One value that now has two definitions.
struct Split<'a> {
    f: &'a mut Function,
    g: &'a ControlFlowGraph,
    /// Values at the end of the two defining blocks.
    defs: [(Block, Opnd); 2],
    at_start: HashMap<Block, Opnd>,
    like: Val,
}

/// Rewrites the uses of a copied block's values in all other blocks. `original` was copied to
/// `copy`; `map` maps each value of the original to that of the copy.
pub(super) fn split(f: &mut Function, original: Block, copy: Block, map: &HashMap<Val, Opnd>) {
    let g = ControlFlowGraph::new(f);
    let mut by_value: HashMap<Val, Vec<Use>> = HashMap::new();
    for b in &g.order {
        if *b != original && *b != copy {
            uses::in_block(f, *b, &mut |v, found| {
                if map.contains_key(&v) {
                    by_value.entry(v).or_default().push(found);
                }
            });
        }
    }
    let mut all: Vec<_> = by_value.into_iter().collect();
    all.sort_by_key(|(v, _)| *v);
    for (v, uses_of) in all {
        let defs = [(original, Opnd::V(v)), (copy, map[&v])];
        let mut s = Split { f, g: &g, defs, at_start: HashMap::new(), like: v };
        for use_site in uses_of {
            s.rewrite(&use_site);
        }
    }
}

impl Split<'_> {
    fn rewrite(&mut self, use_site: &Use) {
        let old = Opnd::V(self.like);
        match use_site {
            Use::Inst(b, i) => {
                let new = self.start(*b);
                self.f.inst_mut(*i).op.for_each_operand(&mut |o| {
                    if *o == old {
                        *o = new;
                    }
                });
            }
            Use::Term(b) => {
                let new = self.start(*b);
                if let Some(o) = self.f.block_mut(*b).term.operand_mut() {
                    *o = new;
                }
            }
            Use::Edge(phi, p) => {
                let new = self.end(*p);
                if let Op::Phi(ins) = &mut self.f.inst_mut(*phi).op {
                    ins.iter_mut().filter(|(q, o)| q == p && *o == old).for_each(|(_, o)| *o = new);
                }
            }
        }
    }

    fn known_end(&self, b: Block) -> Option<Opnd> {
        let def = self.defs.iter().find(|(d, _)| *d == b).map(|(_, o)| *o);
        def.or_else(|| self.at_start.get(&b).copied())
    }

    fn end(&mut self, b: Block) -> Opnd {
        self.known_end(b).unwrap_or_else(|| self.start(b))
    }

    /// Returns the value at the start of a block, from all its predecessors; uses a work list
    /// instead of recursion.
    fn start(&mut self, b: Block) -> Opnd {
        let mut open = vec![b];
        while let Some(at) = open.last().copied() {
            if self.at_start.contains_key(&at) {
                open.pop();
                continue;
            }
            let preds = self.g.preds(at).to_vec();
            let unknown: Vec<Block> =
                preds.iter().copied().filter(|p| self.known_end(*p).is_none()).collect();
            if !unknown.is_empty() {
                open.extend(unknown);
                continue;
            }
            let ins: Vec<(Block, Opnd)> =
                preds.iter().filter_map(|p| Some((*p, self.known_end(*p)?))).collect();
            let value = match ins.first() {
                // No path from either definition leads here.
                None => Opnd::C(0),
                Some((_, first)) if ins.iter().all(|(_, o)| o == first) => *first,
                Some(_) => {
                    let (ty, span) = (self.f.inst(self.like).ty, self.f.inst(self.like).span);
                    let phi = self.f.make(Op::Phi(ins), ty, span);
                    self.f.block_mut(at).phis.push(phi);
                    Opnd::V(phi)
                }
            };
            self.at_start.insert(at, value);
        }
        self.at_start[&b]
    }
}
