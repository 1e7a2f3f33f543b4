//! The cells of the comparison: each over its rounds, and beside the baseline's.

use serde::{Deserialize, Serialize};

use super::{Sample, Workload};
use crate::stats::{Percentiles, Spread};
use crate::topology::{Level, Order, Scenario, jain, order};

/// A workload at a level, over all rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// The programs.
    pub workload: Workload,
    /// The way of the packets.
    pub scenario: Scenario,
    /// How switches are divided among tenants.
    pub level: Level,
    /// Tenants.
    pub tenants: u16,
    /// Rounds that were measured.
    pub rounds: usize,
    /// The unit of throughput.
    pub unit: String,
    /// Throughput of all tenants.
    pub throughput: Spread,
    /// The same by tenant, median.
    pub tenant_throughput: Vec<f64>,
    /// Jain's index of the tenants' throughput: 1 if all have as much, 1/tenants if one has all. Median.
    pub jain: f64,
    /// `throughput` over that of the baseline in the same round. Empty without one.
    pub ratio: Spread,
    /// The verdict of the rounds about it.
    pub order: Order,
    /// Response times of the slowest tenant, microseconds: median, 90th and 99th percentile. Empty where the
    /// client does not measure them.
    pub p50_us: Spread,
    /// The 90th percentile.
    pub p90_us: Spread,
    /// The 99th percentile.
    pub p99_us: Spread,
    /// The 99th percentile by tenant, median. Empty like `p99_us`.
    pub tenant_p99_us: Vec<f64>,
    /// Requests without a right answer, of all tenants and rounds.
    pub failed: u64,
    /// Switches.
    pub switches: usize,
    /// Cores that the switches have, all together.
    pub cores: usize,
    /// Cores that they used.
    pub busy_cores: Spread,
    /// Throughput by core that the switches used, of the rounds in which they used some. It depends less than
    /// throughput on what else has their core.
    pub core_throughput: Spread,
    /// `core_throughput` over that of the baseline in the same round.
    pub core_ratio: Spread,
    /// Million bytes of memory of all switches.
    pub memory_mb: Spread,
}

/// Returns the cells of these samples, by workload, scenario, tenants and level.
pub(super) fn of(samples: &[Sample]) -> Vec<Cell> {
    let mut left = samples.to_vec();
    let mut cells = Vec::new();
    while let Some(first) = left.first().cloned() {
        let is_like = |s: &Sample| s.level == first.level && is_beside(s, &first);
        let (rounds, others): (Vec<_>, _) = left.into_iter().partition(is_like);
        left = others;
        cells.push(cell(&first, &rounds, samples));
    }
    cells.sort_by_key(|c: &Cell| (c.workload as u8, c.scenario as u8, c.tenants, c.level as u8));
    cells
}

/// Reports whether they differ in nothing but level and round.
fn is_beside(a: &Sample, b: &Sample) -> bool {
    (a.workload, a.scenario, a.tenants) == (b.workload, b.scenario, b.tenants)
}

fn cell(first: &Sample, rounds: &[Sample], all: &[Sample]) -> Cell {
    let spread = |figure: fn(&Sample) -> f64| Spread::of(rounds.iter().map(figure).collect());
    let ratios = |figure: fn(&Sample) -> f64| {
        Spread::of(rounds.iter().filter_map(|s| ratio(s, all, figure)).collect())
    };
    let slowest = |figure: fn(&Percentiles) -> f64| {
        Spread::of(rounds.iter().filter_map(|s| s.micros.iter().map(figure).max_by(f64::total_cmp)).collect())
    };
    let by_tenant = |figure: fn(&Sample, usize) -> Option<f64>| {
        let of_tenant = |t| rounds.iter().filter_map(|s| figure(s, t)).collect::<Vec<_>>();
        let all = (0..usize::from(first.tenants)).map(of_tenant).filter(|rounds| !rounds.is_empty());
        all.map(|rounds| Spread::of(rounds).median).collect()
    };
    let ratio = ratios(total);
    Cell {
        workload: first.workload,
        scenario: first.scenario,
        level: first.level,
        tenants: first.tenants,
        rounds: rounds.len(),
        unit: first.workload.unit().to_owned(),
        throughput: spread(total),
        tenant_throughput: by_tenant(|s, t| s.throughput.get(t).copied()),
        jain: spread(|s| jain(&s.throughput)).median,
        order: order(first.level, &ratio.rounds),
        ratio,
        p50_us: slowest(|p| p.p50),
        p90_us: slowest(|p| p.p90),
        p99_us: slowest(|p| p.p99),
        tenant_p99_us: by_tenant(|s, t| s.micros.get(t).map(|p| p.p99)),
        failed: rounds.iter().map(|s| s.failed).sum(),
        switches: first.switches,
        cores: first.cores,
        busy_cores: spread(busy_cores),
        core_throughput: Spread::of(rounds.iter().map(by_core).filter(|t| *t > 0.0).collect()),
        core_ratio: ratios(by_core),
        memory_mb: spread(|s| s.memory_mb),
    }
}

