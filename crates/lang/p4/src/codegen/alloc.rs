//! Register allocation: a linear scan over live ranges with holes.
//!
//! Values that are live across a call get r6 to r9, others any register except the frame pointer.
//! If registers run out, the value with the fewest uses for its length is spilled. Two scratch
//! registers are then reserved for work on spilled values; a third one, if the program has spill
//! memory beyond its stack.

use super::insn::{FP, MOV};
use super::liveness::{Lifetime, lifetimes};
use super::machine::{Arg, CopySrc, MInst, Machine, Reg, Src};
use super::spill;
use std::collections::HashMap;

/// Where a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allocation {
    Reg(u8),
    /// An offset from a base register: the frame pointer, or that of the memory beyond the stack.
    Slot(u8, i32),
}

/// The result of allocation.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) allocations: HashMap<Reg, Allocation>,
    /// Size of the stack frame in bytes.
    pub(super) size: u32,
    /// The stack offset for the value that is saved while a cycle of moves is resolved.
    pub(super) temporary: i32,
    /// Number of values beyond the stack.
    pub(super) memory_values: u32,
}

/// Scratch registers for work on spilled values.
pub(super) const SCRATCH: [u8; 2] = [0, 5];
/// Callee-saved registers.
const CALLEE_SAVED: [u8; 4] = [6, 7, 8, 9];
const ALL: [u8; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

/// Assigns a storage to every virtual register.
pub(super) fn allocate(m: &Machine) -> Frame {
    let mut lifetimes = lifetimes(m);
    let hints = hints(m);
    let mut scan = LinearScan::new(&hints, m.context, ALL.to_vec());
    let pointer = m.spill_memory.map(|a| a.pointer);
    if pointer.is_none() {
        scan.run(&lifetimes);
    }
    if pointer.is_some() || !scan.spilled.is_empty() {
        lifetimes.retain(|l| Some(l.reg) != pointer);
        let set_aside = |r: &u8| SCRATCH.contains(r) || pointer.is_some() && *r == spill::POINTER;
        scan = LinearScan::new(&hints, m.context, ALL.iter().copied().filter(|r| !set_aside(r)).collect());
        scan.run(&lifetimes);
    }
    let mut allocations: HashMap<Reg, Allocation> =
        scan.assigned.iter().map(|(r, p)| (*r, Allocation::Reg(*p))).collect();
    allocations.extend(pointer.map(|r| (r, Allocation::Reg(spill::POINTER))));
    let movable = |l: &Lifetime| pointer.is_some() && m.plain.contains(&l.reg);
    let (beyond, within): (Vec<_>, Vec<_>) = std::mem::take(&mut scan.spilled).into_iter().partition(movable);
    let (mut deepest, mut memory_values) = (m.key_bytes, 0);
    for (reg, slot) in shared_slots(within, &hints) {
        let at = m.key_bytes + 8 * (slot + 1);
        deepest = deepest.max(at);
        allocations.insert(reg, Allocation::Slot(FP, -at.cast_signed()));
    }
    for (reg, slot) in shared_slots(beyond, &hints) {
        memory_values = memory_values.max(slot + 1);
        allocations.insert(reg, Allocation::Slot(spill::POINTER, 8 * slot.cast_signed()));
    }
    let temporary = -(deepest + 8).cast_signed();
    let mut insts = m.blocks.iter().flat_map(|b| &b.insts);
    let uses_temporary = insts.any(|(i, _)| matches!(i, MInst::Copies(_) | MInst::Call { .. }));
    let size = if uses_temporary { deepest + 8 } else { deepest };
    Frame { allocations, size, temporary, memory_values }
}

/// Assigns spill slots. Values share a slot if they are not live at the same time, preferably
/// values that are copied into each other: at a join, most values are unchanged.
fn shared_slots(mut spilled: Vec<Lifetime>, hints: &HashMap<Reg, Vec<Hint>>) -> Vec<(Reg, u32)> {
    spilled.sort_by_key(|l| (l.start(), l.reg));
    let mut slots: Vec<Vec<&Lifetime>> = Vec::new();
    let mut given: HashMap<Reg, usize> = HashMap::new();
    for l in &spilled {
        let free = |s: &Vec<&Lifetime>| !s.iter().any(|o| o.overlaps(l));
        let mut alike: HashMap<usize, u32> = HashMap::new();
        for h in hints.get(&l.reg).into_iter().flatten() {
            if let Hint::Like(other) = h
                && let Some(slot) = given.get(other)
            {
                *alike.entry(*slot).or_default() += 1;
            }
        }
        // Prefer the slot that avoids most copies, then the lowest one, so that the result is
        // deterministic.
        let best =
            alike.into_iter().filter(|(s, _)| free(&slots[*s])).max_by_key(|(s, n)| (*n, usize::MAX - s));
        let known = best.map(|(s, _)| s).or_else(|| slots.iter().position(free));
        let slot = known.unwrap_or_else(|| {
            slots.push(Vec::new());
            slots.len() - 1
        });
        // Later live ranges do not start before this one.
        slots[slot].retain(|o| o.end() >= l.start());
        slots[slot].push(l);
        given.insert(l.reg, slot);
    }
    spilled.iter().map(|l| (l.reg, given[&l.reg] as u32)).collect()
}

/// A register that should get the same storage as another, or a preferred register.
#[derive(Clone, Copy, Debug)]
enum Hint {
    Like(Reg),
    Fixed(u8),
}

/// Returns hints that avoid moves: the two sides of a move, arguments and results of calls.
fn hints(m: &Machine) -> HashMap<Reg, Vec<Hint>> {
    let mut hints: HashMap<Reg, Vec<Hint>> = HashMap::new();
    for (inst, _) in m.blocks.iter().flat_map(|b| &b.insts) {
        if let MInst::Call { args, dst, .. } = inst {
            if let Some(d) = dst {
                hints.entry(*d).or_default().push(Hint::Fixed(0));
            }
            for (i, a) in args.iter().enumerate() {
                if let Arg::Reg(r) = a {
                    hints.entry(*r).or_default().push(Hint::Fixed(i as u8 + 1));
                }
            }
        }
    }
    let mut pair = |a: Reg, b: Reg| {
        hints.entry(a).or_default().push(Hint::Like(b));
        hints.entry(b).or_default().push(Hint::Like(a));
    };
    for (inst, _) in m.blocks.iter().flat_map(|b| &b.insts) {
        match inst {
            MInst::Alu { op: MOV, dst, src: Src::Reg(s), .. } => pair(*dst, *s),
            MInst::Copies(cs) => {
                for (d, s) in cs {
                    if let CopySrc::Reg(s) = s {
                        pair(*d, *s);
                    }
                }
            }
            _ => {}
        }
    }
    hints
}

struct LinearScan<'a> {
    hints: &'a HashMap<Reg, Vec<Hint>>,
    context: Reg,
    pool: Vec<u8>,
    /// The live ranges assigned to each machine register.
    taken: [Vec<Lifetime>; 10],
    assigned: HashMap<Reg, u8>,
    spilled: Vec<Lifetime>,
}

