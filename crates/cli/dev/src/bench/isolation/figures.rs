//! The figures: what the victim keeps of its rate, and its delays.

use p4shield_bench::isolation::Row;
use p4shield_bench::name;
use p4shield_bench::topology::P4;
use p4shield_plot::Bars;

use super::super::Chart;
use super::super::topology::level;

/// Returns all figures, for each of the rows with and without P4 that there are.
pub(super) fn all(rows: &[Row]) -> Vec<Chart> {
    of(rows, P4::Without).into_iter().chain(of(rows, P4::With)).collect()
}

/// Returns the figures of the rows with P4, or of those without.
pub(super) fn of(rows: &[Row], p4: P4) -> Vec<Chart> {
    let rows: Vec<_> = rows.iter().filter(|r| r.p4 == p4).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let [rate, delay] = match p4 {
        P4::Without => ["isolation-rate.svg", "isolation-delay.svg"],
        P4::With => ["isolation-p4-rate.svg", "isolation-p4-delay.svg"],
    };
    let with = format!("{} P4", name(p4));
    let chart = |title: &str, unit: &str, value: fn(&Row) -> f64| {
        // The levels of an adversary are beside each other.
        let mut rows = rows.clone();
        rows.sort_by_key(|r| r.mode as u8);
        let bars = rows.iter().map(|r| (format!("{}, {}", name(r.mode), level(r.level)), value(r))).collect();
        Bars { title: format!("{title}, {with}"), unit: unit.into(), bars }.svg()
    };
    vec![
        (rate, chart("The victim's rate", "percent of that without an adversary", |r| 100.0 * r.ratio)),
        (delay, chart("The victim's round trip, 99th percentile", "µs", |r| r.micros.p99)),
    ]
}
