//! Prometheus's text format, version 0.0.4.
//!
//! It is the format that `promtool check metrics` and all versions of Prometheus read. Rows are sorted, so
//! that two scrapes of the same values are the same text.

use prometheus::TextEncoder;
use prometheus::proto::{self, LabelPair, Metric, MetricFamily, MetricType};
use std::collections::BTreeMap;

/// The `Content-Type` of the text.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// What all names begin with.
const PREFIX: &str = "p4shield";

/// Names and values of a row's labels.
pub type Labels = Vec<(&'static str, String)>;

/// A type of metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows.
    Counter,
    /// A number that grows and falls.
    Gauge,
}

/// A metric with its rows.
#[derive(Debug)]
pub struct Family {
    name: String,
    kind: Kind,
    help: &'static str,
    rows: BTreeMap<Labels, u64>,
}

impl Family {
    /// Returns a metric without rows. `name` lacks the prefix and, for a counter, `_total`.
    #[must_use]
    pub fn new(name: &str, kind: Kind, help: &'static str) -> Self {
        let suffix = if kind == Kind::Counter { "_total" } else { "" };
        Self { name: format!("{PREFIX}_{name}{suffix}"), kind, help, rows: BTreeMap::new() }
    }

    /// Adds to the row with these labels.
    pub fn add(&mut self, labels: Labels, n: u64) {
        let value = self.rows.entry(labels).or_default();
        *value = value.saturating_add(n);
    }

    /// Sets the row with these labels.
    pub fn set(&mut self, labels: Labels, n: u64) {
        self.rows.insert(labels, n);
    }

    /// Returns the metric as the library knows it.
    fn to_proto(&self) -> MetricFamily {
        let row = |(labels, value): (&Labels, &u64)| {
            let pair = |(name, value): &(&str, String)| {
                let mut pair = LabelPair::default();
                pair.set_name((*name).to_owned());
                pair.set_value(value.clone());
                pair
            };
            let mut metric = Metric::from_label(labels.iter().map(pair).collect());
            // Prometheus has no other numbers than these.
            let value = *value as f64;
            match self.kind {
                Kind::Counter => {
                    let mut counter = proto::Counter::default();
                    counter.set_value(value);
                    metric.set_counter(counter);
                }
                Kind::Gauge => {
                    let mut gauge = proto::Gauge::default();
                    gauge.set_value(value);
                    metric.set_gauge(gauge);
                }
            }
            metric
        };
        let mut family = MetricFamily::default();
        family.set_name(self.name.clone());
        family.set_help(format!("{}.", self.help));
        family.set_field_type(match self.kind {
            Kind::Counter => MetricType::COUNTER,
            Kind::Gauge => MetricType::GAUGE,
        });
        family.set_metric(self.rows.iter().map(row).collect());
        family
    }
}

/// Returns the text of all metrics that have rows.
///
/// # Panics
/// A name is no metric's.
#[must_use]
pub fn text(families: &[Family]) -> String {
    let families: Vec<_> = families.iter().filter(|f| !f.rows.is_empty()).map(Family::to_proto).collect();
    let text = TextEncoder::new().encode_to_string(&families);
    text.expect("every metric has a name and a row")
}

/// Returns labels with one more.
#[must_use]
pub fn with(labels: &Labels, name: &'static str, value: &str) -> Labels {
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
        let text = text(&[family, Family::new("none", Kind::Gauge, "Omitted")]);
        let expected = "# HELP p4shield_packets_total Packets.\n# TYPE p4shield_packets_total counter\n\
                        p4shield_packets_total{vm=\"a\\\"\\\\\\n\"} 2\np4shield_packets_total{vm=\"b\"} 4\n";
        assert_eq!(text, expected);
    }
}
