//! Exit codes, as docs/reference/exit-codes.md has them.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It did what was asked.
    Done,
    /// It could not.
    Failed,
    /// What it was given was refused: a program, a configuration, an input.
    Refused,
    /// A finding of the auditor, 10 to 18.
    Finding(u8),
}

/// An error whose cause is the input, not the machine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

impl Refused {
    /// An error with its causes.
    pub fn because(error: &dyn std::error::Error) -> Self {
        let causes = std::iter::successors(Some(error), |e| e.source());
        Self(causes.map(ToString::to_string).collect::<Vec<_>>().join(": "))
    }

    /// The same, about this file.
    pub fn of(self, file: &str) -> Self {
        Self(format!("{file}: {}", self.0))
    }
}

impl Exit {
    /// The exit for an error that reached `main`.
    pub fn of(error: &anyhow::Error) -> Self {
        if error.chain().any(|e| e.is::<Refused>()) { Self::Refused } else { Self::Failed }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Refused => 3,
            Exit::Finding(n) => n,
        })
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_refusal_is_found_under_its_context() {
        let refused: anyhow::Result<()> = Err(Refused("no".into())).context("while loading");
        assert_eq!(Exit::of(&refused.unwrap_err()), Exit::Refused);
        assert_eq!(Exit::of(&anyhow::anyhow!("no")), Exit::Failed);
    }
}
