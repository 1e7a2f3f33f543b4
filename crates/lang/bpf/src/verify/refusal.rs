//! Why a program may not run, in words for whoever wrote it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::explain::{Explanation, Held, explain};
use crate::linked::Linked;

/// The most bytes of one text in a [`Refusal`]: what a hostile program can make us say is bounded.
const MAX_TEXT: usize = 1024;

/// A place in a program's source, where the compiler told it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcePlace {
    /// File, as the compiler named it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

/// An instruction, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Slot of the instruction in the linked program, from 0.
    pub instruction: usize,
    /// Its text.
    pub text: String,
    /// Name of the function that it belongs to.
    pub function: String,
    /// Slots of the local calls that led there, outermost first. Empty in the entry program.
    pub called_from: Vec<usize>,
    /// Source file, line and column.
    pub source: Option<SourcePlace>,
}

impl Place {
    pub(super) fn new(linked: &Linked, instruction: usize) -> Self {
        let source = linked.lines.find(instruction).map(|l| SourcePlace {
            file: clip(l.file),
            line: l.line,
            column: l.column,
        });
        let function = linked.subprogram_at(instruction).map(|s| clip(&s.name)).unwrap_or_default();
        Self { instruction, text: clip(&linked.text(instruction)), function, called_from: Vec::new(), source }
    }
}

impl fmt::Display for Place {
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

/// What a program would do that it must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Reason {
    /// An instruction that does not exist, or that we do not offer.
    Instruction,
    /// A jump or call that leaves its function, or lands inside an instruction; code without an end.
    ControlFlow,
    /// Too many instructions, counted with functions copied into each place that calls them.
    Size,
    /// A helper that does not exist.
    Helper,
    /// A map that does not exist, or cannot exist.
    Map,
    /// A packet access that is not proven to lie before `data_end`.
    PacketBounds,
    /// A stack access outside the function's frame.
    StackBounds,
    /// An access outside the context.
    ContextBounds,
    /// An access outside a map's value.
    MapValueBounds,
    /// A write to `data` or `data_end`.
    ContextPointer,
    /// A map value that may be null is used.
    Null,
    /// A register or stack bytes that were never written are used.
    Uninitialised,
    /// An address would become visible as a number, or a number used as an address.
    PointerLeak,
    /// A register holds the wrong kind of thing for what is done with it.
    Type,
    /// A comparison or subtraction of things that have no common origin.
    Comparison,
    /// A loop that is not proven to end.
    Loop,
    /// Functions that call themselves, or too deep.
    CallDepth,
    /// The proof ran into a limit or an internal error of the verifier; that is no proof.
    Unproven,
}

/// Which limit ended a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Limit {
    /// CPU time.
    Cpu,
    /// Memory.
    Memory,
    /// Time on the clock.
    Wall,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "CPU time",
            Self::Memory => "memory",
            Self::Wall => "time",
        })
    }
}

/// Why a program may not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The program does, or may do, what it must not.
    Program(Box<Finding>),
    /// The proof took more than it may. The same program may be verified with higher limits.
    Resources {
        /// Which limit ended it.
        limit: Limit,
    },
    /// The verifier could not be asked. Says nothing of the program.
    Unavailable {
        /// Why.
        cause: String,
    },
}

/// What is wrong with a program, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What kind of wrong.
    pub reason: Reason,
    /// Where; `None` if it is about the program as a whole.
    pub place: Option<Place>,
    /// What is wrong, in words.
    pub what: String,
    /// What to do about it.
    pub help: String,
    /// PREVAIL's own message; `None` if our own check refused the program.
    pub prevail: Option<String>,
}

impl Refusal {
    pub(super) fn of_program(
        reason: Reason,
        place: Option<Place>,
        what: impl Into<String>,
        help: &str,
    ) -> Self {
        let what = clip(&what.into());
        Self::Program(Box::new(Finding { reason, place, what, help: help.to_owned(), prevail: None }))
    }

    pub(super) fn of_prevail(place: Option<Place>, message: &str, held: Held) -> Self {
        let Explanation { reason, what, help } = explain(message, place.as_ref(), held);
        Self::Program(Box::new(Finding {
            reason,
            place,
            what,
            help: help.to_owned(),
            prevail: Some(clip(message)),
        }))
    }

    /// The same with its place described again by `linked`. For refusals from elsewhere (another process, the cache),
    /// which know instructions, but not the source.
    pub(super) fn placed_in(mut self, linked: &Linked) -> Self {
        if let Self::Program(finding) = &mut self
            && let Some(old) = finding.place.take()
            && old.instruction < linked.insns.len()
        {
            finding.place =
                Some(Place { called_from: old.called_from, ..Place::new(linked, old.instruction) });
        }
        self
    }

    /// What kind of wrong, if the program is.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Program(f) => Some(f.reason),
            Self::Resources { .. } | Self::Unavailable { .. } => None,
        }
    }

    /// Whether the same program will always be refused, whatever the limits and whatever else happens.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Program(_))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(finding) => {
                if let Some(place) = &finding.place {
                    write!(f, "{place}: ")?;
                }
                write!(f, "{}; {}", finding.what, finding.help)?;
                if let Some(message) = &finding.prevail {
                    write!(f, " (PREVAIL: {message})")?;
                }
                Ok(())
            }
            Self::Resources { limit } => write!(
                f,
                "verification used up its {limit}; make the program smaller (the cost grows with the square of \
                 its branches and tables), or raise the limit"
            ),
            Self::Unavailable { cause } => write!(f, "the verifier could not be asked: {cause}"),
        }
    }
}

impl std::error::Error for Refusal {}

/// The first [`MAX_TEXT`] bytes, without control characters: the text reaches terminals and logs.
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
