//! An assembler for eBPF in the syntax of uBPF and of the public conformance suite.
//!
//! ```text
//! .map ports hash 2 8 1024        # name, type (array, hash, lpm), bytes of key and value, entries
//!     mov r6, r1                  # registers with or without %; ; and # start a comment
//!     ldxdw r2, [r6+0]            # ldx/st/stx + b, h, w, dw; ldxsb, ldxsh, ldxsw extend the sign
//!     lddw r1, map ports
//!     call 1                      # a helper by its number
//!     jeq r0, 0, drop             # labels, or distances like +2
//!     lock fetch add [r0+0], r7   # add, or, and, xor, xchg, cmpxchg; 32 at the end for four bytes
//!     call local check            # a function of the program
//! drop:
//!     mov r0, 0
//!     exit
//! ```
//!
//! The assembler accepts the text of every [`crate::insn::Op`], except for a distance that leaves the
//! function.

mod operand;
mod statement;

use std::collections::{BTreeMap, BTreeSet};

use p4shield_abi::map::{MapDefinition, TYPE_ARRAY, TYPE_HASH, TYPE_LPM_TRIE};

use crate::insn::{Insn, Op, opcode};
use crate::linked::{Linked, Map, Subprogram};
use operand::number;
use statement::{JumpTarget, Statement};

/// A syntax error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct AsmError {
    /// The line, from 1.
    pub line: usize,
    /// The error and the expected syntax.
    pub reason: String,
}

/// A parsed instruction whose jump target is not resolved yet.
struct Pending {
    line: usize,
    slot: usize,
    statement: Statement,
}

/// Assembles a program.
///
/// Every target of `call local` starts a function; the first instruction starts the entry function. The
/// result may still be refused by [`crate::check`] or [`crate::verify`].
///
/// # Errors
/// Returns the first line with a syntax error.
pub fn assemble(text: &str) -> Result<Linked, AsmError> {
    let mut maps: Vec<Map> = Vec::new();
    let mut labels = BTreeMap::new();
    let mut pending: Vec<Pending> = Vec::new();
    let mut slots = 0;
    for (index, raw) in text.lines().enumerate() {
        let line = index + 1;
        let failed = |reason: String| AsmError { line, reason };
        let mut code = raw.split(['#', ';']).next().unwrap_or("").trim();
        if let Some((label, rest)) = code.split_once(':') {
            if labels.insert(label.trim().to_owned(), slots).is_some() {
                return Err(failed(format!("label {label} is defined twice")));
            }
            code = rest.trim();
        }
        if code.is_empty() {
            continue;
        }
        if let Some(declaration) = code.strip_prefix(".map") {
            maps.push(map(declaration).map_err(failed)?);
            continue;
        }
        let names: Vec<&str> = maps.iter().map(|m| m.name.as_str()).collect();
        let statement = statement::parse(code, &names).map_err(failed)?;
        let size = statement.op.slots();
        pending.push(Pending { line, slot: slots, statement });
        slots += size;
    }
    link(pending, &labels, maps)
}

fn map(declaration: &str) -> Result<Map, String> {
    let usage = || "expected .map NAME array|hash|lpm KEY VALUE ENTRIES".to_owned();
    let words: Vec<&str> = declaration.split_whitespace().collect();
    let [name, kind, sizes @ ..] = words.as_slice() else { return Err(usage()) };
    let map_type = match *kind {
        "array" => TYPE_ARRAY,
        "hash" => TYPE_HASH,
        "lpm" => TYPE_LPM_TRIE,
        _ => return Err(usage()),
    };
    let sizes: Vec<u32> = sizes.iter().filter_map(|s| number(s)?.try_into().ok()).collect();
    let [key_size, value_size, max_entries] = sizes[..] else { return Err(usage()) };
    let definition = MapDefinition { map_type, key_size, value_size, max_entries, flags: 0 };
    Ok(Map { name: (*name).to_owned(), definition })
}

/// Resolves jumps and calls, and finds the functions.
fn link(pending: Vec<Pending>, labels: &BTreeMap<String, usize>, maps: Vec<Map>) -> Result<Linked, AsmError> {
    let exits: Vec<usize> = pending.iter().filter(|p| p.statement.op == Op::Exit).map(|p| p.slot).collect();
    let mut insns: Vec<Insn> = Vec::new();
    let mut functions = BTreeSet::from([0]);
    for Pending { line, slot, statement } in pending {
        let failed = |reason: String| AsmError { line, reason };
        let (mut insn, second) = statement.op.encode();
        if let Some(target) = statement.target {
            let off = match &target {
                JumpTarget::Distance(off) => *off,
                JumpTarget::Label(label) => {
                    let to = label_slot(label, labels, &exits, slot)
                        .ok_or_else(|| failed(format!("label {label} is not defined")))?;
                    to as i64 - slot as i64 - 1
                }
            };
            let far = || failed(format!("the distance of {off} slots is too large"));
            if matches!(statement.op, Op::Branch { .. })
                || insn.code == opcode::JMP | opcode::JA && !statement.far
            {
                insn.off = off.try_into().map_err(|_| far())?;
            } else {
                insn.imm = off.try_into().map_err(|_| far())?;
            }
            if statement.far {
                insn.code = opcode::JMP32 | opcode::JA;
            }
            if insn.is_local_call() {
                functions.insert((slot as i64 + 1 + off) as usize);
            }
        }
        insns.push(insn);
        insns.extend(second);
    }
    let subprograms = subprograms(&functions, insns.len(), labels);
    Ok(Linked { insns, maps, subprograms, ..Linked::default() })
}

/// Returns the slot of a label. An undefined label `exit` is the next `exit` instruction, or the last one.
fn label_slot(label: &str, labels: &BTreeMap<String, usize>, exits: &[usize], from: usize) -> Option<usize> {
    labels.get(label).copied().or_else(|| {
        let next = exits.iter().find(|&&e| e > from).or(exits.last());
        (label == "exit").then_some(next.copied()).flatten()
    })
}

fn subprograms(starts: &BTreeSet<usize>, len: usize, labels: &BTreeMap<String, usize>) -> Vec<Subprogram> {
    let starts: Vec<usize> = starts.iter().copied().filter(|&s| s < len || s == 0).collect();
    let ends = starts.iter().skip(1).copied().chain([len]);
    let name = |start: usize| {
        let label = labels.iter().find(|(_, at)| **at == start);
        label.map_or_else(|| format!("function_{start}"), |(name, _)| name.clone())
    };
    starts.iter().zip(ends).map(|(&start, end)| Subprogram { name: name(start), start, end }).collect()
}

#[cfg(test)]
mod tests;
