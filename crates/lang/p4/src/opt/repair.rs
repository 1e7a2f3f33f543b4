//! Restoration of SSA form after a block was copied for some of its predecessors.

use super::uses::{Use, UseIndex};
use crate::ir::{Block, Function, Op, Opnd, Val};
use std::collections::HashMap;

/// One value that now has two definitions.
struct Split<'a> {
    f: &'a mut Function,
    preds: &'a [Vec<Block>],
    uses: &'a mut UseIndex,
    /// Values at the end of the two defining blocks.
    defs: [(Block, Opnd); 2],
    at_start: HashMap<Block, Opnd>,
    like: Val,
}

/// Rewrites the uses of a copied block's values in all other blocks. `original` was copied to
/// `copy`; `map` maps each value of the original to that of the copy. `preds` has the predecessors of
/// all blocks with the copy; `uses` stays up to date.
pub(super) fn split(
    f: &mut Function,
    preds: &[Vec<Block>],
    uses: &mut UseIndex,
    (original, copy): (Block, Block),
    map: &HashMap<Val, Opnd>,
) {
    let mut values: Vec<Val> = map.keys().copied().collect();
    values.sort();
    for v in values {
        let within = |u: &Use| matches!(u, Use::Inst(b, _) | Use::Term(b) if *b == original);
        let outside: Vec<Use> = uses.of(f, v).into_iter().filter(|u| !within(u)).collect();
        let defs = [(original, Opnd::V(v)), (copy, map[&v])];
        let mut s = Split { f, preds, uses, defs, at_start: HashMap::new(), like: v };
        for use_site in outside {
            s.rewrite(use_site);
        }
    }
}

impl Split<'_> {
    fn rewrite(&mut self, use_site: Use) {
        let old = Opnd::V(self.like);
        let new = match use_site {
            Use::Inst(b, _) | Use::Term(b) => self.start(b),
            Use::Edge(_, p) => self.end(p),
        };
        match use_site {
            Use::Inst(_, i) => self.f.inst_mut(i).op.for_each_operand(&mut |o| {
                if *o == old {
                    *o = new;
                }
            }),
            Use::Term(b) => {
                if let Some(o) = self.f.block_mut(b).term.operand_mut() {
                    *o = new;
                }
            }
            Use::Edge(phi, p) => {
                if let Op::Phi(ins) = &mut self.f.inst_mut(phi).op {
                    ins.iter_mut().filter(|(q, o)| *q == p && *o == old).for_each(|(_, o)| *o = new);
                }
            }
        }
        if let Opnd::V(v) = new
            && new != old
        {
            self.uses.add(v, use_site);
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
            let preds = &self.preds[at.0 as usize];
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
                    let phi = self.f.make(Op::Phi(ins.clone()), ty, span);
                    for (p, o) in ins {
                        if let Opnd::V(v) = o {
                            self.uses.add(v, Use::Edge(phi, p));
                        }
                    }
                    self.f.block_mut(at).phis.push(phi);
                    Opnd::V(phi)
                }
            };
            self.at_start.insert(at, value);
        }
        self.at_start[&b]
    }
}
