//! The rows of the comparison: each measurement over its rounds, beside that without an adversary.

use std::collections::BTreeSet;

use serde::Serialize;

use super::Attack;
use super::results::Sample;
use crate::bar::Bar;
use crate::figures::{figure, over_rounds};
use crate::stats::Percentiles;
use crate::topology::{Level, P4};

/// The share of its rate that a victim keeps who is not harmed.
const KEPT: f64 = 0.95;

/// The adversary's success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// There was no adversary.
    Idle,
    /// It harms the victim not even at the baseline.
    NoPower,
    /// The victim keeps its rate and loses no probe.
    Kept,
    /// The victim does not.
    Harmed,
    /// The rounds differ. Or the victim loses probes, but hardly more than without an adversary, or its
    /// senders had too little of their core and what they sent arrived.
    Undecided,
}

/// The victim's traffic beside an adversary.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Programs of the VMs.
    pub p4: P4,
    /// How switches are divided among tenants.
    pub level: Level,
    /// The adversary's deed.
    #[serde(rename = "attack")]
    pub mode: Attack,
    /// Its success.
    pub verdict: Verdict,
    /// Packets a second that the victim sent.
    pub sent_pps: f64,
    /// Packets a second that arrived.
    pub received_pps: f64,
    /// `received_pps`, as far as it was sent, over that without an adversary.
    pub ratio: f64,
    /// Probes of the victim, in all rounds.
    pub probes: u64,
    /// Probes without an answer within a second.
    pub lost_probes: u64,
    /// Microseconds from a probe to its answer.
    pub micros: Percentiles,
    /// Decisions that the adversary's switch remembers at the end. Each of a sweep has a mask of its own,
    /// which the switch searches for each packet. `None` where it gives no answer.
    pub flows: Option<u64>,
    /// Acts of the adversary a second: packets, kills, passes over memory, steps of 16 MiB, processes.
    pub acts_per_second: f64,
    /// All of its acts.
    pub acts: u64,
    /// The acts' outcome, and their limits.
    pub outcome: String,
}

impl Row {
    fn of(sample: &Sample) -> Self {
        let Sample { place, flows, seen } = sample;
        Self {
            p4: place.p4,
            level: place.level,
            mode: place.attack,
            verdict: Verdict::Idle,
            sent_pps: seen.sent_pps,
            received_pps: seen.received_pps,
            ratio: f64::NAN,
            probes: seen.probes,
            lost_probes: seen.lost_probes,
            micros: seen.micros,
            flows: *flows,
            acts_per_second: seen.acts_per_second,
            acts: seen.acts,
            outcome: seen.outcome.clone(),
        }
    }

    fn lost_share(&self) -> f64 {
        self.lost_probes as f64 / self.probes as f64
    }

    /// Returns the adversary's success, beside the row without one.
    fn judged(&self, idle: Option<&Self>) -> Verdict {
        if self.mode == Attack::Idle {
            return Verdict::Idle;
        }
        let arrives = self.received_pps >= KEPT * self.sent_pps;
        let is_noise =
            self.lost_probes == 0 || idle.is_some_and(|idle| self.lost_share() <= 2.0 * idle.lost_share());
        match (self.ratio >= KEPT && self.lost_probes == 0, self.level) {
            (true, Level::Baseline | Level::BaselineDpdk | Level::BaselineP4) => Verdict::NoPower,
            (true, _) => Verdict::Kept,
            (false, _) if arrives && is_noise => Verdict::Undecided,
            (false, _) => Verdict::Harmed,
        }
    }
}

figure!(
    Row,
    Attack::Idle,
    // What was sent before the measured time may arrive in it.
    |r| r.received_pps.min(r.sent_pps),
    [level, p4],
    fn of_rounds(mut rounds: Vec<Self>) -> Self {
        rounds.sort_by(|a, b| a.received_pps.total_cmp(&b.received_pps));
        let [probes, lost_probes] =
            [|r: &Self| r.probes, |r: &Self| r.lost_probes].map(|count| rounds.iter().map(count).sum());
        let verdict = rounds[0].verdict;
        let agree = rounds.iter().all(|r| r.verdict == verdict);
        let verdict = if agree { verdict } else { Verdict::Undecided };
        Self { probes, lost_probes, verdict, ..rounds.swap_remove(rounds.len() / 2) }
    }
);

/// Returns the rows of these samples: without P4 first, then by level and attack.
pub(super) fn of(samples: &[Sample]) -> Vec<Row> {
    let rounds: BTreeSet<_> = samples.iter().map(|s| s.place.round).collect();
    // Each round is judged by itself: other work on the machine comes and goes.
    let judged = rounds.iter().flat_map(|round| {
        let of_round = samples.iter().filter(|s| s.place.round == *round);
        let mut rows = over_rounds(of_round.map(Row::of).collect());
        judge(&mut rows);
        rows
    });
    let mut rows = over_rounds(judged.collect());
    rows.sort_by_key(|r| (r.p4 as u8, r.level as u8, r.mode as u8));
    rows
}

