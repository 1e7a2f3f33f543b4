//! Exit codes; docs/reference/exit-codes.md documents them.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command succeeded.
    Done,
    /// The command failed.
    Failed,
    /// The command refused its input: a program, a configuration, a file.
    Refused,
    /// A finding of the auditor, 10 to 18.
    Finding(u8),
    /// A command that was run ended with this code.
    Code(u8),
}

/// An error that the input causes, not the machine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

impl Refused {
    /// Refuses because of an error, with its causes.
    pub fn because(error: &dyn std::error::Error) -> Self {
        let causes = std::iter::successors(Some(error), |e| e.source());
        Self(causes.map(ToString::to_string).collect::<Vec<_>>().join(": "))
    }

    /// Adds the name of the file that is at fault.
    pub fn of(self, file: &str) -> Self {
        Self(format!("{file}: {}", self.0))
    }
}

impl Exit {
    /// Returns the exit code for an error that reached `main`.
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
            Exit::Finding(n) | Exit::Code(n) => n,
        })
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn refusals_are_found_below_their_context() {
        let refused: anyhow::Result<()> = Err(Refused("no".into())).context("while loading");
        assert_eq!(Exit::of(&refused.unwrap_err()), Exit::Refused);
        assert_eq!(Exit::of(&anyhow::anyhow!("no")), Exit::Failed);
    }
}
