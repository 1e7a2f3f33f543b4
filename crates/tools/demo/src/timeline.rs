//! The run, second by second.

use serde::Serialize;

use crate::traffic::Totals;

/// One second of the run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    /// Seconds since the start.
    pub(crate) at: f64,
    /// Used TCP memory, bytes.
    pub used: u64,
    /// New connections accepted in this second.
    pub(crate) accepted: u64,
    /// New connections denied in this second.
    pub(crate) denied: u64,
    /// Answers on established connections in this second.
    pub(crate) answered: u64,
    /// Established connections that have stalled so far.
    pub(crate) stalled: u64,
    /// The auditor's latest report.
    pub(crate) audit: String,
}

/// A named part of the run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Phase {
    /// Its name.
    pub(crate) name: &'static str,
    /// Start, seconds since the start of the run.
    pub(crate) from: f64,
    /// End, likewise.
    pub(crate) to: f64,
}

/// The run.
#[derive(Debug, Serialize)]
pub(crate) struct Timeline {
    /// The tenant's threshold, bytes of TCP memory.
    pub(crate) threshold: u64,
    /// Each second.
    pub(crate) samples: Vec<Sample>,
    /// Each phase.
    pub(crate) phases: Vec<Phase>,
}

const MIB: f64 = 1024.0 * 1024.0;

impl Sample {
    /// Computes a sample from the totals at this second's start and end.
    pub(crate) fn new(at: f64, used: u64, before: Totals, after: Totals, audit: String) -> Self {
        let second = after - before;
        Self {
            at,
            used,
            accepted: second.accepted,
            denied: second.denied,
            answered: second.answered,
            stalled: after.stalled,
            audit,
        }
    }

    /// Returns the heading of the table of [`Sample::row`].
    pub(crate) fn heading() -> String {
        format!(
            "{:>5} {:>14} {:>14} {:>9} {:>7} {:>12}  audit",
            "s", "used TCP MiB", "threshold MiB", "accepted", "denied", "established"
        )
    }

    /// Returns one row of the table.
    pub(crate) fn row(&self, threshold: u64, kept: usize) -> String {
        format!(
            "{:>5.1} {:>14.1} {:>14.1} {:>9} {:>7} {:>12}  {}",
            self.at,
            self.used as f64 / MIB,
            threshold as f64 / MIB,
            self.accepted,
            self.denied,
            format!("{} alive", kept as u64 - self.stalled.min(kept as u64)),
            self.audit
        )
    }
}

impl Timeline {
    /// Returns the samples' `value`s as a series.
    pub(crate) fn series(&self, value: impl Fn(&Sample) -> f64) -> Vec<(f64, f64)> {
        self.samples.iter().map(|s| (s.at, value(s))).collect()
    }
}
