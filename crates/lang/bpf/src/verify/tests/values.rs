//! A test that PREVAIL computes correct values. Random programs are analysed and run: the value of each
//! register has to be among those that the analysis considers possible.
//!
//! The gaps that [`super::super::rewrite`] closes were found this way. The test examines the analysis
//! and not only its verdict, so it needs no program that turns a wrong bound into a wrong access.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use prevail::cfg::label::Label;
use prevail::crab::string_constraints::StringInvariant;
use prevail::result::{InvariantPoint, ObservationCheckMode};

use super::super::guard::AssertionSet;
use super::super::prove::{Analysis, analyse, conclude};
use super::build::*;
use crate::alu::{alu, holds, sign_extend, swap};
use crate::insn::{Alu, Atomic, Cond, Op, Reg, Source, Swap, Width};
use crate::linked::Linked;

const STACK: usize = 32;

struct Machine {
    regs: [Option<u64>; 11],
    stack: [u8; STACK],
}

fn bytes_at(off: i16) -> usize {
    (STACK as i16 + off) as usize
}

impl Machine {
    fn reg(&self, r: Reg) -> u64 {
        self.regs[r.index()].expect("generated programs initialise every register")
    }

    fn source(&self, s: Source) -> u64 {
        match s {
            Source::Reg(r) => self.reg(r),
            Source::Imm(i) => i as u64,
        }
    }

    fn load(&self, off: i16, width: Width) -> u64 {
        let mut b = [0; 8];
        b[..width.bytes()].copy_from_slice(&self.stack[bytes_at(off)..][..width.bytes()]);
        u64::from_le_bytes(b)
    }

    fn store(&mut self, off: i16, width: Width, v: u64) {
        self.stack[bytes_at(off)..][..width.bytes()].copy_from_slice(&v.to_le_bytes()[..width.bytes()]);
    }

    /// Executes an instruction and returns the next slot; `None` at the end.
    fn step(&mut self, slot: usize, op: Op, input: &[u8]) -> Option<usize> {
        match op {
            Op::Alu { op, wide, dst, src } => {
                let a = if op == Alu::Mov { 0 } else { self.reg(dst) };
                self.regs[dst.index()] = Some(alu(op, wide, a, self.source(src)));
            }
            Op::MovSx { wide, dst, src, from } => {
                let v = sign_extend(self.reg(src), from);
                self.regs[dst.index()] = Some(if wide { v } else { (v as u32).into() });
            }
            Op::Swap { kind, dst, width } => self.regs[dst.index()] = Some(swap(kind, width, self.reg(dst))),
            Op::LoadImm { dst, value } => self.regs[dst.index()] = Some(value),
            Op::Load { dst, src, off, width, signed } => {
                let v = if src == Reg::FRAME {
                    self.load(off, width)
                } else {
                    let mut b = [0; 8];
                    b[..width.bytes()].copy_from_slice(&input[off as usize..][..width.bytes()]);
                    u64::from_le_bytes(b)
                };
                self.regs[dst.index()] = Some(if signed { sign_extend(v, width) } else { v });
            }
            Op::Store { off, width, src, .. } => self.store(off, width, self.source(src)),
            Op::Atomic { op, wide, src, off, fetch, .. } => {
                let width = if wide { Width::B8 } else { Width::B4 };
                let (old, operand) = (self.load(off, width), self.reg(src));
                let new = match op {
                    Atomic::Add => old.wrapping_add(operand),
                    Atomic::Or => old | operand,
                    Atomic::And => old & operand,
                    Atomic::Xor => old ^ operand,
                    Atomic::Xchg => operand,
                    Atomic::CmpXchg => {
                        let mask = if wide { u64::MAX } else { u32::MAX.into() };
                        if old & mask == self.reg(Reg::R0) & mask { operand } else { old }
                    }
                };
                self.store(off, width, new);
                if fetch {
                    let to = if op == Atomic::CmpXchg { Reg::R0 } else { src };
                    self.regs[to.index()] = Some(old);
                }
            }
            Op::Branch { cond, wide, dst, src, off } => {
                if holds(cond, wide, self.reg(dst), self.source(src)) {
                    return Some((slot as i64 + 1 + i64::from(off)) as usize);
                }
            }
            Op::Jump { off } => return Some((slot as i64 + 1 + i64::from(off)) as usize),
            Op::Exit => return None,
            Op::LoadMap { .. } | Op::Call { .. } | Op::CallLocal { .. } => unreachable!("not generated"),
        }
        Some(slot + op.slots())
    }

