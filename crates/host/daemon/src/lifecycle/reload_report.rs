//! What a reload has changed, or would change.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The report of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReloadReport {
    /// The differences between the two files: `+`, `-` or `~`, the table, the key, the values.
    pub changes: Vec<String>,
    /// Tenants whose P4 VM is restarted, because it cannot take the change otherwise.
    pub restarted: Vec<String>,
    /// Key files with a new key, which rotates, or would rotate, without a restart.
    #[serde(default)]
    pub rotated: Vec<String>,
    /// Tenants whose P4 VM does not answer. Its successor gets the configuration.
    pub late: Vec<String>,
    /// Programs that were replaced.
    pub replaced: usize,
    /// Programs that run as before.
    pub unchanged: usize,
    /// Programs that were refused before and still are, with the reasons.
    pub refused: Vec<String>,
    /// What the configuration names that is absent, and the other way round, with remedies.
    pub problems: Vec<String>,
    /// Whether nothing was applied, as requested.
    pub dry_run: bool,
}

impl fmt::Display for ReloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.changes.iter().try_for_each(|change| writeln!(f, "{change}"))?;
        for tenant in &self.restarted {
            writeln!(f, "tenant {tenant}: the P4 VM is restarted")?;
        }
        for key in &self.rotated {
            writeln!(
                f,
                "{key}: the key rotates; copy the file to its VMs before the window of key_window ends"
            )?;
        }
        for tenant in &self.late {
            writeln!(f, "tenant {tenant}: the P4 VM does not answer; its successor gets the configuration")?;
        }
        self.refused.iter().try_for_each(|refusal| writeln!(f, "still refused: {refusal}"))?;
        self.problems.iter().try_for_each(|problem| writeln!(f, "problem: {problem}"))?;
        match (self.dry_run, self.changes.is_empty() && self.rotated.is_empty()) {
            (true, true) => write!(f, "the configuration is in force already"),
            (true, false) => write!(f, "nothing was applied"),
            (false, _) => write!(f, "{} programs replaced, {} unchanged", self.replaced, self.unchanged),
        }
    }
}
