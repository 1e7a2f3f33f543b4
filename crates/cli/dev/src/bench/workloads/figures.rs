//! The figures: as the columns of the MTS paper's figure 6, throughput and response times by workload.

use p4shield_bench::workloads::{Cell, Workload};
use p4shield_plot::{Bars, Stacks};

use super::super::Chart;
use super::title;

/// Returns the figures of the workloads that were measured.
pub(super) fn all(cells: &[Cell]) -> Vec<Chart> {
    let of = |workload: Workload| cells.iter().filter(|c| c.workload == workload).collect::<Vec<_>>();
    let [streams, pages, items] = [Workload::Iperf3, Workload::Web, Workload::Memcached].map(of);
    let charts = [
        ("workloads-iperf3.svg", (!streams.is_empty()).then(|| throughput("iperf3", &streams))),
        ("workloads-web.svg", (!pages.is_empty()).then(|| throughput("nginx", &pages))),
        ("workloads-memcached.svg", (!items.is_empty()).then(|| throughput("memcached", &items))),
        ("workloads-web-times.svg", (!pages.is_empty()).then(|| times("nginx", &pages))),
        ("workloads-memcached-times.svg", (!items.is_empty()).then(|| times("memcached", &items))),
    ];
    charts.into_iter().filter_map(|(file, svg)| Some((file, svg?))).collect()
}

fn throughput(of: &str, cells: &[&Cell]) -> Result<String, p4shield_plot::Error> {
    let unit = cells.first().map_or(String::new(), |c| c.unit.clone());
    let bars = cells.iter().map(|c| (title(c), c.throughput.median)).collect();
    Bars { title: format!("Throughput of {of}"), unit, bars }.svg()
}

fn times(of: &str, cells: &[&Cell]) -> Result<String, p4shield_plot::Error> {
    let parts = |c: &Cell| {
        let [p50, p90, p99] = [&c.p50_us, &c.p90_us, &c.p99_us].map(|spread| spread.median / 1e3);
        vec![p50, p90 - p50, p99 - p90]
    };
    Stacks {
        title: format!("Response time of {of}, slowest tenant: percentiles"),
        unit: "ms".into(),
        parts: vec!["median".into(), "90th percentile".into(), "99th percentile".into()],
        bars: cells.iter().map(|c| (title(c), parts(c))).collect(),
    }
    .svg()
}
