//! The check that functions do not read registers that their caller left.
//!
//! PREVAIL lets a function read the values that its caller left in r0 and r6 to r9. The calling
//! convention gives these registers no value, and our engines set them to zero, so the proof would
//! assume other numbers than the run uses. A function may therefore read such a register only after
//! it has written it on every path. The entry function is exempt: PREVAIL knows that it starts with
//! r1 alone.

use super::location::Location;
use super::reason::Reason;
use super::refusal::Refusal;
use crate::check::{Checked, target};
use crate::insn::{Alu, Atomic, Op, Reg, Source};
use crate::linked::Linked;

/// A set of registers, one bit per register.
type Registers = u16;

/// The registers that a caller leaves: r0 and r6 to r9.
const CALLER_LEFT: Registers = 0b11_1100_0001;

const fn bit(r: Reg) -> Registers {
    1 << r.number()
}

const fn source(s: Source) -> Registers {
    match s {
        Source::Reg(r) => bit(r),
        Source::Imm(_) => 0,
    }
}

/// Returns the registers that an instruction reads, and those that it always writes.
const fn uses(op: &Op) -> (Registers, Registers) {
    match *op {
        Op::Alu { op: Alu::Mov, dst, src, .. } => (source(src), bit(dst)),
        Op::Alu { dst, src, .. } => (bit(dst) | source(src), bit(dst)),
        Op::MovSx { dst, src, .. } | Op::Load { dst, src, .. } => (bit(src), bit(dst)),
        Op::Swap { dst, .. } => (bit(dst), bit(dst)),
        Op::LoadImm { dst, .. } | Op::LoadMap { dst, .. } => (0, bit(dst)),
        Op::Store { dst, src, .. } => (bit(dst) | source(src), 0),
        Op::Atomic { op: Atomic::CmpXchg, dst, src, .. } => {
            (bit(dst) | bit(src) | bit(Reg::R0), bit(Reg::R0))
        }
        Op::Atomic { dst, src, fetch, .. } => (bit(dst) | bit(src), if fetch { bit(src) } else { 0 }),
        Op::Branch { dst, src, .. } => (bit(dst) | source(src), 0),
        // The arguments are r1 to r5, which this check ignores.
        Op::Call { .. } | Op::CallLocal { .. } => (0, bit(Reg::R0)),
        // An unused result may be unset: see [`Function::no_result`].
        Op::Exit => (0, 0),
        Op::Jump { .. } => (0, 0),
    }
}

/// Checks that no instruction reads a register that the caller left.
pub(super) fn check(linked: &Linked, code: &Checked) -> Result<(), Refusal> {
    let mut no_result = vec![false; code.functions.len()];
    loop {
        let found: Vec<Function> = (0..no_result.len()).map(|f| Function::new(code, f, &no_result)).collect();
        let next: Vec<bool> = found.iter().map(|f| f.no_result).collect();
        if next == no_result {
            return found.iter().find_map(|f| f.reads).map_or(Ok(()), |read| Err(refusal(linked, read)));
        }
        no_result = next;
    }
}

fn refusal(linked: &Linked, (slot, register): (usize, u32)) -> Refusal {
    Refusal::of_program(
        Reason::Uninitialised,
        Some(Location::new(linked, slot)),
        format!("r{register} is used here, but a path to this instruction does not set it"),
        "set the register on every path; a function starts with its arguments in r1 to r5 only, and a call \
         sets r0 only if the called function returns a value on every path",
    )
}

/// Result of the check of one function.
struct Function {
    /// The first instruction that may read a register of the caller, and the register.
    reads: Option<(usize, u32)>,
    /// Whether the function may return without having set r0.
    no_result: bool,
}

impl Function {
    /// `no_result` holds, by function index, which functions may return without a result. It only grows
    /// from round to round.
    fn new(code: &Checked, index: usize, no_result: &[bool]) -> Self {
        let range = code.functions[index].clone();
        // By slot: registers that may still hold the caller's values on entry to the slot. The sets grow
        // until a fixed point is reached.
        let mut before: Vec<Option<Registers>> = vec![None; range.len()];
        let mut work = vec![(range.start, if index == 0 { 0 } else { CALLER_LEFT })];
        while let Some((slot, left)) = work.pop() {
            let known = &mut before[slot - range.start];
            let joined = known.unwrap_or(0) | left;
            if *known == Some(joined) {
                continue;
            }
            *known = Some(joined);
            let op = &code.ops[slot];
            let mut after = joined & !uses(op).1;
            if code.callee_at(slot).is_some_and(|callee| no_result[callee]) {
                after |= bit(Reg::R0);
            }
            match *op {
                Op::Exit => {}
                Op::Jump { off } => work.push((target(slot, off) as usize, after)),
                Op::Branch { off, .. } => {
                    work.push((target(slot, off.into()) as usize, after));
                    work.push((slot + 1, after));
                }
                _ => work.push((slot + op.slots(), after)),
            }
        }
        let reached = || before.iter().enumerate().filter_map(|(i, left)| Some((range.start + i, (*left)?)));
        let exits_without = |(slot, left): &(usize, Registers)| {
            matches!(code.ops[*slot], Op::Exit) && left & bit(Reg::R0) != 0
        };
        let without_result = reached().find(exits_without).map(|(slot, _)| slot);
        let reads = reached().find_map(|(slot, left)| {
            let read = left & uses(&code.ops[slot]).0;
            (read != 0).then(|| (slot, read.trailing_zeros()))
        });
        let verdict_missing = without_result.filter(|_| index == 0).map(|slot| (slot, 0));
        Self { reads: reads.or(verdict_missing), no_result: without_result.is_some() }
    }
}