fn total(sample: &Sample) -> f64 {
    sample.throughput.iter().sum()
}

fn busy_cores(sample: &Sample) -> f64 {
    sample.core_seconds / sample.seconds
}

/// Returns throughput by core that was used; 0 if none was.
fn by_core(sample: &Sample) -> f64 {
    let cores = busy_cores(sample);
    if cores > 0.0 { total(sample) / cores } else { 0.0 }
}

/// Returns a figure of a sample over that of the baseline in its round, if neither is 0.
fn ratio(sample: &Sample, all: &[Sample], figure: fn(&Sample) -> f64) -> Option<f64> {
    let is_base = |s: &&Sample| s.level == Level::Baseline && s.round == sample.round && is_beside(s, sample);
    let ratio = figure(sample) / all.iter().find(is_base).map(figure)?;
    (ratio.is_finite() && ratio > 0.0).then_some(ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(round: u16, level: Level, throughput: [f64; 2], p99: Option<[f64; 2]>) -> Sample {
        let micros = p99.map(|all| all.map(|p99| Percentiles { p50: 1.0, p90: 2.0, p99 }).to_vec());
        Sample {
            round,
            workload: Workload::Iperf3,
            scenario: Scenario::P2v,
            level,
            tenants: 2,
            throughput: throughput.to_vec(),
            micros: micros.unwrap_or_default(),
            failed: 1,
            switches: 1,
            cores: 1,
            core_seconds: 1.0,
            seconds: 2.0,
            memory_mb: 20.0,
        }
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let samples = [
            sample(1, Level::Baseline, [50.0, 50.0], None),
            sample(1, Level::Two, [45.0, 45.0], None),
            sample(2, Level::Two, [21.0, 63.0], None),
            sample(2, Level::Baseline, [60.0, 60.0], None),
        ];
        let cells = of(&samples);
        let [base, two] = &cells[..] else { panic!("{cells:?}") };
        assert_eq!((base.order, &base.ratio.rounds[..]), (Order::None, &[1.0, 1.0][..]));
        assert_eq!((two.order, &two.ratio.rounds[..]), (Order::Undecided, &[0.7, 0.9][..]));
        assert_eq!((two.rounds, two.throughput.median, two.failed), (2, 90.0, 2));
        assert_eq!((two.busy_cores.median, two.core_throughput.median), (0.5, 180.0));
        assert_eq!(two.tenant_throughput, [45.0, 63.0]);
        assert!(two.p99_us.rounds.is_empty() && two.tenant_p99_us.is_empty());
    }

    #[test]
    fn response_times_are_those_of_the_slowest_tenant() {
        let samples = [
            sample(1, Level::Two, [1.0, 1.0], Some([3.0, 9.0])),
            sample(2, Level::Two, [1.0, 1.0], Some([8.0, 4.0])),
        ];
        let [two] = &of(&samples)[..] else { panic!("one cell") };
        assert_eq!((&two.p99_us.rounds[..], &two.tenant_p99_us[..]), (&[8.0, 9.0][..], &[8.0, 9.0][..]));
        assert_eq!((two.p50_us.median, two.p90_us.median), (1.0, 2.0));
        assert_eq!((two.order, two.ratio.rounds.len()), (Order::None, 0), "there is no baseline");
    }
}
