//! The cells of the comparison: each over its rounds, and beside the baseline's.

use serde::{Deserialize, Serialize};

use super::{Level, P4, Sample, Scenario};
use crate::bar::Bar;
use crate::stats::{Spread, interval};

/// Throughput beside that of the baseline, over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// It is the baseline, or there is none.
    None,
    /// More.
    More,
    /// Less.
    Less,
    /// The rounds differ too much to tell, or there was one round only.
    Undecided,
}

/// A scenario at a level, over all rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// The way of the packets.
    pub scenario: Scenario,
    /// How switches are divided among tenants.
    pub level: Level,
    /// Programs of the tenants' VMs.
    pub p4: P4,
    /// Tenants.
    pub tenants: u16,
    /// Length of a frame on the wire.
    pub bytes: u16,
    /// Rounds that were measured.
    pub rounds: usize,
    /// Packets a second that were sent when the most came back, median.
    pub offered_pps: f64,
    /// The most packets a second that came back at one of the rates, of all tenants.
    pub pps: Spread,
    /// The same by tenant, median.
    pub tenant_pps: Vec<f64>,
    /// Jain's index of the tenants' packets: 1 if all have as many, 1/tenants if one has all. Median.
    pub jain: f64,
    /// Packets a second that came back at the highest rate, of all tenants.
    pub overload_pps: Spread,
    /// Jain's index at the highest rate, median.
    pub overload_jain: f64,
    /// `pps` over that of the baseline with the same switches and programs in the same round. Empty without
    /// one.
    pub ratio: Spread,
    /// `pps` over that without programs at the same level in the same round. Empty without them.
    pub plain_ratio: Spread,
    /// The verdict of the rounds about it.
    pub order: Order,
    /// Median of the time from generator to sink at the lower rate, microseconds.
    pub p50_us: Spread,
    /// Its 99th percentile, microseconds.
    pub p99_us: Spread,
    /// Packets that were lost at the lower rate, percent, median.
    pub lost_percent: f64,
    /// Switches.
    pub switches: usize,
    /// Cores that the switches have, all together.
    pub cores: usize,
    /// Cores that they used at the highest rate.
    pub busy_cores: Spread,
    /// Packets a core second of the switches at the highest rate, of the rounds in which they used some. It
    /// depends less than throughput on what else has their core.
    pub core_pps: Spread,
    /// `core_pps` over that of the baseline in the same round.
    pub core_ratio: Spread,
    /// Million bytes of memory of all switches.
    pub memory_mb: Spread,
}

/// Returns the cells of these samples, in order of first appearance.
pub(super) fn of(samples: Vec<Sample>) -> Vec<Cell> {
    let mut left = samples.clone();
    let mut cells = Vec::new();
    while let Some(first) = left.first().cloned() {
        let (rounds, others): (Vec<_>, _) = left.into_iter().partition(|s| is_like(s, &first));
        left = others;
        cells.push(cell(&first, &rounds, &samples));
    }
    cells.sort_by_key(|c: &Cell| (c.scenario as u8, c.tenants, c.bytes, c.p4 as u8, c.level as u8));
    cells
}

fn is_like(a: &Sample, b: &Sample) -> bool {
    (a.level, a.p4) == (b.level, b.p4) && is_beside(a, b)
}

/// Reports whether they differ in nothing but level, programs and round.
fn is_beside(a: &Sample, b: &Sample) -> bool {
    (a.scenario, a.tenants, a.bytes) == (b.scenario, b.tenants, b.bytes)
}

