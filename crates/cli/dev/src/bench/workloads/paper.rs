//! The MTS paper's values beside ours. Values are those that its text states; a chart is not read.

use p4shield_bench::name;
use p4shield_bench::topology::{self, Level, Order, Scenario};
use p4shield_bench::workloads::{self, Workload};
use serde::Serialize;

use super::super::topology::{level, median};

/// The two levels that a value compares.
type Levels = [Level; 2];

const SHARED: Levels = [Level::Two, Level::Baseline];
const DPDK: Levels = [Level::Three, Level::BaselineDpdk];

/// The subject of a value: a level's figure over that of a baseline.
enum Of {
    /// Packets a second.
    Packets(Scenario),
    /// The median latency of a packet.
    Latency(Scenario),
    /// Throughput of programs.
    Throughput(Workload),
    /// The median response time of programs.
    Response(Workload),
}

/// A value that the paper's text states.
struct Stated {
    figure: &'static str,
    section: &'static str,
    says: &'static str,
    of: Of,
    levels: Levels,
}

const STATED: [Stated; 9] = [
    Stated {
        figure: "5(a)",
        section: "4.1",
        says: "2: nearly 0.4 Mpps over nearly 0.2 Mpps, 4 compartments",
        of: Of::Packets(Scenario::P2v),
        levels: SHARED,
    },
    Stated {
        figure: "5(a)",
        section: "4.1",
        says: "2: nearly 0.2 Mpps over nearly 0.1 Mpps, 4 compartments",
        of: Of::Packets(Scenario::V2v),
        levels: SHARED,
    },
    Stated {
        figure: "5(g)",
        section: "4.1",
        says: "about 0.5: around 2.3 Mpps; nearly twice that at the baseline with 2 and 4 cores",
        of: Of::Packets(Scenario::P2v),
        levels: DPDK,
    },
    Stated {
        figure: "5(b)",
        section: "4.2",
        says: "comparable, with a lot of variance",
        of: Of::Latency(Scenario::P2v),
        levels: SHARED,
    },
    Stated {
        figure: "6(a)",
        section: "5.1",
        says: "more than 2",
        of: Of::Throughput(Workload::Iperf3),
        levels: SHARED,
    },
    Stated {
        figure: "6(b)",
        section: "5.1",
        says: "nearly 2",
        of: Of::Throughput(Workload::Web),
        levels: SHARED,
    },
    Stated {
        figure: "6(c)",
        section: "5.1",
        says: "nearly 2",
        of: Of::Throughput(Workload::Memcached),
        levels: SHARED,
    },
    Stated {
        figure: "6(d)",
        section: "5.1",
        says: "approximately half: twice as fast",
        of: Of::Response(Workload::Web),
        levels: SHARED,
    },
    Stated {
        figure: "6(e)",
        section: "5.1",
        says: "approximately half: twice as fast",
        of: Of::Response(Workload::Memcached),
        levels: SHARED,
    },
];

/// A value of the paper beside ours. Ratios are a level's over the baseline's.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Beside {
    figure: &'static str,
    section: &'static str,
    what: String,
    paper: &'static str,
    /// The ratio of the medians.
    ours: Option<f64>,
    /// The medians at the level and at the baseline.
    figures: String,
    tenants: Option<u16>,
    /// The verdict of the rounds about throughput beside the baseline without DPDK.
    order: Option<Order>,
}

/// Returns all values, ours with the most tenants that were measured at both levels, and the shortest frames.
pub(super) fn beside(packets: &[topology::Cell], programs: &[workloads::Cell]) -> Vec<Beside> {
    STATED.iter().map(|stated| row(stated, packets, programs)).collect()
}

