//! The structural check: every slot is an instruction, and control stays where it belongs.
//!
//! It says nothing about memory (that is [`crate::verify`]), but both engines rely on it alone for this much: no jump
//! leaves its function or lands inside a wide instruction, no function runs off its end, every call reaches the start
//! of a function, every map reference names a map. What it returns is what the engines execute.

use crate::insn::{DecodeError, Insn, Op, decode};
use crate::linked::{Linked, MAX_SLOTS};

/// What is wrong with the structure of a program. `slot` counts 8-byte slots from the start of the program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// There is nothing to run.
    #[error("the program has no instructions")]
    Empty,
    /// The program is larger than [`MAX_SLOTS`].
    #[error("the program has {slots} instruction slots, the limit is {MAX_SLOTS}")]
    TooLong {
        /// How many it has.
        slots: usize,
    },
    /// A slot is no instruction.
    #[error("instruction {slot}: not a valid instruction")]
    Decode {
        /// Which one.
        slot: usize,
        /// Why.
        #[source]
        source: DecodeError,
    },
    /// A jump leaves its function.
    #[error("instruction {slot} ({text}): jumps to {target}, outside of its function {function}")]
    JumpOut {
        /// The jump.
        slot: usize,
        /// Its text.
        text: String,
        /// Where it goes.
        target: i64,
        /// Where it stands.
        function: String,
    },
    /// A jump lands in the second half of a wide instruction.
    #[error("instruction {slot} ({text}): jumps to {target}, into the middle of a 64-bit immediate")]
    JumpIntoWide {
        /// The jump.
        slot: usize,
        /// Its text.
        text: String,
        /// Where it goes.
        target: i64,
    },
    /// A call does not reach the start of a function.
    #[error("instruction {slot} ({text}): calls {target}, where no function starts")]
    CallNowhere {
        /// The call.
        slot: usize,
        /// Its text.
        text: String,
        /// Where it goes.
        target: i64,
    },
    /// The last instruction of a function is not an unconditional jump or `exit`.
    #[error("function {function} runs off its end at instruction {slot}: it has to end with exit or a jump")]
    RunsOff {
        /// The function.
        function: String,
        /// Its last instruction.
        slot: usize,
    },
    /// A map reference names no map.
    #[error("instruction {slot}: refers to map {map}, the program has {maps}")]
    NoSuchMap {
        /// The reference.
        slot: usize,
        /// The index.
        map: u32,
        /// How many there are.
        maps: usize,
    },
    /// The list of functions does not cover the program in order.
    #[error("function {function} does not start where the one before it ends, or is empty")]
    Functions {
        /// The function.
        function: String,
    },
}

/// A program whose structure is sound: what both engines execute.
#[derive(Debug)]
pub(crate) struct Checked {
    /// One operation a slot; the second slot of a wide instruction holds a filler that is never reached.
    pub(crate) ops: Vec<Op>,
    /// Functions as `start..end`, the entry first.
    pub(crate) functions: Vec<std::ops::Range<usize>>,
}

impl Checked {
    /// The function that starts at `slot`.
    pub(crate) fn function_at(&self, slot: usize) -> Option<usize> {
        self.functions.binary_search_by_key(&slot, |f| f.start).ok()
    }
}

/// Where control goes from `slot` by `off` slots.
pub(crate) const fn target(slot: usize, off: i32) -> i64 {
    slot as i64 + 1 + off as i64
}

/// Checks the structure of a program.
///
/// # Errors
/// The first flaw, with the instruction it is about.
pub fn check(linked: &Linked) -> Result<(), CheckError> {
    checked(linked).map(drop)
}

/// Checks the structure of a program and decodes it.
pub(crate) fn checked(linked: &Linked) -> Result<Checked, CheckError> {
    let slots = linked.insns.len();
    if slots == 0 {
        return Err(CheckError::Empty);
    }
    if slots > MAX_SLOTS {
        return Err(CheckError::TooLong { slots });
    }
    functions_cover(linked)?;
    let mut ops = Vec::with_capacity(slots);
    let mut starts = vec![false; slots];
    for sub in &linked.subprograms {
        decode_function(&linked.insns[..sub.end], sub.start, &mut ops, &mut starts)?;
    }
    let functions = linked.subprograms.iter().map(|s| s.start..s.end).collect();
    let checked = Checked { ops, functions };
    for (index, sub) in linked.subprograms.iter().enumerate() {
        control_stays(linked, &checked, index, &starts)?;
        let last = (sub.start..sub.end).rev().find(|&i| starts[i]).unwrap_or(sub.start);
        if !matches!(checked.ops[last], Op::Exit | Op::Jump { .. }) {
            return Err(CheckError::RunsOff { function: sub.name.clone(), slot: last });
        }
    }
    Ok(checked)
}

fn functions_cover(linked: &Linked) -> Result<(), CheckError> {
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

/// Decodes one function; `insns` ends with it, so that a wide instruction cannot reach into the next one.
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

fn control_stays(
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
            Op::Jump { off } => jump_lands(linked, index, slot, off, inside, starts)?,
            Op::Branch { off, .. } => jump_lands(linked, index, slot, off.into(), inside, starts)?,
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

fn jump_lands(
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
