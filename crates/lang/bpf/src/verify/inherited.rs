//! A function starts with its arguments and its frame pointer, and nothing else.
//!
//! PREVAIL lets a function read what its caller left in r0 and r6 to r9; our engines start it with zeros there, as the
//! calling convention gives these registers no value. The proof would be about other numbers than the run. So no
//! function but the entry program, of which PREVAIL knows that it starts with r1 alone, may read one of these before
//! it has written it on every path.

use super::refusal::{Place, Reason, Refusal};
use crate::check::{Checked, target};
use crate::insn::{Alu, Atomic, Op, Reg, Source};
use crate::linked::Linked;

/// A set of registers, one bit each.
type Registers = u16;

/// What the caller left: r0 and r6 to r9.
const LEFT: Registers = 0b11_1100_0001;

const fn bit(r: Reg) -> Registers {
    1 << r.number()
}

const fn source(s: Source) -> Registers {
    match s {
        Source::Reg(r) => bit(r),
        Source::Imm(_) => 0,
    }
}

/// What an instruction reads, and what it certainly writes.
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
        // Arguments are r1 to r5, which are not our business.
        Op::Call { .. } | Op::CallLocal { .. } => (0, bit(Reg::R0)),
        // A result that nobody reads need not be set: see [`Function::no_result`].
        Op::Exit => (0, 0),
        Op::Jump { .. } => (0, 0),
    }
}

/// Checks that no instruction reads what a caller left.
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
        Some(Place::new(linked, slot)),
        format!("this uses r{register}, which is not set on every path that leads here"),
        "a function finds its arguments in r1 to r5 and sets every other register before it uses it; after a call r0 \
         is set if the function that was called returns something on every path",
    )
}

/// What is known of a function.
struct Function {
    /// The first instruction that may read what the caller left, and the register.
    reads: Option<(usize, u32)>,
    /// Whether it may return without having set r0.
    no_result: bool,
}

impl Function {
    /// `no_result` says, by function, which are known to return without a result sometimes. It only grows from round to
    /// round.
    fn new(code: &Checked, index: usize, no_result: &[bool]) -> Self {
        let range = code.functions[index].clone();
        // By slot: what may still be the caller's when control comes there. Grows until nothing changes.
        let mut before: Vec<Option<Registers>> = vec![None; range.len()];
        let mut work = vec![(range.start, if index == 0 { 0 } else { LEFT })];
        while let Some((slot, left)) = work.pop() {
            let known = &mut before[slot - range.start];
            let joined = known.unwrap_or(0) | left;
            if *known == Some(joined) {
                continue;
            }
            *known = Some(joined);
            let op = &code.ops[slot];
            let mut after = joined & !uses(op).1;
            if calls(code, slot).is_some_and(|callee| no_result[callee]) {
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

/// The function that is called at `slot`, if one is.
fn calls(code: &Checked, slot: usize) -> Option<usize> {
    match code.ops[slot] {
        Op::CallLocal { off } => usize::try_from(target(slot, off)).ok().and_then(|to| code.function_at(to)),
        _ => None,
    }
}
