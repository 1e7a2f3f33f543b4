//! The results of checks on a host.

use serde::Serialize;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check, as one word for scripts.
    pub check: &'static str,
    /// The severity.
    pub outcome: Severity,
    /// The result as text.
    pub what: String,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The check passed.
    Good,
    /// A hint that does not prevent the installation.
    Note,
    /// The attachment would not work, or packets would bypass it: nothing is installed.
    Problem,
}

impl Finding {
    pub(crate) fn good(check: &'static str, what: impl Into<String>) -> Self {
        Self { check, outcome: Severity::Good, what: what.into(), remedy: None }
    }

    pub(crate) fn note(check: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, outcome: Severity::Note, what: what.into(), remedy: Some(remedy.into()) }
    }

    pub(crate) fn problem(check: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, outcome: Severity::Problem, what: what.into(), remedy: Some(remedy.into()) }
    }
}
