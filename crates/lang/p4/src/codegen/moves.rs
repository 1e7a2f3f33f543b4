//! Parallel moves: at the ends of blocks for phis, before calls for arguments.

use crate::ir::graph::ControlFlowGraph;
use crate::ir::{Block, Function, Opnd, Term};

/// Splits the edges to blocks with phis by new blocks for their moves: one for every edge from a
/// branch, and one for all edges with the same moves.
pub(super) fn split_edges(f: &mut Function) {
    let g = ControlFlowGraph::new(f);
    for b in &g.order {
        if f.block(*b).phis.is_empty() {
            continue;
        }
        let mut groups: Vec<(Vec<Opnd>, Vec<Block>)> = Vec::new();
        for p in g.preds(*b) {
            let moves = moves_from(f, *p, *b);
            match groups.iter_mut().find(|(m, _)| *m == moves) {
                Some((_, from)) => from.push(*p),
                None => groups.push((moves, vec![*p])),
            }
        }
        for (_, from) in groups {
            if from.len() > 1 || matches!(f.block(from[0]).term, Term::Branch(..)) {
                insert_edge_block(f, &from, *b);
            }
        }
    }
}

/// Returns the operands of a block's phis for a predecessor.
fn moves_from(f: &Function, p: Block, b: Block) -> Vec<Opnd> {
    f.block(b).phis.iter().filter_map(|v| f.phi_operand(*v, p)).collect()
}

fn insert_edge_block(f: &mut Function, from: &[Block], to: Block) {
    let edge = f.add_block("edge", f.block(to).span);
    f.block_mut(edge).term = Term::Jump(to);
    for p in from {
        f.block_mut(*p).term.redirect(to, edge);
    }
    f.for_each_phi(to, |_, ins| {
        if let Some(first) = ins.iter_mut().find(|(q, _)| *q == from[0]) {
            first.0 = edge;
            ins.retain(|(q, _)| !from.contains(q));
        }
    });
}

/// A step of a sequence of parallel moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step<P> {
    /// Moves the second storage to the first.
    Move(P, P),
    /// Saves a storage to the temporary.
    Save(P),
    Restore(P),
}

/// Orders parallel moves so that each value is read before it is overwritten. Breaks a cycle by
/// saving one value.
pub(super) fn sequence<P: Copy + PartialEq>(moves: &[(P, P)]) -> Vec<Step<P>> {
    let mut left: Vec<(P, P)> = moves.iter().copied().filter(|(d, s)| d != s).collect();
    let mut out = Vec::new();
    // The storage whose value was saved; its reader uses the temporary.
    let mut saved: Option<P> = None;
    while !left.is_empty() {
        let free = left.iter().position(|(d, _)| !left.iter().any(|(_, s)| s == d && saved != Some(*s)));
        match free {
            Some(i) => {
                let (d, s) = left.remove(i);
                if saved == Some(s) {
                    out.push(Step::Restore(d));
                    saved = None;
                } else {
                    out.push(Step::Move(d, s));
                }
            }
            None => {
                let (_, s) = left[0];
                out.push(Step::Save(s));
                saved = Some(s);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the steps on storages 0 to 9, which contain their own numbers.
    fn run(moves: &[(usize, usize)]) -> Vec<usize> {
        let mut storages: Vec<usize> = (0..10).collect();
        let mut safe = 99;
        for s in sequence(moves) {
            match s {
                Step::Move(d, s) => storages[d] = storages[s],
                Step::Save(s) => safe = storages[s],
                Step::Restore(d) => storages[d] = safe,
            }
        }
        storages
    }

    #[test]
    fn every_permutation_is_performed() {
        for moves in [
            vec![(1, 2), (2, 1)],
            vec![(1, 2), (2, 3), (3, 1)],
            vec![(1, 0), (2, 1), (3, 2)],
            vec![(1, 2), (2, 1), (4, 5), (5, 4)],
            vec![(1, 2), (3, 2), (2, 1)],
            vec![(1, 1), (2, 3)],
        ] {
            let got = run(&moves);
            for (d, s) in &moves {
                assert_eq!(got[*d], *s, "{moves:?}");
            }
        }
    }
}
