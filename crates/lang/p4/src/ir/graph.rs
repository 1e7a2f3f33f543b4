//! Order, predecessors and dominators of blocks.

use super::{Block, Function};

/// The control flow graph of a function; outdated as soon as an edge changes.
#[derive(Debug)]
pub(crate) struct ControlFlowGraph {
    /// Reachable blocks, each behind all its predecessors.
    pub(crate) order: Vec<Block>,
    pub(crate) preds: Vec<Vec<Block>>,
    /// Index into `order`; `usize::MAX` if the block is unreachable.
    pub(crate) position: Vec<usize>,
    idom: Vec<Block>,
    /// Entry and exit numbers of a walk over the dominator tree.
    range: Vec<(u32, u32)>,
}

impl ControlFlowGraph {
    pub(crate) fn new(f: &Function) -> Self {
        let n = f.blocks.len();
        let order = topological(f);
        let mut position = vec![usize::MAX; n];
        let mut preds = vec![Vec::new(); n];
        for (i, b) in order.iter().enumerate() {
            position[b.0 as usize] = i;
            for s in f.block(*b).term.successors() {
                preds[s.0 as usize].push(*b);
            }
        }
        let mut g = Self { order, preds, position, idom: vec![Block(0); n], range: vec![(0, 0); n] };
        g.dominators();
        g
    }

    fn dominators(&mut self) {
        for b in self.order.iter().skip(1) {
            let mut preds = self.preds[b.0 as usize].iter();
            let Some(first) = preds.next() else { continue };
            let meet = preds.fold(*first, |a, p| self.meet(a, *p));
            self.idom[b.0 as usize] = meet;
        }
        let mut children = vec![Vec::new(); self.idom.len()];
        for b in self.order.iter().skip(1) {
            children[self.idom[b.0 as usize].0 as usize].push(*b);
        }
        let mut clock = 0;
        let mut stack = vec![(Block(0), false)];
        while let Some((b, leaving)) = stack.pop() {
            clock += 1;
            if leaving {
                self.range[b.0 as usize].1 = clock;
                continue;
            }
            self.range[b.0 as usize].0 = clock;
            stack.push((b, true));
            stack.extend(children[b.0 as usize].iter().map(|c| (*c, false)));
        }
    }

    /// Returns the nearest block that dominates both.
    pub(crate) fn meet(&self, mut a: Block, mut b: Block) -> Block {
        let at = |x: Block| self.position[x.0 as usize];
        while a != b {
            if at(a) > at(b) { a = self.idom[a.0 as usize] } else { b = self.idom[b.0 as usize] }
        }
        a
    }

    pub(crate) fn idom(&self, b: Block) -> Block {
        self.idom[b.0 as usize]
    }

    /// Whether every path to `b` passes `a`, or they are the same block.
    pub(crate) fn dominates(&self, a: Block, b: Block) -> bool {
        let (x, y) = (self.range[a.0 as usize], self.range[b.0 as usize]);
        x.0 <= y.0 && y.1 <= x.1
    }

    pub(crate) fn preds(&self, b: Block) -> &[Block] {
        &self.preds[b.0 as usize]
    }
}

/// Returns reachable blocks in reverse postorder, which is topological because there are no cycles.
fn topological(f: &Function) -> Vec<Block> {
    let mut seen = vec![false; f.blocks.len()];
    let mut order = Vec::new();
    let mut stack = vec![(Block(0), false)];
    while let Some((b, done)) = stack.pop() {
        if done {
            order.push(b);
            continue;
        }
        if std::mem::replace(&mut seen[b.0 as usize], true) {
            continue;
        }
        stack.push((b, true));
        // The likely path, the first successor, is placed right behind the block.
        for s in f.block(b).term.successors() {
            if !seen[s.0 as usize] {
                stack.push((s, false));
            }
        }
    }
    order.reverse();
    order
}
