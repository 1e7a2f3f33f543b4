//! The dominator tree of a growing graph: each block is entered once, when all its predecessors are
//! known.

use super::Block;

/// The dominator tree; blocks have numbers in the order in which they were entered.
#[derive(Clone, Debug, Default)]
pub(super) struct DominatorTree {
    /// By block: its node; `NONE` if it was not entered.
    numbers: Vec<u32>,
    nodes: Vec<Node>,
}

/// A block in the tree.
#[derive(Clone, Copy, Debug)]
struct Node {
    block: Block,
    /// The immediate dominator; a root's own number.
    parent: u32,
    /// An ancestor further up, chosen so that a search for any ancestor takes logarithmic time
    /// (Myers, "An applicative random-access stack", 1983).
    jump: u32,
    depth: u32,
}

const NONE: u32 = u32::MAX;

impl DominatorTree {
    /// Enters a block, given all its predecessors, which were entered before.
    pub(super) fn enter(&mut self, b: Block, preds: &[Block]) {
        let i = b.0 as usize;
        if i >= self.numbers.len() {
            self.numbers.resize(i + 1, NONE);
        }
        if self.numbers[i] != NONE {
            return;
        }
        let own = self.nodes.len() as u32;
        let parent = preds.iter().map(|p| self.number(*p)).reduce(|a, b| self.meet(a, b));
        let node = match parent {
            None => Node { block: b, parent: own, jump: own, depth: 0 },
            Some(parent) => {
                let p = self.node(parent);
                let (near, far) = (self.node(p.jump), self.node(self.node(p.jump).jump));
                let even = p.depth - near.depth == near.depth - far.depth;
                Node { block: b, parent, jump: if even { near.jump } else { parent }, depth: p.depth + 1 }
            }
        };
        self.numbers[i] = own;
        self.nodes.push(node);
    }

    fn node(&self, n: u32) -> Node {
        self.nodes[n as usize]
    }

    /// Returns the number of a block that was entered.
    pub(super) fn number(&self, b: Block) -> u32 {
        self.numbers[b.0 as usize]
    }

    /// Returns the nearest common ancestor; the first of all blocks if there is none.
    fn meet(&self, a: u32, b: u32) -> u32 {
        let (mut a, mut b) = if self.node(a).depth >= self.node(b).depth { (a, b) } else { (b, a) };
        while self.node(a).depth > self.node(b).depth {
            let n = self.node(a);
            a = if self.node(n.jump).depth >= self.node(b).depth { n.jump } else { n.parent };
        }
        while a != b {
            let (x, y) = (self.node(a), self.node(b));
            if x.depth == 0 {
                return 0;
            }
            (a, b) = if x.jump == y.jump { (x.parent, y.parent) } else { (x.jump, y.jump) };
        }
        a
    }

    /// Returns the highest among `b` and its ancestors whose number is at least `least`.
    pub(super) fn highest(&self, b: Block, least: u32) -> Block {
        let mut at = self.number(b);
        loop {
            let n = self.node(at);
            if n.jump != at && n.jump >= least {
                at = n.jump;
            } else if n.parent != at && n.parent >= least {
                at = n.parent;
            } else {
                return n.block;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestors_are_found_by_number() {
        let mut t = DominatorTree::default();
        t.enter(Block(0), &[]);
        // A chain of diamonds: block 3 i is the fork, 3 i + 1 and 3 i + 2 the arms, 3 i + 3 the join.
        for i in 0..200u32 {
            let fork = Block(3 * i);
            t.enter(Block(3 * i + 1), &[fork]);
            t.enter(Block(3 * i + 2), &[fork]);
            t.enter(Block(3 * i + 3), &[Block(3 * i + 1), Block(3 * i + 2)]);
        }
        for at in [1u32, 30, 301, 600] {
            for least in 0..=at {
                // Dominators are the forks up to here, and the block itself.
                let expected = (least..=at).find(|n| n % 3 == 0 || *n == at);
                assert_eq!(Some(t.highest(Block(at), least).0), expected, "{at} {least}");
            }
        }
    }
}
