//! The figures: as the columns of the MTS paper's figure 5, throughput, latency and resources.

use p4shield_bench::name;
use p4shield_bench::topology::Cell;
use p4shield_plot::{Bars, Series, Stacks};

use super::super::{Chart, by_size, series};
use super::{at, title};

/// Returns all figures. Those of single cells are of the shortest frames, as the paper's.
pub(in super::super) fn all(all: &[Cell]) -> Vec<Chart> {
    let shortest = all.iter().map(|c| c.bytes).min();
    let cells: Vec<&Cell> = all.iter().filter(|c| Some(c.bytes) == shortest).collect();
    let mut charts = vec![
        ("topology-throughput.svg", bars("Throughput", "packets a second", &cells, |c| c.pps.median)),
        ("topology-latency.svg", latency(&cells)),
        ("topology-cores.svg", bars("Packets by core second", "packets", &cells, |c| c.core_pps.median)),
        ("topology-memory.svg", bars("Memory", "million bytes", &cells, |c| c.memory_mb.median)),
    ];
    let lines = lines(all);
    if lines.iter().any(|line| line.points.len() > 1) {
        let axes = ["bytes of a frame", "packets a second"];
        charts.push(("topology-sizes.svg", by_size("Throughput by length, most tenants", axes, lines)));
    }
    charts
}

fn bars(
    title_of_all: &str,
    unit: &str,
    cells: &[&Cell],
    value: impl Fn(&Cell) -> f64,
) -> Result<String, p4shield_plot::Error> {
    let bars = cells.iter().map(|c| (title(c), value(c))).collect();
    Bars { title: title_of_all.into(), unit: unit.into(), bars }.svg()
}

fn latency(cells: &[&Cell]) -> Result<String, p4shield_plot::Error> {
    let parts = |c: &Cell| vec![c.p50_us.median, c.p99_us.median - c.p50_us.median];
    Stacks {
        title: "Latency: median, and from there to the 99th percentile".into(),
        unit: "µs".into(),
        parts: vec!["median".into(), "99th percentile".into()],
        bars: cells.iter().map(|c| (title(c), parts(c))).collect(),
    }
    .svg()
}

/// Returns a line for each scenario and level with the most tenants, in the order of the lengths.
fn lines(cells: &[Cell]) -> Vec<Series> {
    let most = cells.iter().map(|c| c.tenants).max();
    let cells = cells.iter().filter(|c| Some(c.tenants) == most);
    series(
        cells,
        |c| format!("{}, {}", name(c.scenario), at(c)),
        |c| Some((f64::from(c.bytes), c.pps.median)),
    )
}
