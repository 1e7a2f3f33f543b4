//! The arithmetic of the paper's gain: core time by packet, request or bit, and where it goes.

use p4shield_bench::topology::{self, Level};
use p4shield_bench::{name, workloads};
use serde::Serialize;

/// The core time of one kind of load, microseconds of the switches' core by unit.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Cost {
    load: String,
    tenants: u16,
    /// The unit.
    by: String,
    baseline: f64,
    #[serde(rename = "level 1")]
    one: Option<f64>,
    #[serde(rename = "level 2")]
    two: f64,
    /// Level 1 less the baseline: both have one switch, so this is the NIC switch and the compartment.
    nic_switch: Option<f64>,
    /// Level 2 less level 1.
    division: Option<f64>,
    /// Baseline over level 2.
    #[serde(rename = "ratio")]
    now: f64,
    /// The same if the NIC switch cost the core nothing.
    #[serde(rename = "ratio without the NIC switch's cost")]
    free: Option<f64>,
    /// Core time that level 2 would have to lose for a gain of 1.5.
    #[serde(rename = "to lose for 1.5")]
    to_lose: f64,
}

/// Core times of a load by level.
struct Times {
    load: String,
    tenants: u16,
    by: String,
    baseline: Option<f64>,
    one: Option<f64>,
    two: Option<f64>,
}

impl Times {
    /// Returns the costs; `None` if baseline or level 2 was not measured.
    fn cost(self) -> Option<Cost> {
        let Self { load, tenants, by, baseline, one, two } = self;
        let (baseline, two) = baseline.zip(two)?;
        let nic_switch = one.map(|one| one - baseline);
        Some(Cost {
            load,
            tenants,
            by,
            baseline,
            one,
            two,
            nic_switch,
            division: one.map(|one| two - one),
            now: baseline / two,
            free: nic_switch.map(|cost| baseline / (two - cost)).filter(|ratio| *ratio > 0.0),
            to_lose: two - baseline / 1.5,
        })
    }
}

/// Returns the costs of all loads, packets first.
pub(super) fn of(packets: &[topology::Cell], programs: &[workloads::Cell]) -> Vec<Cost> {
    let micros = |by_core: f64| (by_core > 0.0).then_some(1e6 / by_core);
    let packets = packets.iter().filter(|c| c.level == Level::Baseline).filter_map(|base| {
        let is_beside = |c: &&topology::Cell| {
            (c.scenario, c.tenants, c.bytes) == (base.scenario, base.tenants, base.bytes)
        };
        let here = || packets.iter().filter(is_beside);
        let at = |level| here().find(|c| c.level == level).and_then(|c| micros(c.core_pps.median));
        let load = format!("{}, {} B", name(base.scenario), base.bytes);
        let [baseline, one, two] = [Level::Baseline, Level::One, Level::Two].map(at);
        Times { load, tenants: base.tenants, by: "packet".to_owned(), baseline, one, two }.cost()
    });
    let programs = programs.iter().filter(|c| c.level == Level::Baseline).filter_map(|base| {
        let is_beside = |c: &&workloads::Cell| {
            (c.workload, c.scenario, c.tenants) == (base.workload, base.scenario, base.tenants)
        };
        let here = || programs.iter().filter(is_beside);
        let at = |level| here().find(|c| c.level == level).and_then(|c| micros(c.core_throughput.median));
        let load = format!("{}, {}", name(base.workload), name(base.scenario));
        let [baseline, one, two] = [Level::Baseline, Level::One, Level::Two].map(at);
        let by = base.unit.trim_end_matches("/s").trim_end_matches('s').to_owned();
        Times { load, tenants: base.tenants, by, baseline, one, two }.cost()
    });
    packets.chain(programs).collect()
}

/// The paper's own arithmetic, and how to read the table.
pub(super) const TEXT: &str = "\
The paper's switches fill one core in shared mode, so its throughput is core time. At 0.2 million \
packets/s (baseline, p2v, section 4.1) a packet takes 1 / 0.2 = 5 µs of it, at 0.4 million (level 2) 1 / \
0.4 = 2.5 µs. The switches do the same work for a packet at both: two passes. What the baseline pays \
beyond it is the hand-over between switch and VM, which the host's software does over the memory bus; at \
levels 1 to 3 the network card does it over PCIe (SR-IOV), and no core pays (the paper's own reason, \
section 4.1). Besides, the baseline's switch shares its one core with the host, and MTS has two (section \
4.3). The gain is these 2.5 µs, and no gain of the division into compartments.\n\
Here the NIC switch is software, too: the kernel runs its programs and its veth pairs, partly on the \
switches' core. That adds to the baseline's work, where the paper's network card takes from it. Level 1 \
less the baseline is what the NIC switch costs the switches' core, with the compartment (both have one \
switch); level 2 less level 1 is what the division costs. If a network card took over all of the NIC \
switch's work, the ratio would be that of the column beside. For the paper's 1.5, level 2 would have to \
lose the last column's time: what remains of it beyond the NIC switch's cost a network card could only \
take from the hand-over of packets to VMs, which is veth at every level here. Core time is that of the \
switches' processes, as `p4shield topology usage` counts it; what the kernel does for the NIC switch on \
the core of programs and generators is not in it. A cost below zero is noise: the rounds were too short, \
or the rates too low.";

#[cfg(test)]
mod tests {
    use super::*;

    fn times(one: Option<f64>, two: Option<f64>) -> Times {
        Times { load: "p2v".into(), tenants: 2, by: "packet".into(), baseline: Some(6.0), one, two }
    }

    #[test]
    fn the_nic_switch_costs_what_level_1_adds() {
        let cost = times(Some(8.0), Some(10.0)).cost().unwrap();
        assert_eq!((cost.nic_switch, cost.division), (Some(2.0), Some(2.0)));
        assert_eq!((cost.now, cost.free, cost.to_lose), (0.6, Some(0.75), 6.0));
    }

    #[test]
    fn without_level_1_the_costs_are_not_divided() {
        let cost = times(None, Some(10.0)).cost().unwrap();
        assert_eq!((cost.nic_switch, cost.division, cost.free), (None, None, None));
        assert!(times(Some(8.0), None).cost().is_none());
        // Noise may say that the NIC switch costs more than the whole level.
        assert_eq!(times(Some(30.0), Some(10.0)).cost().unwrap().free, None);
    }
}
