//! The checks before the proof: properties that the engine relies on and PREVAIL does not check.
//!
//! The engine's own structural check ([`crate::check`]) comes first, so that encodings that PREVAIL
//! interprets in another way never reach it (PREVAIL lets `lddw` overwrite r10, and accepts calls by
//! register and legacy packet loads). Then this module checks maps, helpers and the registers that
//! functions read, and bounds the work: PREVAIL copies a function into each of its call sites, which
//! grows exponentially with the depth of calls.

use p4shield_abi::map;

use super::Limits;
use super::inherited;
use super::location::Location;
use super::platform::{MAX_FRAMES, helper_name};
use super::reason::Reason;
use super::refusal::Refusal;
use crate::check::{CheckError, Checked, check_and_decode};
use crate::insn::Op;
use crate::linked::{Linked, Map};

/// Maximum size of a key: it fits into a function's stack frame.
pub const MAX_KEY_BYTES: u32 = 512;
/// Maximum size of a value.
pub const MAX_VALUE_BYTES: u32 = 1 << 20;

/// Runs all checks that need no proof.
pub(super) fn check(linked: &Linked, limits: &Limits) -> Result<(), Refusal> {
    size(linked, limits)?;
    let code = check_and_decode(linked).map_err(|e| malformed(linked, &e))?;
    maps(linked)?;
    entries(linked)?;
    for (slot, op) in code.ops.iter().enumerate() {
        if let Op::Call { helper } = *op
            && helper_name(helper).is_none()
        {
            let what = format!("helper {helper} does not exist");
            return Err(at_slot(
                linked,
                slot,
                Reason::Helper,
                what,
                "use the helpers that abi::helper lists",
            ));
        }
    }
    inherited::check(linked, &code)?;
    calls(linked, &code, limits)
}

/// Converts a flaw that the engine found.
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
            "compile for eBPF as RFC 9669 defines it (clang -target bpf -mcpu=v4 or lower), without legacy \
             packet access and calls by register"
        }
        Reason::Map => "declare maps in section `maps`",
        _ => "compile and link the program again",
    };
    Refusal::of_program(reason, slot.map(|s| Location::new(linked, s)), what, help)
}

fn at_slot(linked: &Linked, slot: usize, reason: Reason, what: impl Into<String>, help: &str) -> Refusal {
    Refusal::of_program(reason, Some(Location::new(linked, slot)), what, help)
}

fn whole_program(reason: Reason, what: impl Into<String>, help: &str) -> Refusal {
    Refusal::of_program(reason, None, what, help)
}

fn size(linked: &Linked, limits: &Limits) -> Result<(), Refusal> {
    let n = linked.insns.len();
    if n > limits.instructions {
        return Err(whole_program(
            Reason::Size,
            format!("the program has {n} instructions, the limit is {}", limits.instructions),
            "split the program, or use fewer tables and branches",
        ));
    }
    Ok(())
}

fn maps(linked: &Linked) -> Result<(), Refusal> {
    for m in &linked.maps {
        if let Some(what) = map_flaw(m) {
            return Err(whole_program(
                Reason::Map,
                format!("map {}: {what}", m.name),
                "correct the map's definition",
            ));
        }
    }
    Ok(())
}

fn map_flaw(m: &Map) -> Option<String> {
    let d = &m.definition;
    match d.map_type {
        map::TYPE_HASH => {}
        map::TYPE_ARRAY if d.key_size != 4 => return Some("the key of an array has four bytes".to_owned()),
        map::TYPE_ARRAY => {}
        map::TYPE_LPM_TRIE if d.key_size <= 4 => {
            return Some(
                "the key of an LPM trie has a four-byte prefix length and at least one byte of data"
                    .to_owned(),
            );
        }
        map::TYPE_LPM_TRIE => {}
        map::TYPE_CLASSIFIER => {
            let ranges: u32 = map::range_widths(d.flags).sum();
            return (ranges > d.key_size || d.key_size == 0 || d.key_size > MAX_KEY_BYTES)
                .then(|| format!("invalid key of {} bytes with {ranges} bytes of ranges", d.key_size))
                .or_else(|| value_flaw(d));
        }
        t => return Some(format!("type {t} is not supported: use hash, array, LPM trie or classifier")),
    }
    if d.key_size == 0 || d.key_size > MAX_KEY_BYTES {
        return Some(format!("the key has {} bytes, allowed are 1 to {MAX_KEY_BYTES}", d.key_size));
    }
    value_flaw(d).or_else(|| (d.flags != 0).then(|| format!("unknown flags {:#x}", d.flags)))
}

fn value_flaw(d: &map::MapDefinition) -> Option<String> {
    if d.value_size == 0 || d.value_size > MAX_VALUE_BYTES {
        return Some(format!("the value has {} bytes, allowed are 1 to {MAX_VALUE_BYTES}", d.value_size));
    }
    (d.max_entries == 0).then(|| "max_entries is 0".to_owned())
}

fn entries(linked: &Linked) -> Result<(), Refusal> {
    for (i, e) in linked.entries.iter().enumerate() {
        let Some(m) = linked.maps.get(e.map as usize) else {
            return Err(whole_program(
                Reason::Map,
                format!("entry {i} refers to a map that does not exist"),
                "link the program again",
            ));
        };
        let d = &m.definition;
        if e.key.len() != d.entry_key_size() as usize || e.value.len() != d.value_size as usize {
            return Err(whole_program(
                Reason::Map,
                format!("key or value of entry {i} does not have the size that map {} requires", m.name),
                "compile the program again",
            ));
        }
    }
    Ok(())
}

/// Checks that calls do not recurse or nest too deeply, and that the expanded size is within the limit.
fn calls(linked: &Linked, code: &Checked, limits: &Limits) -> Result<(), Refusal> {
    let callees: Vec<Vec<(usize, usize)>> = code
        .functions
        .iter()
        .map(|f| f.clone().filter_map(|slot| code.callee_at(slot).map(|index| (slot, index))).collect())
        .collect();
    let mut graph = CallGraph { linked, callees: &callees, done: vec![None; linked.subprograms.len()] };
    for index in 0..linked.subprograms.len() {
        let size = graph.expanded(index, &mut Vec::new())?;
        if size > limits.expanded {
            return Err(at_slot(
                linked,
                linked.subprograms[index].start,
                Reason::Size,
                format!(
                    "this function has {size} instructions with each called function counted at each call; \
                     the limit is {}",
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
    /// By function: the slots of its calls and the called functions.
    callees: &'a [Vec<(usize, usize)>],
    /// By function, once computed: its expanded size and the number of frames that it needs.
    done: Vec<Option<(usize, usize)>>,
}

impl CallGraph<'_> {
    fn expanded(&mut self, index: usize, path: &mut Vec<usize>) -> Result<usize, Refusal> {
        self.visit(index, path).map(|(size, _)| size)
    }

    /// `path` holds the functions on the current call chain, at most [`MAX_FRAMES`].
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
                return Err(at_slot(self.linked, slot, Reason::CallDepth, what, "use a loop"));
            }
            let inner = if path.len() < MAX_FRAMES { Some(self.visit(called, path)?) } else { None };
            let Some((inner_size, inner_frames)) = inner.filter(|(_, f)| *f < MAX_FRAMES) else {
                return Err(at_slot(
                    self.linked,
                    slot,
                    Reason::CallDepth,
                    format!("more than {MAX_FRAMES} functions are active at once"),
                    "let the compiler inline functions (`static inline`)",
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
