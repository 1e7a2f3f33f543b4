//! The check before the proof: what PREVAIL does not look at, but the engine relies on.
//!
//! The engine's own structural check ([`crate::check`]) comes first, so that an encoding that PREVAIL reads in another
//! way (it lets `lddw` overwrite r10, and knows calls by register and legacy packet loads) never reaches it. Then:
//! maps that can exist, helpers that do, functions that use only what they were handed, and a bound on the work:
//! PREVAIL copies a function into each place that calls it, which grows exponentially with the depth of calls.

use p4shield_abi::map;

use super::Limits;
use super::inherited;
use super::platform::{MAX_FRAMES, helper_name};
use super::refusal::{Place, Reason, Refusal};
use crate::check::{CheckError, Checked, checked, target};
use crate::insn::Op;
use crate::linked::{Linked, Map};

/// The longest key: one that fits into a function's stack frame.
pub const MAX_KEY_BYTES: u32 = 512;
/// The longest value.
pub const MAX_VALUE_BYTES: u32 = 1 << 20;

/// Checks everything that needs no proof.
pub(super) fn check(linked: &Linked, limits: &Limits) -> Result<(), Refusal> {
    size(linked, limits)?;
    let code = checked(linked).map_err(|e| malformed(linked, &e))?;
    maps(linked)?;
    entries(linked)?;
    for (slot, op) in code.ops.iter().enumerate() {
        if let Op::Call { helper } = *op
            && helper_name(helper).is_none()
        {
            let what = format!("there is no helper {helper}");
            return Err(at(linked, slot, Reason::Helper, what, "the helpers are listed in abi::helper"));
        }
    }
    inherited::check(linked, &code)?;
    calls(linked, &code, limits)
}

/// The engine's refusal in our form.
fn malformed(linked: &Linked, error: &CheckError) -> Refusal {
    let (reason, slot) = match *error {
        CheckError::Decode { slot, .. } => (Reason::Instruction, Some(slot)),
        CheckError::NoSuchMap { slot, .. } => (Reason::Map, Some(slot)),
        CheckError::JumpOut { slot, .. }
        | CheckError::JumpIntoWide { slot, .. }
        | CheckError::CallNowhere { slot, .. }
        | CheckError::RunsOff { slot, .. } => (Reason::ControlFlow, Some(slot)),
        CheckError::Empty | CheckError::TooLong { .. } => (Reason::Size, None),
        _ => (Reason::ControlFlow, None),
    };
    let what = match error {
        CheckError::Decode { source, .. } => source.to_string(),
        other => other.to_string(),
    };
    let help = match reason {
        Reason::Instruction => {
            "compile for eBPF as RFC 9669 defines it (clang -target bpf -mcpu=v4 or lower); legacy packet access and \
             calls by register are not offered"
        }
        Reason::Map => "maps are declared in section `maps`",
        _ => "compile and link the program again",
    };
    Refusal::of_program(reason, slot.map(|s| Place::new(linked, s)), what, help)
}

fn at(linked: &Linked, slot: usize, reason: Reason, what: impl Into<String>, help: &str) -> Refusal {
    Refusal::of_program(reason, Some(Place::new(linked, slot)), what, help)
}

fn whole(reason: Reason, what: impl Into<String>, help: &str) -> Refusal {
    Refusal::of_program(reason, None, what, help)
}

fn size(linked: &Linked, limits: &Limits) -> Result<(), Refusal> {
    let n = linked.insns.len();
    if n > limits.instructions {
        return Err(whole(
            Reason::Size,
            format!("the program has {n} instructions, the limit is {}", limits.instructions),
            "split it, or use fewer tables and branches",
        ));
    }
    Ok(())
}

fn maps(linked: &Linked) -> Result<(), Refusal> {
    for m in &linked.maps {
        if let Some(what) = impossible(m) {
            return Err(whole(
                Reason::Map,
                format!("map {}: {what}", m.name),
                "correct the map's definition",
            ));
        }
    }
    Ok(())
}

