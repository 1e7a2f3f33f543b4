//! Restoration of SSA form after a block was copied for some of its predecessors.

use super::uses::{Use, UseIndex};
use crate::ir::{Block, Function, Op, Opnd, Val};
use std::collections::HashMap;

/// A value at the start of blocks, one value after the other: a list by block, since most of the
/// optimiser's time for a long chain of headers was spent in hashing blocks.
#[derive(Debug, Default)]
struct Starts {
    /// The number of the value.
    now: u32,
    /// By block: the last value that was found for it, and the result.
    found: Vec<(u32, Opnd)>,
}

impl Starts {
    /// Forgets all, for another value in a function with so many blocks.
    fn forget(&mut self, blocks: usize) {
        self.now += 1;
        self.found.resize(blocks, (0, Opnd::C(0)));
    }

    fn get(&self, b: Block) -> Option<Opnd> {
        let (value, found) = self.found[b.0 as usize];
        (value == self.now).then_some(found)
    }

    fn set(&mut self, b: Block, found: Opnd) {
        self.found[b.0 as usize] = (self.now, found);
    }
}

/// One value that now has two definitions.
struct Split<'a> {
    f: &'a mut Function,
    preds: &'a [Vec<Block>],
    uses: &'a mut UseIndex,
    starts: &'a mut Starts,
    /// Values at the end of the two defining blocks.
    defs: [(Block, Opnd); 2],
    like: Val,
}

/// The repair of one function.
pub(super) struct Repair {
    uses: UseIndex,
    starts: Starts,
}

impl Repair {
    /// Begins, with the uses in these blocks.
    pub(super) fn new(f: &Function, blocks: &[Block]) -> Self {
        Self { uses: UseIndex::new(f, blocks), starts: Starts::default() }
    }

    /// Rewrites the uses of a copied block's values in all other blocks. `original` was copied to
    /// `copy`; `map` maps each value of the original to that of the copy. `preds` has the predecessors of
    /// all blocks with the copy.
    pub(super) fn split(
        &mut self,
        f: &mut Function,
        preds: &[Vec<Block>],
        (original, copy): (Block, Block),
        map: &HashMap<Val, Opnd>,
    ) {
        let Self { uses, starts } = self;
        let mut values: Vec<Val> = map.keys().copied().collect();
        values.sort();
        for v in values {
            let within = |u: &Use| matches!(u, Use::Inst(b, _) | Use::Term(b) if *b == original);
            let outside: Vec<Use> = uses.of(f, v).into_iter().filter(|u| !within(u)).collect();
            let defs = [(original, Opnd::V(v)), (copy, map[&v])];
            starts.forget(preds.len());
            let mut s = Split { f, preds, uses, starts, defs, like: v };
            for use_site in outside {
                s.rewrite(use_site);
            }
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
        let [(original, old), (copy, new)] = self.defs;
        if b == original {
            Some(old)
        } else if b == copy {
            Some(new)
        } else {
            self.starts.get(b)
        }
    }

    fn end(&mut self, b: Block) -> Opnd {
        self.known_end(b).unwrap_or_else(|| self.start(b))
    }

    /// Returns the value at the start of a block, from all its predecessors; uses a work list
    /// instead of recursion.
    fn start(&mut self, b: Block) -> Opnd {
        let all = self.preds;
        let mut open = vec![b];
        let mut value = Opnd::C(0);
        while let Some(at) = open.last().copied() {
            if let Some(known) = self.starts.get(at) {
                value = known;
                open.pop();
                continue;
            }
            let (preds, before) = (&all[at.0 as usize], open.len());
            open.extend(preds.iter().copied().filter(|p| self.known_end(*p).is_none()));
            if open.len() == before {
                let found = self.join(at, preds);
                self.starts.set(at, found);
            }
        }
        value
    }

    /// Returns the value at the start of a block whose predecessors all have it at their end.
    fn join(&mut self, at: Block, preds: &[Block]) -> Opnd {
        let mut ends = preds.iter().filter_map(|p| self.known_end(*p));
        // Without predecessors, no path from either definition leads here.
        let Some(first) = ends.next() else { return Opnd::C(0) };
        if ends.all(|o| o == first) {
            return first;
        }
        let ins: Vec<(Block, Opnd)> = preds.iter().filter_map(|p| Some((*p, self.known_end(*p)?))).collect();
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
}
