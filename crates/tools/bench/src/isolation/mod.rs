//! `p4shield-dev bench isolation`: what an attack on its own switch lets a tenant take from another one.
//!
//! Two tenants with stock Open vSwitches on one core, at the baseline (one for both) and at level 2 (one
//! each). The victim sends packets at a steady rate from one of its VMs to the other, and probes. The
//! attacker's switch has an access list that allows one address, one source port, one destination port;
//! the attacker's VM, or a machine outside, sends packets that miss it in 8,192 ways (tuple space explosion,
//! Csikor et al., CoNEXT 2019). Senders and receivers share the first core; the switches have the last one.

mod sweep;
mod traffic;
mod world;

use std::time::Duration;

use serde::Serialize;
use world::World;

use crate::args::seconds;
use crate::bar::Bar;
use crate::figures::{figure, over_rounds};
use crate::name;
use crate::stats::Percentiles;

/// An attack on the switch of the other tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Attack {
    /// None.
    None,
    /// From a VM of that tenant.
    Tenant,
    /// From a machine outside, to a VM of that tenant.
    Outside,
}

impl Attack {
    const ALL: [Self; 3] = [Self::None, Self::Tenant, Self::Outside];
}

const BASELINE: &str = "baseline";
const LEVEL_2: &str = "2";

/// Options of a measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Rounds; the report has their median, and the lost probes of all
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// Seconds of each measurement
    #[arg(long = "seconds", value_name = "SECONDS", value_parser = seconds, default_value = "10")]
    pub time: Duration,
    /// Packets a second of the victim
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=200_000))]
    pub rate: u32,
    /// Packets a second of the attacker
    #[arg(long, default_value_t = 8_000, value_parser = clap::value_parser!(u32).range(100..=200_000))]
    pub attack_rate: u32,
}

/// The victim's traffic during an attack.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// How switches are divided among tenants.
    pub level: &'static str,
    /// The attack.
    #[serde(rename = "attack")]
    pub mode: Attack,
    /// Packets a second of the attacker.
    pub attack_pps: f64,
    /// Masks that the attacker's switch searched for a packet, on average.
    pub masks: f64,
    /// Packets a second that the victim sent.
    pub sent_pps: f64,
    /// Packets a second that arrived.
    pub received_pps: f64,
    /// `received_pps` over that without an attack.
    pub ratio: f64,
    /// Probes of the victim, in all rounds.
    pub probes: u64,
    /// Probes without an answer within a second.
    pub lost_probes: u64,
    /// Microseconds from a probe to its answer.
    pub micros: Percentiles,
}

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// By level and attack.
    pub rows: Vec<Row>,
    /// The claims.
    pub bars: Vec<Bar>,
}

/// Steps that [`run`] reports.
#[must_use]
pub fn steps(options: &Options) -> usize {
    usize::from(options.rounds) * 2 * Attack::ALL.len()
}

/// Measures; calls `progress` before each step.
///
/// # Errors
/// The switches cannot be made, or the victim's packets do not pass without an attack.
pub fn run(options: &Options, mut progress: impl FnMut(String)) -> anyhow::Result<Report> {
    let mut rows = Vec::new();
    for round in 1..=options.rounds {
        for level in [BASELINE, LEVEL_2] {
            for attack in Attack::ALL {
                progress(format!("round {round}, level {level}, attack: {}", name(attack)));
                // Each attack meets a switch that remembers nothing of the one before.
                rows.push(measure(&World::start(level)?, level, attack, options)?);
            }
        }
    }
    let rows = over_rounds(rows);
    Ok(Report { bars: bars(&rows), rows })
}

fn measure(world: &World, level: &'static str, attack: Attack, options: &Options) -> anyhow::Result<Row> {
    let stream = world.attack(attack)?;
    let seen = traffic::measure(&world.victim()?, stream.as_ref(), options, || world.clear_lookups())?;
    Ok(Row {
        level,
        mode: attack,
        attack_pps: seen.attack_pps,
        masks: world.lookups()?,
        sent_pps: seen.sent_pps,
        received_pps: seen.received_pps,
        ratio: f64::NAN,
        probes: seen.probes,
        lost_probes: seen.lost_probes,
        micros: seen.micros,
    })
}

fn bars(rows: &[Row]) -> Vec<Bar> {
    let at = |level: &'static str| rows.iter().filter(move |r| r.level == level && r.mode != Attack::None);
    let kept = at(LEVEL_2).map(|r| r.ratio).fold(f64::INFINITY, f64::min);
    let lost = at(LEVEL_2).map(|r| r.lost_probes).sum::<u64>();
    let left = at(BASELINE).filter(|r| r.mode == Attack::Tenant).map(|r| r.ratio).fold(0.0, f64::max);
    vec![
        Bar {
            claim: "level 2: share of its rate that the victim keeps",
            bar: ">= 0.95",
            measured: kept,
            met: kept >= 0.95,
        },
        Bar {
            claim: "level 2: probes that the victim loses",
            bar: "0",
            measured: lost as f64,
            met: lost == 0,
        },
        Bar {
            claim: "baseline: share that an attack by a tenant leaves",
            bar: "<= 0.70",
            measured: left,
            met: left <= 0.70,
        },
    ]
}

figure!(
    Row,
    Attack::None,
    |r| r.received_pps,
    [level],
    fn of_rounds(mut rounds: Vec<Self>) -> Self {
        rounds.sort_by(|a, b| a.received_pps.total_cmp(&b.received_pps));
        let [probes, lost_probes] =
            [|r: &Self| r.probes, |r: &Self| r.lost_probes].map(|count| rounds.iter().map(count).sum());
        Self { probes, lost_probes, ..rounds.swap_remove(rounds.len() / 2) }
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    fn row(level: &'static str, mode: Attack, ratio: f64, lost_probes: u64) -> Row {
        let micros = Percentiles { p50: 1.0, p90: 1.0, p99: 1.0 };
        let [attack_pps, masks, sent_pps, received_pps] = [0.0, 1.0, 2e4, 2e4 * ratio];
        let probes = 100;
        Row { level, mode, attack_pps, masks, sent_pps, received_pps, ratio, probes, lost_probes, micros }
    }

    #[test]
    fn bars_are_about_the_worst_attack() {
        let rows = [
            row(BASELINE, Attack::None, 1.0, 0),
            row(BASELINE, Attack::Tenant, 0.25, 80),
            row(BASELINE, Attack::Outside, 0.9, 9),
            row(LEVEL_2, Attack::None, 1.0, 7),
            row(LEVEL_2, Attack::Tenant, 0.99, 0),
            row(LEVEL_2, Attack::Outside, 0.96, 1),
        ];
        let found: Vec<_> = bars(&rows).iter().map(|b| (b.measured, b.met)).collect();
        assert_eq!(found, [(0.96, true), (1.0, false), (0.25, true)]);
    }

    #[test]
    fn rounds_have_a_median_and_all_lost_probes() {
        let rounds = [0.5, 0.9, 0.7].map(|ratio| row(LEVEL_2, Attack::Tenant, ratio, 2));
        let [row] = &over_rounds(rounds.to_vec())[..] else { panic!("one figure") };
        assert_eq!((row.received_pps, row.probes, row.lost_probes), (14_000.0, 300, 6));
    }
}