fn cell(first: &Sample, rounds: &[Sample], all: &[Sample]) -> Cell {
    let spread = |figure: fn(&Sample) -> f64| Spread::of(rounds.iter().map(figure).collect());
    let of_tenant =
        |t| Spread::of(rounds.iter().filter_map(|s| s.tenant_pps.get(t).copied()).collect()).median;
    let ratios = |base: fn(&Sample) -> (Level, P4), figure: fn(&Sample) -> f64| {
        Spread::of(rounds.iter().filter_map(|s| ratio(s, base(s), all, figure)).collect())
    };
    let baseline = |s: &Sample| (s.level.base(), s.p4);
    let ratio = ratios(baseline, total);
    let plain_ratio = match first.p4 {
        P4::Without => Spread::of(Vec::new()),
        P4::With => ratios(|s| (s.level, P4::Without), total),
    };
    Cell {
        scenario: first.scenario,
        level: first.level,
        p4: first.p4,
        tenants: first.tenants,
        bytes: first.bytes,
        rounds: rounds.len(),
        offered_pps: spread(|s| s.offered_pps).median,
        pps: spread(total),
        tenant_pps: (0..first.tenant_pps.len()).map(of_tenant).collect(),
        jain: spread(|s| jain(&s.tenant_pps)).median,
        overload_pps: spread(|s| s.overload_pps.iter().sum()),
        overload_jain: spread(|s| jain(&s.overload_pps)).median,
        order: order(first.level, &ratio.rounds),
        ratio,
        plain_ratio,
        p50_us: spread(|s| s.micros.p50),
        p99_us: spread(|s| s.micros.p99),
        lost_percent: spread(|s| s.lost_percent).median,
        switches: first.switches,
        cores: first.cores,
        busy_cores: spread(|s| s.busy_cores),
        core_pps: Spread::of(rounds.iter().map(by_core).filter(|pps| *pps > 0.0).collect()),
        core_ratio: ratios(baseline, by_core),
        memory_mb: spread(|s| s.memory_mb),
    }
}

fn total(sample: &Sample) -> f64 {
    sample.tenant_pps.iter().sum()
}

/// Returns the packets that came back at the highest rate by core second; 0 if no core was used.
fn by_core(sample: &Sample) -> f64 {
    let total: f64 = sample.overload_pps.iter().sum();
    if sample.busy_cores > 0.0 { total / sample.busy_cores } else { 0.0 }
}

/// Returns a figure of a sample over that of another level or without programs in its round, if neither is 0.
fn ratio(sample: &Sample, base: (Level, P4), all: &[Sample], figure: fn(&Sample) -> f64) -> Option<f64> {
    let is_base = |s: &&Sample| (s.level, s.p4) == base && s.round == sample.round && is_beside(s, sample);
    let ratio = figure(sample) / all.iter().find(is_base).map(figure)?;
    (ratio.is_finite() && ratio > 0.0).then_some(ratio)
}

/// Returns the verdict of the rounds' ratios about a level: whether their geometric mean is above or below 1
/// with 95 % confidence. Three rounds on one side are no reason, since a level that costs nothing has them in
/// one run of four.
pub(crate) fn order(level: Level, ratios: &[f64]) -> Order {
    if level == level.base() || ratios.is_empty() {
        return Order::None;
    }
    let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    match interval(&logarithms) {
        Some([least, _]) if least > 0.0 => Order::More,
        Some([_, most]) if most < 0.0 => Order::Less,
        _ => Order::Undecided,
    }
}

/// Returns Jain's index of fairness (Jain, Chiu and Hawe, DEC-TR-301, 1984); 0 if no share is above 0.
pub(crate) fn jain(shares: &[f64]) -> f64 {
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    let sum: f64 = shares.iter().sum();
    if squares > 0.0 { sum * sum / (shares.len() as f64 * squares) } else { 0.0 }
}

