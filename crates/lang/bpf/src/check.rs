//! The structural check: every slot is an instruction, and control flow stays within functions.
//!
//! [`crate::verify`] checks memory accesses; this module checks what both engines rely on: no jump
//! leaves its function or lands inside a wide instruction, no function runs past its end, every call
//! reaches the start of a function, and every map reference names a map. The engines execute what
//! `check_and_decode` returns.

use crate::insn::{DecodeError, Insn, Op, decode};
use crate::linked::{Linked, MAX_SLOTS};

/// Flaw in the structure of a program. `slot` counts 8-byte slots from the start of the program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The program is empty.
    #[error("the program has no instructions")]
    Empty,
    /// The program is longer than [`MAX_SLOTS`].
    #[error("the program has {slots} instruction slots, the limit is {MAX_SLOTS}")]
    TooLong {
        /// Number of slots.
        slots: usize,
    },
    /// A slot does not hold a valid instruction.
    #[error("instruction {slot}: not a valid instruction")]
    Decode {
        /// The slot.
        slot: usize,
        /// Flaw of the instruction.
        #[source]
        source: DecodeError,
    },
    /// A jump leaves its function.
    #[error("instruction {slot} ({text}): jumps to slot {target}, outside its function {function}")]
    JumpOut {
        /// Slot of the jump.
        slot: usize,
        /// Text of the jump.
        text: String,
        /// Target of the jump.
        target: i64,
        /// Function that contains the jump.
        function: String,
    },
    /// A jump lands in the second slot of a wide instruction.
    #[error("instruction {slot} ({text}): jumps to slot {target}, inside a 64-bit immediate")]
    JumpIntoWide {
        /// Slot of the jump.
        slot: usize,
        /// Text of the jump.
        text: String,
        /// Target of the jump.
        target: i64,
    },
    /// The target of a call is not the start of a function.
    #[error("instruction {slot} ({text}): calls slot {target}, where no function starts")]
    CallNowhere {
        /// Slot of the call.
        slot: usize,
        /// Text of the call.
        text: String,
        /// Target of the call.
        target: i64,
    },
    /// The last instruction of a function is not an unconditional jump or `exit`.
    #[error("function {function} runs past its end at instruction {slot}: end it with exit or a jump")]
    RunsOff {
        /// The function.
        function: String,
        /// Slot of its last instruction.
        slot: usize,
    },
    /// A map reference names no map.
    #[error("instruction {slot}: refers to map {map}, but the program has {maps} maps")]
    NoSuchMap {
        /// Slot of the reference.
        slot: usize,
        /// Index of the map.
        map: u32,
        /// Number of maps.
        maps: usize,
    },
    /// The list of functions does not cover the program without gaps.
    #[error("function {function} is empty, or does not start where the previous function ends")]
    Functions {
        /// The function.
        function: String,
    },
}

/// A program that passed the structural check; both engines execute it.
#[derive(Debug)]
pub(crate) struct Checked {
    /// One operation per slot. The second slot of a wide instruction holds an unreachable filler.
    pub(crate) ops: Vec<Op>,
    /// Functions as slot ranges, the entry first.
    pub(crate) functions: Vec<std::ops::Range<usize>>,
}

impl Checked {
    /// Returns the index of the function that starts at `slot`.
    pub(crate) fn function_at(&self, slot: usize) -> Option<usize> {
        self.functions.binary_search_by_key(&slot, |f| f.start).ok()
    }

    /// Returns the index of the function that the instruction at `slot` calls.
    pub(crate) fn callee_at(&self, slot: usize) -> Option<usize> {
        match self.ops[slot] {
            Op::CallLocal { off } => {
                usize::try_from(target(slot, off)).ok().and_then(|to| self.function_at(to))
            }
            _ => None,
        }
    }
}

/// Returns the target of a jump from `slot` with offset `off`.
pub(crate) const fn target(slot: usize, off: i32) -> i64 {
    slot as i64 + 1 + off as i64
}