    fn observation(&self) -> StringInvariant {
        let mut set = BTreeSet::new();
        for (i, v) in self.regs.iter().enumerate() {
            if let (Some(v), true) = (v, i != 1 && i != 10) {
                set.insert(format!("r{i}.type=number"));
                set.insert(format!("r{i}.svalue={}", v.cast_signed()));
                set.insert(format!("r{i}.uvalue={v}"));
            }
        }
        StringInvariant::from_set(set)
    }
}

/// Edge cases of arithmetic.
const EDGES: [u64; 24] = [
    0,
    1,
    2,
    7,
    8,
    31,
    32,
    63,
    64,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

fn edge(r: &mut Random) -> u64 {
    let v = EDGES[r.below(EDGES.len())];
    match r.below(4) {
        0 => v.wrapping_neg(),
        1 => r.next(),
        _ => v,
    }
}

fn imm(r: &mut Random) -> i32 {
    edge(r) as i32
}

fn value_reg(r: &mut Random) -> u8 {
    [0, 2, 3, 4, 5, 6][r.below(6)]
}

fn operand(r: &mut Random) -> Source {
    if r.below(2) == 0 { Source::Imm(imm(r)) } else { Source::Reg(reg(value_reg(r))) }
}

const WIDTHS: [Width; 4] = [Width::B1, Width::B2, Width::B4, Width::B8];

fn stack_offset(r: &mut Random, width: Width) -> i16 {
    let offsets = STACK - width.bytes() + 1;
    let at = if r.below(4) == 0 { r.below(offsets) } else { r.below(STACK / width.bytes()) * width.bytes() };
    at as i16 - STACK as i16
}

fn random_op(r: &mut Random) -> Op {
    let dst = reg(value_reg(r));
    match r.below(16) {
        0..=6 => {
            let op = Alu::ALL[r.below(Alu::ALL.len())];
            let src = if op == Alu::Neg { Source::Imm(0) } else { operand(r) };
            Op::Alu { op, wide: r.below(2) == 0, dst, src }
        }
        7 => {
            let wide = r.below(2) == 0;
            let from = WIDTHS[r.below(if wide { 3 } else { 2 })];
            Op::MovSx { wide, dst, src: reg(value_reg(r)), from }
        }
        8 => {
            let kind = [Swap::ToLe, Swap::ToBe, Swap::Always][r.below(3)];
            Op::Swap { kind, dst, width: WIDTHS[1 + r.below(3)] }
        }
        9 => Op::LoadImm { dst, value: edge(r) },
        10 => {
            let width = WIDTHS[r.below(4)];
            Op::Store { dst: Reg::FRAME, off: stack_offset(r, width), width, src: operand(r) }
        }
        11 => {
            let width = WIDTHS[r.below(4)];
            let signed = width != Width::B8 && r.below(2) == 0;
            Op::Load { dst, src: Reg::FRAME, off: stack_offset(r, width), width, signed }
        }
        12 => {
            let op = Atomic::ALL[r.below(Atomic::ALL.len())];
            let wide = r.below(2) == 0;
            let fetch = matches!(op, Atomic::Xchg | Atomic::CmpXchg) || r.below(2) == 0;
            let off = stack_offset(r, if wide { Width::B8 } else { Width::B4 });
            Op::Atomic { op, wide, dst: Reg::FRAME, src: dst, off, fetch }
        }
        13 => {
            let width = WIDTHS[r.below(4)];
            let off = 16 + r.below((32 / width.bytes()).max(1)) * width.bytes();
            let signed = width != Width::B8 && r.below(2) == 0;
            Op::Load { dst, src: Reg::R1, off: off as i16, width, signed }
        }
        _ => {
            // The caller sets the offset.
            Op::Branch {
                cond: Cond::ALL[r.below(Cond::ALL.len())],
                wide: r.below(2) == 0,
                dst,
                src: operand(r),
                off: 0,
            }
        }
    }
}

/// Returns a program that initialises all registers and stack bytes, then computes.
fn random_program(r: &mut Random) -> Vec<Op> {
    let mut ops = Vec::new();
    for off in (0..STACK).step_by(8) {
        let src = if r.below(2) == 0 { Source::Imm(imm(r)) } else { Source::Imm(0) };
        ops.push(Op::Store { dst: Reg::FRAME, off: off as i16 - STACK as i16, width: Width::B8, src });
    }
    for (n, off) in [(0, 16), (2, 20), (3, 24), (4, 32), (5, 40), (6, 28)] {
        if r.below(2) == 0 {
            let width = WIDTHS[r.below(3)];
            ops.push(Op::Load { dst: reg(n), src: Reg::R1, off, width, signed: r.below(3) == 0 });
        } else {
            ops.push(Op::LoadImm { dst: reg(n), value: edge(r) });
        }
    }
    let body = 4 + r.below(24);
    for _ in 0..body {
        ops.push(random_op(r));
    }
    ops.push(mov(0, 1));
    ops.push(Op::Exit);
    aim_branches(&mut ops, r);
    ops
}

/// Points the branches at random later instructions.
fn aim_branches(ops: &mut [Op], r: &mut Random) {
    let n = ops.len();
    let slots: Vec<usize> = ops
        .iter()
        .scan(0, |at, op| {
            let s = *at;
            *at += op.slots();
            Some(s)
        })
        .collect();
    for i in 0..n {
        if let Op::Branch { off, .. } = &mut ops[i] {
            let to = i + 1 + r.below((n - 1 - i).min(6));
            *off = (slots[to] - slots[i] - 1) as i16;
        }
    }
}

/// Runs the program on some inputs and compares each state with the analysis. Returns the difference.
fn compare(linked: &Linked, set: AssertionSet, r: &mut Random) -> Option<String> {
    let inputs: Vec<[u8; 48]> = (0..3)
        .map(|_| {
            let mut input = [0; 48];
            for chunk in input[16..].chunks_mut(4) {
                chunk.copy_from_slice(&(edge(r) as u32).to_le_bytes());
            }
            input
        })
        .collect();
    let refused = |a: &Analysis<'_>| set == AssertionSet::All && conclude(linked, a).is_err();
    let differs = |a: &Analysis<'_>| inputs.iter().find_map(|input| trace(linked, input, a));
    let analysis = || analyse(linked, set, |a| Ok(differs(&a).filter(|_| !refused(&a))));
    // A panic of PREVAIL counts as a refusal.
    let result = catch_unwind(AssertUnwindSafe(analysis)).unwrap_or(Ok(None));
    result.unwrap_or_else(|e| Some(format!("not analysed: {e}")))
}

fn trace(linked: &Linked, input: &[u8], a: &Analysis<'_>) -> Option<String> {
    let mut registry = a.registry.borrow_mut();
    let mut machine = Machine { regs: [None; 11], stack: [0; STACK] };
    let mut slot = 0;
    loop {
        let label = Label::new(slot as i32);
        if a.result.invariants.get(&label).is_some_and(|i| i.error.is_some()) {
            return None;
        }
        let checked = a.result.check_observation_at_label(
            &label,
            InvariantPoint::Pre,
            &machine.observation(),
            ObservationCheckMode::Consistent,
            a.context,
            &mut registry,
        );
        if !checked.ok && !checked.message.starts_with("No invariant") {
            let invariant = a.result.invariants[&label].pre.to_set(&registry);
            return Some(format!(
                "slot {slot}: {}\n  has {:?}\n  the analysis assumes {invariant}",
                checked.message, machine.regs
            ));
        }
        let op = crate::insn::decode(&linked.insns, slot).expect("generated");
        slot = machine.step(slot, op, input)?;
    }
}

fn text(linked: &Linked) -> String {
    let mut slot = 0;
    let mut out = String::new();
    while let Ok(op) = crate::insn::decode(&linked.insns, slot) {
        out += &format!("{slot:3}: {op}\n");
        slot += op.slots();
    }
    out
}

#[test]
fn the_analysis_covers_the_values_of_a_run() {
    let n = p4shield_need::extent(200, 5_000);
    let seed = std::env::var("P4SHIELD_SEED").ok().and_then(|v| v.parse().ok()).unwrap_or(1);
    for i in 0..n {
        let mut r = Random::new(seed + i as u64);
        let linked = program(&random_program(&mut r));
        if let Some(difference) = compare(&linked, AssertionSet::All, &mut r) {
            panic!("program {} (seed {}):\n{}\n{difference}", i, seed + i as u64, text(&linked));
        }
    }
}

/// The comparison detects PREVAIL's errors.
#[test]
fn the_comparison_finds_errors_of_prevail() {
    let found = (1..200).find(|seed| {
        let mut r = Random::new(*seed);
        let linked = program(&random_program(&mut r));
        compare(&linked, AssertionSet::PrevailOnly, &mut r).is_some()
    });
    assert!(found.is_some(), "PREVAIL no longer computes wrong values, or the comparison misses them");
}