fn impossible(m: &Map) -> Option<String> {
    let d = &m.definition;
    match d.map_type {
        map::TYPE_HASH => {}
        map::TYPE_ARRAY if d.key_size != 4 => return Some("an array's key has four bytes".to_owned()),
        map::TYPE_ARRAY => {}
        map::TYPE_LPM_TRIE if d.key_size <= 4 => {
            return Some(
                "the key of an LPM trie is a four-byte prefix length and at least one byte".to_owned(),
            );
        }
        map::TYPE_LPM_TRIE => {}
        map::TYPE_CLASSIFIER => {
            let ranges: u32 = map::range_widths(d.flags).sum();
            return (ranges > d.key_size || d.key_size == 0 || d.key_size > MAX_KEY_BYTES)
                .then(|| format!("a key of {} bytes with {ranges} bytes of ranges", d.key_size))
                .or_else(|| impossible_values(d));
        }
        t => return Some(format!("type {t} is not hash, array, LPM trie or classifier")),
    }
    if d.key_size == 0 || d.key_size > MAX_KEY_BYTES {
        return Some(format!("key of {} bytes; 1 to {MAX_KEY_BYTES} are possible", d.key_size));
    }
    impossible_values(d).or_else(|| (d.flags != 0).then(|| format!("flags {:#x} are not known", d.flags)))
}

fn impossible_values(d: &map::MapDefinition) -> Option<String> {
    if d.value_size == 0 || d.value_size > MAX_VALUE_BYTES {
        return Some(format!("value of {} bytes; 1 to {MAX_VALUE_BYTES} are possible", d.value_size));
    }
    (d.max_entries == 0).then(|| "it has no room for an entry".to_owned())
}

fn entries(linked: &Linked) -> Result<(), Refusal> {
    for (i, e) in linked.entries.iter().enumerate() {
        let Some(m) = linked.maps.get(e.map as usize) else {
            return Err(whole(
                Reason::Map,
                format!("entry {i} is for a map that does not exist"),
                "link again",
            ));
        };
        let d = &m.definition;
        if e.key.len() != d.entry_key_size() as usize || e.value.len() != d.value_size as usize {
            return Err(whole(
                Reason::Map,
                format!("entry {i} does not have the key and value sizes of map {}", m.name),
                "compile the program again",
            ));
        }
    }
    Ok(())
}

/// Calls do not recurse, do not nest too deeply, and copied into each other stay within the limit.
fn calls(linked: &Linked, code: &Checked, limits: &Limits) -> Result<(), Refusal> {
    let called = |slot: usize| match code.ops[slot] {
        Op::CallLocal { off } => usize::try_from(target(slot, off)).ok().and_then(|to| code.function_at(to)),
        _ => None,
    };
    let callees: Vec<Vec<(usize, usize)>> = code
        .functions
        .iter()
        .map(|f| f.clone().filter_map(|slot| called(slot).map(|index| (slot, index))).collect())
        .collect();
    let mut graph = CallGraph { linked, callees: &callees, done: vec![None; linked.subprograms.len()] };
    for index in 0..linked.subprograms.len() {
        let size = graph.expanded(index, &mut Vec::new())?;
        if size > limits.expanded {
            return Err(at(
                linked,
                linked.subprograms[index].start,
                Reason::Size,
                format!(
                    "this function has {size} instructions when each function that it calls is counted at each \
                     call; the limit is {}",
                    limits.expanded
                ),
                "call large functions from fewer places",
            ));
        }
    }
    Ok(())
}

struct CallGraph<'a> {
    linked: &'a Linked,
    /// By function: where it calls, and whom.
    callees: &'a [Vec<(usize, usize)>],
    /// By function, when known: its size with all that it calls, and how many frames that takes.
    done: Vec<Option<(usize, usize)>>,
}

impl CallGraph<'_> {
    fn expanded(&mut self, index: usize, path: &mut Vec<usize>) -> Result<usize, Refusal> {
        self.visit(index, path).map(|(size, _)| size)
    }

    /// `path` holds the functions that are being visited. It never gets longer than [`MAX_FRAMES`].
    fn visit(&mut self, index: usize, path: &mut Vec<usize>) -> Result<(usize, usize), Refusal> {
        if let Some(known) = self.done[index] {
            return Ok(known);
        }
        path.push(index);
        let s = &self.linked.subprograms[index];
        let (mut size, mut frames) = (s.end - s.start, 1);
        for &(slot, called) in &self.callees[index] {
            if path.contains(&called) {
                let what = "a function calls itself, directly or through others";
                return Err(at(self.linked, slot, Reason::CallDepth, what, "use a loop"));
            }
            let inner = if path.len() < MAX_FRAMES { Some(self.visit(called, path)?) } else { None };
            let Some((inner_size, inner_frames)) = inner.filter(|(_, f)| *f < MAX_FRAMES) else {
                return Err(at(
                    self.linked,
                    slot,
                    Reason::CallDepth,
                    format!("more than {MAX_FRAMES} functions are active at once"),
                    "let the compiler inline some (`static inline`)",
                ));
            };
            size = size.saturating_add(inner_size);
            frames = frames.max(inner_frames + 1);
        }
        path.pop();
        self.done[index] = Some((size, frames));
        Ok((size, frames))
    }
}