/// Returns the claims about cells that were measured.
pub(super) fn bars(cells: &[Cell]) -> Vec<Bar> {
    let bar = |level: Level, claim, bar, least: f64| {
        let is_here = |c: &&Cell| {
            (c.level, c.p4) == (level, P4::Without)
                && c.scenario == Scenario::P2v
                && !c.ratio.rounds.is_empty()
        };
        let worst = cells.iter().filter(is_here).map(|c| c.ratio.median).min_by(f64::total_cmp);
        worst.map(|measured| Bar { claim, bar, measured, met: measured >= least })
    };
    let sockets = "level 2, p2v, a shared core, AF_PACKET: throughput of the baseline's";
    let afxdp = "level 2, p2v, a shared core, AF_XDP: throughput of the baseline's";
    [bar(Level::Two, sockets, ">= 0.8", 0.8), bar(Level::TwoP4, afxdp, ">= 0.9", 0.9)]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Percentiles;

    fn sample(round: u16, level: Level, tenant_pps: [f64; 2]) -> Sample {
        Sample {
            round,
            scenario: Scenario::P2v,
            level,
            p4: P4::Without,
            tenants: 2,
            bytes: 64,
            offered_pps: 1e5,
            tenant_pps: tenant_pps.to_vec(),
            overload_pps: vec![1.0, 0.0],
            micros: Percentiles { p50: 1.0, p90: 1.0, p99: f64::from(round) },
            lost_percent: 0.0,
            switches: 1,
            cores: 1,
            busy_cores: 1.0,
            memory_mb: 20.0,
        }
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let samples = vec![
            sample(1, Level::Baseline, [50.0, 50.0]),
            sample(1, Level::Two, [45.0, 45.0]),
            sample(2, Level::Two, [21.0, 63.0]),
            sample(2, Level::Baseline, [60.0, 60.0]),
        ];
        let cells = of(samples);
        let [base, two] = &cells[..] else { panic!("{cells:?}") };
        assert_eq!((base.order, &base.ratio.rounds[..]), (Order::None, &[1.0, 1.0][..]));
        assert_eq!((two.order, &two.ratio.rounds[..]), (Order::Undecided, &[0.7, 0.9][..]));
        assert_eq!((two.rounds, two.pps.median, two.p99_us.median), (2, 90.0, 2.0));
        assert_eq!((two.core_pps.median, two.core_ratio.median), (1.0, 1.0));
        assert_eq!((two.overload_pps.median, two.overload_jain), (1.0, 0.5));
        assert_eq!(bars(&cells).len(), 1);
        assert!(bars(&cells)[0].met && bars(&cells[..1]).is_empty());
    }

    #[test]
    fn p4_switches_are_compared_with_one_on_the_host() {
        let samples = vec![
            sample(1, Level::Baseline, [90.0, 90.0]),
            sample(1, Level::BaselineP4, [50.0, 50.0]),
            sample(1, Level::TwoP4, [40.0, 40.0]),
        ];
        let cells = of(samples);
        let ratios: Vec<_> = cells.iter().map(|c| (c.level, c.ratio.median)).collect();
        assert_eq!(ratios, [(Level::Baseline, 1.0), (Level::BaselineP4, 1.0), (Level::TwoP4, 0.8)]);
        assert_eq!((cells[1].order, cells[2].order), (Order::None, Order::Undecided));
        assert!(matches!(&bars(&cells)[..], [bar] if !bar.met));
    }

    #[test]
    fn programs_are_compared_with_the_same_level_without() {
        let with = |s: Sample| Sample { p4: P4::With, ..s };
        let samples = vec![
            sample(1, Level::Baseline, [80.0, 80.0]),
            with(sample(1, Level::Baseline, [40.0, 40.0])),
            with(sample(1, Level::Two, [20.0, 20.0])),
            sample(1, Level::Two, [40.0, 40.0]),
        ];
        let cells = of(samples);
        let found: Vec<_> = cells.iter().map(|c| (c.level, c.p4, c.ratio.median)).collect();
        let [base, two] = [Level::Baseline, Level::Two];
        let [without, with] = [P4::Without, P4::With];
        assert_eq!(found, [(base, without, 1.0), (two, without, 0.5), (base, with, 1.0), (two, with, 0.5)]);
        let plain: Vec<_> = cells.iter().map(|c| c.plain_ratio.rounds.clone()).collect();
        assert_eq!(plain, [vec![], vec![], vec![0.5], vec![0.5]]);
        assert_eq!(bars(&cells).len(), 1, "the bars are about switches without programs");
    }

    #[test]
    fn an_order_is_decided_if_rounds_differ_by_less() {
        assert_eq!(order(Level::Two, &[0.9, 1.1]), Order::Undecided);
        assert_eq!(order(Level::Two, &[1.1]), Order::Undecided);
        assert_eq!(order(Level::Two, &[1.01, 1.3, 1.1]), Order::Undecided);
        assert_eq!(order(Level::Two, &[1.19, 1.3, 1.2]), Order::More);
        assert_eq!(order(Level::Two, &[0.8, 0.7, 0.74]), Order::Less);
        assert_eq!(order(Level::Baseline, &[1.0, 1.0]), Order::None);
        assert_eq!(order(Level::Two, &[]), Order::None);
    }

    #[test]
    fn jains_index_is_one_if_all_have_as_much() {
        assert_eq!(jain(&[5.0, 5.0]), 1.0);
        assert_eq!(jain(&[7.0, 0.0]), 0.5);
        assert_eq!((jain(&[0.0, 0.0]), jain(&[])), (0.0, 0.0));
    }
}