fn row(stated: &Stated, packets: &[topology::Cell], programs: &[workloads::Cell]) -> Beside {
    let Stated { figure, section, says, of, levels } = stated;
    let all = match of {
        Of::Packets(scenario) => of_packets(packets, *scenario, |c| c.pps.median),
        Of::Latency(scenario) => of_packets(packets, *scenario, |c| c.p50_us.median),
        Of::Throughput(workload) => of_programs(programs, *workload, |c| Some(c.throughput.median)),
        Of::Response(workload) => of_programs(programs, *workload, |c| median(&c.p50_us)),
    };
    let about = match of {
        Of::Packets(scenario) => format!("{}, packets/s", name(scenario)),
        Of::Latency(scenario) => format!("{}, latency in µs", name(scenario)),
        Of::Throughput(workload) => format!("{}, p2v, {}", name(workload), workload.unit()),
        Of::Response(workload) => format!("{}, p2v, response time in µs", name(workload)),
    };
    let pair = pair(&all, *levels);
    let text = |[above, below]: [&Found; 2]| format!("{:.0} / {:.0}", above.value, below.value);
    let is_throughput = matches!(of, Of::Packets(_) | Of::Throughput(_)) && *levels == SHARED;
    Beside {
        figure,
        section,
        what: format!("{about}: {} over {}", level(levels[0]), level(levels[1])),
        paper: says,
        ours: pair.map(|[above, below]| above.value / below.value),
        figures: pair.map_or_else(|| "not measured".to_owned(), text),
        tenants: pair.map(|[above, _]| above.tenants),
        order: pair.filter(|_| is_throughput).map(|[above, _]| above.order),
    }
}

/// A figure of a cell.
struct Found {
    level: Level,
    tenants: u16,
    value: f64,
    order: Order,
}

fn of_packets(
    cells: &[topology::Cell],
    scenario: Scenario,
    figure: fn(&topology::Cell) -> f64,
) -> Vec<Found> {
    let shortest = cells.iter().map(|c| c.bytes).min();
    let here = cells.iter().filter(|c| c.scenario == scenario && Some(c.bytes) == shortest);
    here.map(|c| Found { level: c.level, tenants: c.tenants, value: figure(c), order: c.order }).collect()
}

fn of_programs(
    cells: &[workloads::Cell],
    workload: Workload,
    figure: fn(&workloads::Cell) -> Option<f64>,
) -> Vec<Found> {
    let here = cells.iter().filter(|c| c.workload == workload && c.scenario == Scenario::P2v);
    let found = |c: &workloads::Cell| {
        Some(Found { level: c.level, tenants: c.tenants, value: figure(c)?, order: c.order })
    };
    here.filter_map(found).collect()
}

/// Returns the figures at both levels with the most tenants that both have.
fn pair(all: &[Found], levels: Levels) -> Option<[&Found; 2]> {
    let at = |level: Level| all.iter().filter(move |found| found.level == level);
    let pairs = at(levels[0]).filter_map(|above| {
        let is_beside = |below: &&Found| below.tenants == above.tenants && below.value > 0.0;
        Some([above, at(levels[1]).find(is_beside)?])
    });
    pairs.max_by_key(|[above, _]| above.tenants)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_the_most_tenants_that_both_have() {
        let found = |level, tenants, value| Found { level, tenants, value, order: Order::None };
        let mut all = vec![
            found(Level::Two, 1, 5.0),
            found(Level::Two, 2, 6.0),
            found(Level::Two, 4, 7.0),
            found(Level::Baseline, 1, 10.0),
            found(Level::Baseline, 2, 3.0),
        ];
        let [above, below] = pair(&all, SHARED).unwrap();
        assert_eq!((above.value, below.value, above.tenants), (6.0, 3.0, 2));
        assert!(pair(&all, DPDK).is_none());
        all.iter_mut().for_each(|found| found.value = 0.0);
        assert!(pair(&all, SHARED).is_none(), "there is no ratio to nothing");
    }

    #[test]
    fn a_row_says_what_was_not_measured() {
        let rows = beside(&[], &[]);
        assert_eq!(rows.len(), STATED.len());
        assert!(rows.iter().all(|row| row.ours.is_none() && row.figures == "not measured"), "{rows:?}");
    }
}
