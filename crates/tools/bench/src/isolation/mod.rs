//! `p4shield-dev bench isolation`: what an adversary takes from another tenant.
//!
//! Two tenants with stock Open vSwitches on one core, at the baseline (one for both) and at levels (one each
//! from level 2 on). The victim sends packets at a steady rate from one of its VMs to the other, and probes;
//! the adversary does one of the things of [`Attack`]. Its switch has an access list that allows one address,
//! one source port, one destination port: packets that miss it in 8,192 ways are a tuple space explosion
//! (Csikor et al., CoNEXT 2019). With P4, each VM has a program, which its tenant's P4 VM runs. Senders and
//! receivers share the first core; the switches have the last one.

mod deeds;
mod processes;
mod results;
mod rows;
mod sweep;
mod traffic;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::args::seconds;
use crate::bar::Bar;
use crate::name;
use crate::topology::{Level, P4, in_turn};
use results::Sample;
pub use rows::{Row, Verdict};
use traffic::Extent;
use world::World;

/// A deed of the adversary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Attack {
    /// Nothing
    Idle,
    /// Its VM sends packets of one connection
    Ordinary,
    /// Its VM sends as many of them as its core lets it, at most 300,000 a second
    Flood,
    /// A machine outside sends packets that its switch's rules tell apart in many ways
    Outside,
    /// Its VM sends such packets
    Tenant,
    /// Its P4 program burns its budget for each packet of ordinary traffic (with P4 only)
    Burn,
    /// Its P4 VM stops (with P4 only)
    Stop,
    /// Its P4 VM stops and ordinary traffic fills its ring (with P4 only)
    Ring,
    /// Its P4 VM writes rubbish into all memory that it shares, under ordinary traffic (with P4 only)
    Scribble,
    /// Its switch is killed whenever it runs
    Kill,
    /// Its switch was taken over and takes memory
    Memory,
    /// Its switch was taken over and forks without end
    Forks,
    /// As `forks`, and each process begins a session
    Sessions,
}

impl Attack {
    const ALL: [Self; 13] = [
        Self::Idle,
        Self::Ordinary,
        Self::Flood,
        Self::Outside,
        Self::Tenant,
        Self::Burn,
        Self::Stop,
        Self::Ring,
        Self::Scribble,
        Self::Kill,
        Self::Memory,
        Self::Forks,
        Self::Sessions,
    ];

    /// Reports whether the adversary needs a P4 VM for it.
    const fn needs_p4(self) -> bool {
        matches!(self, Self::Burn | Self::Stop | Self::Ring | Self::Scribble)
    }

    /// Reports whether the adversary runs it beside its switch.
    const fn is_bomb(self) -> bool {
        matches!(self, Self::Memory | Self::Forks | Self::Sessions)
    }

    /// Reports whether its switch answers questions meanwhile.
    const fn leaves_switch(self) -> bool {
        !matches!(self, Self::Kill) && !self.is_bomb()
    }
}

/// Options of a measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// How switches are divided among tenants
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Level::Baseline, Level::Two])]
    pub levels: Vec<Level>,
    /// Deeds of the adversary; `idle` is always measured, too
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Attack::ALL)]
    pub attacks: Vec<Attack>,
    /// P4 programs of the tenants' VMs
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [P4::Without, P4::With])]
    pub p4: Vec<P4>,
    /// Rounds; the report has their median, and the lost probes of all
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// Seconds of each measurement
    #[arg(long = "seconds", value_name = "SECONDS", value_parser = seconds, default_value = "10")]
    pub time: Duration,
    /// One round of one second each
    #[arg(long, conflicts_with_all = ["rounds", "time"])]
    pub quick: bool,
    /// Packets a second of the victim
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=200_000))]
    pub rate: u32,
    /// The same with P4, whose threads have the same cores
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(100..=200_000))]
    pub p4_rate: u32,
    /// Packets a second of the adversary
    #[arg(long, default_value_t = 8_000, value_parser = clap::value_parser!(u32).range(100..=200_000))]
    pub attack_rate: u32,
    /// Write each measurement into this file; one that is in the file already is not made again
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
}

impl Options {
    const fn rounds(&self) -> u16 {
        if self.quick { 1 } else { self.rounds }
    }

    fn time(&self) -> Duration {
        if self.quick { Duration::from_secs(1) } else { self.time }
    }

    const fn rate(&self, p4: P4) -> u32 {
        match p4 {
            P4::Without => self.rate,
            P4::With => self.p4_rate,
        }
    }

    /// Returns what is measured at a level, in this order. `p4shield exec` runs no command beside a P4
    /// switch.
    fn cells(&self, level: Level) -> Vec<(P4, Attack)> {
        let is_wanted = |a: &Attack| *a == Attack::Idle || self.attacks.contains(a);
        let can_be = |a: &Attack| !(a.is_bomb() && level.has_p4_switches());
        let attacks = Attack::ALL.into_iter().filter(is_wanted).filter(can_be);
        let cells = self.p4.iter().flat_map(|p4| attacks.clone().map(|attack| (*p4, attack)));
        cells.filter(|(p4, attack)| *p4 == P4::With || !attack.needs_p4()).collect()
    }
}

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// By P4, level and attack.
    pub rows: Vec<Row>,
    /// The claims.
    pub bars: Vec<Bar>,
}

/// Steps that [`run`] reports.
#[must_use]
pub fn steps(options: &Options) -> usize {
    let cells: usize = options.levels.iter().map(|level| options.cells(*level).len()).sum();
    usize::from(options.rounds()) * cells
}

/// Measures; calls `progress` before each step.
///
/// # Errors
/// The switches cannot be made, the victim's packets do not pass without an attack, or the file of the option
/// `resume` cannot be read or written, or has other measurements.
pub fn run(options: &Options, mut progress: impl FnMut(String)) -> anyhow::Result<Report> {
    let mut results = results::open(options)?;
    for round in 1..=options.rounds() {
        for level in in_turn(&options.levels, round) {
            for (p4, attack) in options.cells(level) {
                let [at, programs, deed] = [name(level), name(p4), name(attack)];
                progress(format!("round {round}, level {at}, {programs} P4, adversary: {deed}"));
                let place = Place { round, level, p4, attack };
                if !results.samples.iter().any(|sample| sample.place == place) {
                    results.add(measure(place, options)?)?;
                }
            }
        }
    }
    let rows = rows::of(&results.samples);
    Ok(Report { bars: rows::bars(&rows), rows })
}

/// The place of a measurement in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    round: u16,
    level: Level,
    p4: P4,
    attack: Attack,
}

fn measure(place: Place, options: &Options) -> anyhow::Result<Sample> {
    let Place { level, p4, attack, .. } = place;
    // Each attack meets a switch that remembers nothing of the one before.
    let world = World::start(level, p4 == P4::With, attack)?;
    let deed = world.deed(attack, options.attack_rate)?;
    let extent = Extent { rate: options.rate(p4), time: options.time() };
    let mut seen = traffic::measure(&world.victim()?, deed, extent)?;
    if attack.needs_p4() {
        seen.outcome = [seen.outcome, world.p4_outcome()?].join("; ");
    }
    // A P4 switch remembers no decisions.
    let remembers = attack.leaves_switch() && !level.has_p4_switches();
    let flows = remembers.then(|| world.flows()).transpose()?;
    Ok(Sample { place, flows, seen })
}