impl<'a> LinearScan<'a> {
    fn new(hints: &'a HashMap<Reg, Vec<Hint>>, context: Reg, pool: Vec<u8>) -> Self {
        let taken = std::array::from_fn(|_| Vec::new());
        Self { hints, context, pool, taken, assigned: HashMap::new(), spilled: Vec::new() }
    }

    fn run(&mut self, lifetimes: &[Lifetime]) {
        for l in lifetimes {
            match self.choose(l) {
                Some(r) => self.assign(l, r),
                None => self.spill(l),
            }
        }
    }

    fn assign(&mut self, l: &Lifetime, r: u8) {
        self.assigned.insert(l.reg, r);
        // Live ranges that ended before all later ones start are no longer relevant.
        let held = &mut self.taken[r as usize];
        held.retain(|o| o.end() >= l.start());
        held.push(l.clone());
    }

    fn fits(&self, l: &Lifetime, r: u8) -> bool {
        self.pool.contains(&r) && (!l.over_call || CALLEE_SAVED.contains(&r))
    }

    fn choose(&self, l: &Lifetime) -> Option<u8> {
        let free = |r: u8| self.fits(l, r) && !self.taken[r as usize].iter().any(|o| o.overlaps(l));
        if l.reg == self.context && free(1) {
            return Some(1);
        }
        let hinted = self.hints.get(&l.reg).into_iter().flatten().filter_map(|h| match h {
            Hint::Like(other) => self.assigned.get(other).copied(),
            Hint::Fixed(r) => Some(*r),
        });
        // Callee-saved registers are left to values that need them, as far as possible.
        hinted
            .into_iter()
            .find(|r| free(*r))
            .or_else(|| [2, 3, 4, 5, 0, 1, 6, 7, 8, 9].into_iter().find(|r| free(*r)))
    }

    /// Returns the benefit of keeping a value in a register.
    fn weight(&self, l: &Lifetime) -> u64 {
        if l.reg == self.context {
            return u64::MAX / 4;
        }
        let length: u64 = l.ranges.iter().map(|(a, b)| u64::from(b - a) + 1).sum();
        (u64::from(l.uses) << 20) / length
    }

    /// Spills the value, or those that conflict with it in some register if they weigh less.
    fn spill(&mut self, l: &Lifetime) {
        let cost = |r: u8| -> u64 {
            self.taken[r as usize].iter().filter(|o| o.overlaps(l)).map(|o| self.weight(o)).sum()
        };
        let cheapest = ALL.iter().copied().filter(|r| self.fits(l, *r)).map(|r| (cost(r), r)).min();
        match cheapest {
            Some((cost, r)) if cost < self.weight(l) => {
                let held = std::mem::take(&mut self.taken[r as usize]);
                let (out, kept): (Vec<_>, Vec<_>) = held.into_iter().partition(|o| o.overlaps(l));
                for o in out {
                    self.assigned.remove(&o.reg);
                    self.spilled.push(o);
                }
                self.taken[r as usize] = kept;
                self.assign(l, r);
            }
            _ => self.spilled.push(l.clone()),
        }
    }
}