/// Checks the structure of a program.
///
/// # Errors
/// Returns the first flaw with its instruction.
pub fn check(linked: &Linked) -> Result<(), CheckError> {
    check_and_decode(linked).map(drop)
}

/// Checks the structure of a program and decodes it.
pub(crate) fn check_and_decode(linked: &Linked) -> Result<Checked, CheckError> {
    let slots = linked.insns.len();
    if slots == 0 {
        return Err(CheckError::Empty);
    }
    if slots > MAX_SLOTS {
        return Err(CheckError::TooLong { slots });
    }
    check_function_bounds(linked)?;
    let mut ops = Vec::with_capacity(slots);
    let mut starts = vec![false; slots];
    for sub in &linked.subprograms {
        decode_function(&linked.insns[..sub.end], sub.start, &mut ops, &mut starts)?;
    }
    let functions = linked.subprograms.iter().map(|s| s.start..s.end).collect();
    let checked = Checked { ops, functions };
    for (index, sub) in linked.subprograms.iter().enumerate() {
        check_control_flow(linked, &checked, index, &starts)?;
        let last = (sub.start..sub.end).rev().find(|&i| starts[i]).unwrap_or(sub.start);
        if !matches!(checked.ops[last], Op::Exit | Op::Jump { .. }) {
            return Err(CheckError::RunsOff { function: sub.name.clone(), slot: last });
        }
    }
    Ok(checked)
}

fn check_function_bounds(linked: &Linked) -> Result<(), CheckError> {
    let mut at = 0;
    for sub in &linked.subprograms {
        if sub.start != at || sub.end <= sub.start || sub.end > linked.insns.len() {
            return Err(CheckError::Functions { function: sub.name.clone() });
        }
        at = sub.end;
    }
    if at == linked.insns.len() {
        Ok(())
    } else {
        Err(CheckError::Functions { function: "(none)".to_owned() })
    }
}

/// Decodes one function. `insns` ends with it, so a wide instruction cannot extend into the next one.
fn decode_function(
    insns: &[Insn],
    start: usize,
    ops: &mut Vec<Op>,
    starts: &mut [bool],
) -> Result<(), CheckError> {
    let mut slot = start;
    while slot < insns.len() {
        let op = decode(insns, slot).map_err(|source| CheckError::Decode { slot, source })?;
        starts[slot] = true;
        ops.push(op);
        if op.slots() == 2 {
            ops.push(Op::Exit);
        }
        slot += op.slots();
    }
    Ok(())
}

fn check_control_flow(
    linked: &Linked,
    checked: &Checked,
    index: usize,
    starts: &[bool],
) -> Result<(), CheckError> {
    let range = &checked.functions[index];
    let inside = |t: i64| usize::try_from(t).ok().filter(|t| range.contains(t));
    for slot in range.clone().filter(|&slot| starts[slot]) {
        let op = &checked.ops[slot];
        let text = || op.to_string();
        match *op {
            Op::Jump { off } => check_jump(linked, index, slot, off, inside, starts)?,
            Op::Branch { off, .. } => check_jump(linked, index, slot, off.into(), inside, starts)?,
            Op::CallLocal { off } => {
                let target = target(slot, off);
                let callee = usize::try_from(target).ok().and_then(|t| checked.function_at(t));
                if callee.is_none() {
                    return Err(CheckError::CallNowhere { slot, text: text(), target });
                }
            }
            Op::LoadMap { map, .. } if map as usize >= linked.maps.len() => {
                return Err(CheckError::NoSuchMap { slot, map, maps: linked.maps.len() });
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_jump(
    linked: &Linked,
    function: usize,
    slot: usize,
    off: i32,
    inside: impl Fn(i64) -> Option<usize>,
    starts: &[bool],
) -> Result<(), CheckError> {
    let target = target(slot, off);
    let text = || linked.text(slot);
    match inside(target) {
        Some(t) if starts[t] => Ok(()),
        Some(_) => Err(CheckError::JumpIntoWide { slot, text: text(), target }),
        None => {
            let function = linked.subprograms[function].name.clone();
            Err(CheckError::JumpOut { slot, text: text(), target, function })
        }
    }
}