fn judge(rows: &mut [Row]) {
    let all = rows.to_vec();
    for row in rows {
        let is_beside = |r: &&Row| r.mode == Attack::Idle && (r.level, r.p4) == (row.level, row.p4);
        row.verdict = row.judged(all.iter().find(is_beside));
    }
}

/// The levels of process compartments whose claims are measured.
const APART: [Level; 5] = [Level::Two, Level::TwoP4, Level::TwoXdp, Level::TwoOffloads, Level::TwoP4Tc];

/// Returns the claims about rows that were measured.
pub(super) fn bars(rows: &[Row]) -> Vec<Bar> {
    let attacked = || rows.iter().filter(|r| r.mode != Attack::Idle);
    let apart = || attacked().filter(|r| APART.contains(&r.level));
    let kept = apart().map(|r| r.ratio).min_by(f64::total_cmp);
    let lost = kept.map(|_| apart().map(|r| r.lost_probes).sum::<u64>());
    let is_sweep = |r: &&Row| (r.level, r.mode, r.p4) == (Level::Baseline, Attack::Tenant, P4::Without);
    let by_tenant = attacked().filter(is_sweep);
    let left = by_tenant.map(|r| r.ratio).max_by(f64::total_cmp);
    let bars = [
        kept.map(|kept| Bar {
            claim: "level 2: share of its rate that the victim keeps",
            bar: ">= 0.95",
            measured: kept,
            met: kept >= KEPT,
        }),
        lost.map(|lost| Bar {
            claim: "level 2: probes that the victim loses",
            bar: "0",
            measured: lost as f64,
            met: lost == 0,
        }),
        left.map(|left| Bar {
            claim: "baseline: share that a sweep by a tenant leaves",
            bar: "<= 0.70",
            measured: left,
            met: left <= 0.70,
        }),
    ];
    bars.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(level: Level, mode: Attack, ratio: f64, lost_probes: u64) -> Row {
        Row {
            p4: P4::Without,
            level,
            mode,
            verdict: Verdict::Idle,
            sent_pps: 2e4,
            received_pps: 2e4 * ratio,
            ratio,
            probes: 100,
            lost_probes,
            micros: Percentiles { p50: 1.0, p90: 1.0, p99: 1.0 },
            flows: Some(1),
            acts_per_second: 0.0,
            acts: 0,
            outcome: String::new(),
        }
    }

    #[test]
    fn bars_are_about_the_worst_attack() {
        let rows = [
            row(Level::Baseline, Attack::Idle, 1.0, 0),
            row(Level::Baseline, Attack::Tenant, 0.25, 80),
            row(Level::Baseline, Attack::Outside, 0.9, 9),
            row(Level::Two, Attack::Idle, 1.0, 7),
            row(Level::Two, Attack::Tenant, 0.99, 0),
            row(Level::TwoP4, Attack::Kill, 0.96, 1),
        ];
        let found: Vec<_> = bars(&rows).iter().map(|b| (b.measured, b.met)).collect();
        assert_eq!(found, [(0.96, true), (1.0, false), (0.25, true)]);
        assert_eq!(bars(&rows[..1]), []);
    }

    #[test]
    fn rounds_have_a_median_and_all_lost_probes() {
        let mut rounds = [0.5, 0.9, 0.7].map(|ratio| row(Level::Two, Attack::Tenant, ratio, 2));
        rounds.iter_mut().for_each(|row| row.verdict = Verdict::Harmed);
        let over = |rounds: &[Row]| over_rounds(rounds.to_vec()).swap_remove(0);
        let row = over(&rounds);
        assert_eq!((row.received_pps, row.probes, row.lost_probes), (14_000.0, 300, 6));
        assert_eq!(row.verdict, Verdict::Harmed);
        rounds[1].verdict = Verdict::Kept;
        assert_eq!(over(&rounds).verdict, Verdict::Undecided, "the rounds differ");
    }

    #[test]
    fn an_attack_without_harm_at_the_baseline_has_no_power() {
        let mut rows = vec![
            row(Level::Baseline, Attack::Idle, 1.0, 3),
            row(Level::Baseline, Attack::Kill, 0.2, 60),
            row(Level::Baseline, Attack::Memory, 0.99, 0),
            row(Level::Baseline, Attack::Ordinary, 0.99, 4),
            row(Level::Two, Attack::Idle, 1.0, 0),
            row(Level::Two, Attack::Kill, 1.0, 0),
            row(Level::Two, Attack::Forks, 1.0, 1),
            Row { sent_pps: 1.8e4, ..row(Level::Two, Attack::Memory, 0.9, 0) },
        ];
        judge(&mut rows);
        let found: Vec<_> = rows.iter().map(|r| r.verdict).collect();
        use Verdict::{Harmed, Idle, Kept, NoPower, Undecided};
        assert_eq!(found, [Idle, Harmed, NoPower, Undecided, Idle, Kept, Harmed, Undecided]);
    }
}
