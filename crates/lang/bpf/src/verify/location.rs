//! Locations in refusals: an instruction with its source position.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::linked::Linked;

/// Maximum length of a text in a [`super::Refusal`]: it bounds the output that a hostile program can cause.
const MAX_TEXT: usize = 1024;

/// A source position, as the compiler recorded it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceLocation {
    /// File name from the compiler.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

/// An instruction with its source position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// Slot of the instruction in the linked program, from 0.
    pub instruction: usize,
    /// Its text.
    pub text: String,
    /// Name of the function that contains the instruction.
    pub function: String,
    /// Slots of the local calls that lead to the function, outermost first. Empty in the entry function.
    pub called_from: Vec<usize>,
    /// Source file, line and column.
    pub source: Option<SourceLocation>,
}

impl Location {
    pub(super) fn new(linked: &Linked, instruction: usize) -> Self {
        let source = linked.lines.find(instruction).map(|l| SourceLocation {
            file: clip(l.file),
            line: l.line,
            column: l.column,
        });
        let function = linked.subprogram_at(instruction).map(|s| clip(&s.name)).unwrap_or_default();
        Self { instruction, text: clip(&linked.text(instruction)), function, called_from: Vec::new(), source }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(s) = &self.source {
            write!(f, "{}:{}:{}: ", s.file, s.line, s.column)?;
        }
        write!(f, "instruction {} `{}`", self.instruction, self.text)?;
        if !self.function.is_empty() {
            write!(f, " in {}", self.function)?;
        }
        for call in self.called_from.iter().rev() {
            write!(f, ", called at instruction {call}")?;
        }
        Ok(())
    }
}

/// Returns the first [`MAX_TEXT`] bytes without control characters, because terminals and logs show the
/// text.
pub(super) fn clip(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if out.len() + c.len_utf8() > MAX_TEXT {
            break;
        }
        out.push(if c.is_control() { ' ' } else { c });
    }
    out
}
