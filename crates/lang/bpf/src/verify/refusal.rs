//! Refusals: the reason why a program may not run, in words for its author.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::explain::{Explanation, RegisterType, explain};
use super::location::{Location, clip};
use super::reason::{Limit, Reason};
use crate::linked::Linked;

/// Reason why a program may not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The program violates a rule, or is not proven to keep it.
    Program(Box<Finding>),
    /// The proof exceeded a limit. A repeated verification with higher limits may succeed.
    Resources {
        /// The limit.
        limit: Limit,
    },
    /// The verifier failed. This does not concern the program.
    Unavailable {
        /// The cause.
        cause: String,
    },
}

/// A violation: what is wrong, where, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Category of the violation.
    pub reason: Reason,
    /// Location; `None` if the violation concerns the whole program.
    pub location: Option<Location>,
    /// Description of the violation.
    pub what: String,
    /// The remedy.
    pub help: String,
    /// PREVAIL's message; `None` if our own checks refused the program.
    pub prevail: Option<String>,
}

impl Refusal {
    pub(super) fn of_program(
        reason: Reason,
        location: Option<Location>,
        what: impl Into<String>,
        help: &str,
    ) -> Self {
        let what = clip(&what.into());
        Self::Program(Box::new(Finding { reason, location, what, help: help.to_owned(), prevail: None }))
    }

    pub(super) fn of_prevail(location: Option<Location>, message: &str, register_type: RegisterType) -> Self {
        let Explanation { reason, what, help } = explain(message, location.as_ref(), register_type);
        Self::Program(Box::new(Finding {
            reason,
            location,
            what,
            help: help.to_owned(),
            prevail: Some(clip(message)),
        }))
    }

    /// Returns the same refusal with the source position from `linked`. Refusals from the verifier process
    /// and from the cache hold slots, but no source positions.
    pub(super) fn located_in(mut self, linked: &Linked) -> Self {
        if let Self::Program(finding) = &mut self
            && let Some(old) = finding.location.take()
            && old.instruction < linked.insns.len()
        {
            finding.location =
                Some(Location { called_from: old.called_from, ..Location::new(linked, old.instruction) });
        }
        self
    }

    /// Returns the category of the violation, if the program violates a rule.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Program(f) => Some(f.reason),
            Self::Resources { .. } | Self::Unavailable { .. } => None,
        }
    }

    /// Returns whether the refusal is independent of limits and other circumstances.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Program(_))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(finding) => {
                if let Some(location) = &finding.location {
                    write!(f, "{location}: ")?;
                }
                write!(f, "{}; {}", finding.what, finding.help)?;
                if let Some(message) = &finding.prevail {
                    write!(f, " (PREVAIL: {message})")?;
                }
                Ok(())
            }
            Self::Resources { limit } => write!(
                f,
                "the verifier reached its limit of {limit}; make the program smaller (the cost grows with \
                 the square of its branches and tables) or raise the limit"
            ),
            Self::Unavailable { cause } => write!(f, "the verifier is not available: {cause}"),
        }
    }
}

impl std::error::Error for Refusal {}
