//! Errors in a policy file.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A file cannot be read.
    #[error("cannot read {}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The policy file is refused.
    #[error("{}", render(file, problems))]
    Refused {
        /// The file.
        file: PathBuf,
        /// All problems, in the order of the file.
        problems: Vec<Problem>,
    },
    /// A file that the policy names is unusable.
    #[error("{}: {why}", file.display())]
    Endorsement {
        /// The file.
        file: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
}

fn render(file: &Path, problems: &[Problem]) -> String {
    let lines: Vec<_> = problems.iter().map(|p| format!("{}:{p}", file.display())).collect();
    lines.join("\n")
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong, with the key, and what to write instead.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl Problem {
    pub(super) fn at(text: &str, span: Range<usize>, message: String) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Self { line, column, message }
    }

    /// Converts an error of the TOML parser: syntax, unknown keys, wrong types, missing keys.
    pub(super) fn syntax(text: &str, error: &toml::de::Error) -> Self {
        Self::at(text, error.span().unwrap_or(0..0), error.message().trim().replace('\n', "; "))
    }
}
