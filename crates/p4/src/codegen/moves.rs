//! Moves that happen all at once: at the ends of blocks for phis, before calls for arguments.

use crate::ir::graph::Graph;
use crate::ir::{Function, Op, Term};

/// Gives every edge from a branch to a block with phis a block of its own, where its moves can stand.
pub(super) fn split_edges(f: &mut Function) {
    let g = Graph::new(f);
    for b in &g.order {
        if f.block(*b).phis.is_empty() {
            continue;
        }
        for p in g.preds(*b) {
            if !matches!(f.block(*p).term, Term::Branch(..)) {
                continue;
            }
            let edge = f.add_block("edge", f.block(*b).span);
            f.block_mut(edge).term = Term::Jump(*b);
            f.block_mut(*p).term.for_each_successor(|s| {
                if s == b {
                    *s = edge;
                }
            });
            for v in f.block(*b).phis.clone() {
                if let Op::Phi(ins) = &mut f.inst_mut(v).op {
                    ins.iter_mut().filter(|(q, _)| q == p).for_each(|(q, _)| *q = edge);
                }
            }
        }
    }
}

/// One of several moves that happen at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step<P> {
    /// From the second place to the first.
    Move(P, P),
    /// To somewhere safe, and back from there.
    Save(P),
    Restore(P),
}

/// Orders parallel moves between places so that nothing is overwritten before it is read. A cycle is broken by
/// saving one value.
pub(super) fn sequence<P: Copy + PartialEq>(moves: &[(P, P)]) -> Vec<Step<P>> {
    let mut left: Vec<(P, P)> = moves.iter().copied().filter(|(d, s)| d != s).collect();
    let mut out = Vec::new();
    // The place whose value was saved; its reader takes it from there.
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

    /// Runs the steps on places 0 to 9, which hold their own numbers.
    fn run(moves: &[(usize, usize)]) -> Vec<usize> {
        let mut places: Vec<usize> = (0..10).collect();
        let mut safe = 99;
        for s in sequence(moves) {
            match s {
                Step::Move(d, s) => places[d] = places[s],
                Step::Save(s) => safe = places[s],
                Step::Restore(d) => places[d] = safe,
            }
        }
        places
    }

    #[test]
    fn every_permutation_arrives() {
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
