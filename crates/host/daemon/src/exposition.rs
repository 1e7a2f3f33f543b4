//! Prometheus's text format, version 0.0.4.
//!
//! It is the format that `promtool check metrics` and all versions of Prometheus read. Rows are sorted, so
//! that two scrapes of the same values are the same text.

use std::collections::BTreeMap;
use std::fmt::Write;

/// The `Content-Type` of the text.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// What all names begin with.
const PREFIX: &str = "p4shield";

/// Names and values of a row's labels.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// A type of metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A number that only grows.
    Counter,
    /// A number that grows and falls.
    Gauge,
}

/// A metric with its rows.
#[derive(Debug)]
pub(crate) struct Family {
    name: String,
    kind: Kind,
    help: &'static str,
    rows: BTreeMap<Labels, u64>,
}

impl Family {
    /// Returns a metric without rows. `name` lacks the prefix and, for a counter, `_total`.
    pub(crate) fn new(name: &str, kind: Kind, help: &'static str) -> Self {
        let suffix = if kind == Kind::Counter { "_total" } else { "" };
        Self { name: format!("{PREFIX}_{name}{suffix}"), kind, help, rows: BTreeMap::new() }
    }

    /// Adds to the row with these labels.
    pub(crate) fn add(&mut self, labels: Labels, n: u64) {
        let value = self.rows.entry(labels).or_default();
        *value = value.saturating_add(n);
    }

    /// Sets the row with these labels.
    pub(crate) fn set(&mut self, labels: Labels, n: u64) {
        self.rows.insert(labels, n);
    }

    /// Appends the metric to `text`.
    pub(crate) fn write(&self, text: &mut String) {
        let kind = match self.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let Self { name, help, .. } = self;
        // Writing to a string cannot fail.
        let _ = write!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}\n");
        for (labels, value) in &self.rows {
            let labels: Vec<_> =
                labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
            let _ = match labels.is_empty() {
                true => writeln!(text, "{name} {value}"),
                false => writeln!(text, "{name}{{{}}} {value}", labels.join(",")),
            };
        }
    }
}

/// Returns the value of a label with the format's escapes.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

/// Returns labels with one more.
pub(crate) fn with(labels: &Labels, name: &'static str, value: &str) -> Labels {
    let mut labels = labels.clone();
    labels.push((name, value.to_owned()));
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_values_escaped() {
        let mut family = Family::new("packets", Kind::Counter, "Packets");
        for (vm, n) in [("b", 1), ("a\"\\\n", 2), ("b", 3)] {
            family.add(vec![("vm", vm.to_owned())], n);
        }
        let mut text = String::new();
        family.write(&mut text);
        let expected = "# HELP p4shield_packets_total Packets.\n# TYPE p4shield_packets_total counter\n\
                        p4shield_packets_total{vm=\"a\\\"\\\\\\n\"} 2\np4shield_packets_total{vm=\"b\"} 4\n";
        assert_eq!(text, expected);
    }
}
