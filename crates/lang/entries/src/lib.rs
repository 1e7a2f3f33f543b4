//! Files that write the tables of a P4 switch, in the formats that people already have.
//!
//! | module | contents |
//! |---|---|
//! | `commands` | command files of the reference switch's command line, such as `s1-commands.txt` |
//! | `elements` | those of its commands that write registers, counters and meters |
//! | `profiles` | action profiles and selectors |
//! | `queues` | queues |
//! | `runtime` | the P4 tutorials' JSON, such as `s1-runtime.json` |
//! | `columns` | CSV: the entries of one table |
//! | [`mirroring`] | clone sessions |
//! | [`multicast`] | the reference switch's multicast groups, which consist of nodes |
//!
//! A file becomes a list of [`Write`]s, each with its line. Only what a format needs is looked up in the
//! program: a key's match kind, or whether a table has priorities. Whether an entry fits its table is
//! checked where it is encoded.
//!
//! Where a file's meaning is the reference switch's: <https://github.com/p4lang/behavioral-model>,
//! `tools/runtime_CLI.py`.

#![forbid(unsafe_code)]

mod columns;
mod commands;
mod elements;
mod fuzz;
pub mod mirroring;
pub mod multicast;
mod profiles;
mod queues;
mod runtime;

pub use fuzz::fuzz;

use mirroring::MirroringError;
use multicast::MulticastError;
use p4shield_tables::Control;
use p4shield_tables::names::NameError;
use p4shield_tables::write::Write;
use serde::{Deserialize, Serialize};

/// The format of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "format", rename_all = "snake_case", deny_unknown_fields)]
pub enum Format {
    /// Commands of the reference switch.
    Commands,
    /// JSON as in the P4 tutorials.
    Runtime,
    /// CSV with the entries of one table.
    Csv {
        /// The table, in full or the last parts of its name.
        table: String,
    },
}

/// A write, and where the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The line, from 1.
    pub line: usize,
    /// The write.
    pub write: Write,
}

impl Located {
    /// Makes an entry replace the one that matches the same.
    pub fn replace(&mut self) {
        if let Write::Add(entry) = &self.write {
            self.write = Write::Set(entry.clone());
        }
    }
}

/// The first line that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct FileError {
    /// The line, from 1.
    pub line: usize,
    /// The problem.
    pub problem: Problem,
}

/// The reason why a line is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The command does not exist.
    #[error("unknown command `{command}`; known: {known}")]
    UnknownCommand {
        /// The command.
        command: String,
        /// The known commands.
        known: String,
    },
    /// The reference switch has the command, and this switch has nothing for it.
    #[error("{command} is not supported: {why}")]
    Unsupported {
        /// The command, or a part of the file.
        command: String,
        /// The missing part.
        why: &'static str,
    },
    /// The arguments do not fit the command.
    #[error("write it as: {0}")]
    Usage(&'static str),
    /// A name is unknown or ambiguous.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The table needs a priority.
    #[error(
        "an entry of {table} ends with a priority from 0, which comes first, to {}, but the last word is \
         `{word}`",
        commands::LAST_PRIORITY
    )]
    Priority {
        /// The table.
        table: String,
        /// The last word.
        word: String,
    },
    /// No earlier line has added the entry.
    #[error(
        "{table} has no entry {handle} of this file: its entries have the handles 0, 1, 2 in their order"
    )]
    Handle {
        /// The table.
        table: String,
        /// The handle.
        handle: String,
    },
    /// The file has two action profiles.
    #[error("the file has two action profiles, {first} and {second}: write their entries in two files")]
    Profiles {
        /// The first.
        first: String,
        /// The second.
        second: String,
    },
    /// No earlier line has made the member or group.
    #[error("no line before made {what} {handle}: the file's have the handles 0, 1, 2 in their order")]
    ProfileHandle {
        /// Member or group.
        what: &'static str,
        /// The handle.
        handle: String,
    },
    /// A multicast command is refused.
    #[error(transparent)]
    Multicast(#[from] MulticastError),
    /// A command about clone sessions is refused.
    #[error(transparent)]
    Mirroring(#[from] MirroringError),
    /// The JSON is invalid, or an entry in it.
    #[error("{0}")]
    Json(String),
    /// The CSV is invalid.
    #[error("{0}")]
    Csv(String),
}

impl Problem {
    const fn at(self, line: usize) -> FileError {
        FileError { line, problem: self }
    }
}

/// Reads a file for a program.
///
/// # Errors
/// [`FileError`], of the first wrong line.
pub fn read(control: &Control, format: &Format, text: &str) -> Result<Vec<Located>, FileError> {
    match format {
        Format::Commands => commands::read(control, text),
        Format::Runtime => runtime::read(control, text),
        Format::Csv { table } => columns::read(table, text),
    }
}
