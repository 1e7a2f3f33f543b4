//! Liveness analysis of virtual registers.

use super::machine::{MInst, Machine, Reg};
use crate::ir::Block;
use std::collections::HashMap;

/// The live ranges of a register as inclusive ranges of positions, in order. Positions count over
/// all instructions: instruction `i` reads at `2 i` and writes at `2 i + 1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lifetime {
    pub(super) reg: Reg,
    pub(super) ranges: Vec<(u32, u32)>,
    /// Number of reads and writes.
    pub(super) uses: u32,
    /// Whether it is live across a call, which preserves only r6 to r9.
    pub(super) over_call: bool,
}

impl Lifetime {
    pub(super) fn start(&self) -> u32 {
        self.ranges.first().map_or(0, |r| r.0)
    }

    pub(super) fn end(&self) -> u32 {
        self.ranges.last().map_or(0, |r| r.1)
    }

    /// Whether both are live at some position.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let (mut a, mut b) = (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            if x.1 < y.0 {
                a.next();
            } else if y.1 < x.0 {
                b.next();
            } else {
                return true;
            }
        }
        false
    }
}

struct Tracker {
    /// The end of the current range of each live register.
    open: HashMap<Reg, u32>,
    /// Ranges from the last to the first.
    found: Vec<Vec<(u32, u32)>>,
    uses: Vec<u32>,
}

impl Tracker {
    fn close(&mut self, r: Reg, from: u32) {
        // A value that is never read needs its register only where it is written.
        let to = self.open.remove(&r).unwrap_or(from);
        self.add(r, from, to);
    }

    fn add(&mut self, r: Reg, from: u32, to: u32) {
        let ranges = &mut self.found[r.0 as usize];
        match ranges.last_mut() {
            Some(next) if next.0 <= to + 1 => next.0 = next.0.min(from),
            _ => ranges.push((from, to)),
        }
    }
}

/// Returns one lifetime per used register, ordered by start.
pub(super) fn lifetimes(m: &Machine) -> Vec<Lifetime> {
    let n = m.regs as usize;
    let mut t = Tracker { open: HashMap::new(), found: vec![Vec::new(); n], uses: vec![0; n] };
    let mut starts = Vec::new();
    let mut at = 1;
    for b in &m.blocks {
        starts.push(at);
        at += b.insts.len() as u32;
    }
    let mut calls = Vec::new();
    // Blocks are in topological order, so one pass from the end visits all successors first.
    let mut live_in: HashMap<Block, Vec<Reg>> = HashMap::new();
    for (i, start) in starts.iter().enumerate().rev() {
        let b = &m.blocks[i];
        let end = start + b.insts.len() as u32;
        for s in successors(m, i) {
            for r in live_in.get(&s).into_iter().flatten() {
                t.open.insert(*r, 2 * end - 1);
            }
        }
        for (n, (inst, _)) in b.insts.iter().enumerate().rev() {
            let at = start + n as u32;
            // The result of a branch over a move must not share a register with the operands of the
            // comparison.
            let written = if matches!(inst, MInst::Set { .. }) { 2 * at } else { 2 * at + 1 };
            inst.defs(&mut |r| {
                t.close(r, written);
                t.uses[r.0 as usize] += 1;
            });
            inst.uses(&mut |r| {
                t.open.entry(r).or_insert(2 * at);
                t.uses[r.0 as usize] += 1;
            });
            if inst.is_call() {
                calls.push(2 * at);
            }
        }
        let mut live: Vec<Reg> = t.open.keys().copied().collect();
        live.sort_unstable();
        live.iter().for_each(|r| t.close(*r, 2 * start));
        live_in.insert(b.block, live);
    }
    // The context is live from the start.
    let first = t.found[m.context.0 as usize].last().map_or(0, |r| r.0);
    t.add(m.context, 0, first);
    calls.sort_unstable();
    let crosses = |(from, to): &(u32, u32)| {
        let next = calls.partition_point(|c| c < from);
        calls.get(next).is_some_and(|c| to > c)
    };
    let mut out = Vec::new();
    for (r, mut ranges) in t.found.into_iter().enumerate() {
        ranges.reverse();
        if !ranges.is_empty() {
            let over_call = ranges.iter().any(crosses);
            out.push(Lifetime { reg: Reg(r as u32), ranges, uses: t.uses[r], over_call });
        }
    }
    out.sort_by_key(|l| (l.start(), l.reg));
    out
}

/// Returns the successors of a block: the targets of its jumps, and the next block if it does not
/// end with a jump.
fn successors(m: &Machine, i: usize) -> Vec<Block> {
    let mut out = Vec::new();
    for (inst, _) in &m.blocks[i].insts {
        if let MInst::Branch { to, .. } | MInst::Jump(to) = inst {
            out.push(*to);
        }
    }
    let ends = matches!(m.blocks[i].insts.last(), Some((MInst::Jump(_) | MInst::Return(_), _)));
    if let (false, Some(next)) = (ends, m.blocks.get(i + 1)) {
        out.push(next.block);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(ranges: &[(u32, u32)]) -> Lifetime {
        Lifetime { reg: Reg(0), ranges: ranges.to_vec(), uses: 0, over_call: false }
    }

    #[test]
    fn holes_do_not_overlap() {
        assert!(!life(&[(0, 4), (10, 12)]).overlaps(&life(&[(5, 9), (13, 20)])));
        assert!(life(&[(0, 4), (10, 12)]).overlaps(&life(&[(5, 10)])));
        assert!(life(&[(0, 4)]).overlaps(&life(&[(4, 4)])));
    }
}
