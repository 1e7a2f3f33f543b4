//! What was found about a host.

use serde::Serialize;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at: one word, for scripts.
    pub check: &'static str,
    /// How it is.
    pub outcome: Outcome,
    /// The same for people.
    pub what: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As it has to be.
    Good,
    /// To be known; it stops nothing.
    Note,
    /// It would not work, or packets would go round: nothing is installed.
    Problem,
}

impl Finding {
    pub(crate) fn good(check: &'static str, what: impl Into<String>) -> Self {
        Self { check, outcome: Outcome::Good, what: what.into(), remedy: None }
    }

    pub(crate) fn note(check: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, outcome: Outcome::Note, what: what.into(), remedy: Some(remedy.into()) }
    }

    pub(crate) fn problem(check: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, outcome: Outcome::Problem, what: what.into(), remedy: Some(remedy.into()) }
    }
}
