//! `p4shield-dev bench topology`: throughput, latency and resources of tenants' switches by level, in the
//! traffic scenarios of the MTS paper (Thimmaraju et al., ATC 2019, section 4 and figure 5).
//!
//! One thread on the first core is the load generator, the tenants' VMs and the sink; the switches share
//! the last core, unless each is to have its own. In each round the levels are measured one after the other,
//! every second round in reverse order, each with new switches.

mod cells;
mod packet;
mod results;
mod traffic;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::args::milliseconds;
use crate::bar::Bar;
use crate::name;
use crate::resume::Samples;
use crate::stats::Percentiles;
pub use cells::{Cell, Order};
pub(crate) use cells::{jain, order};
use traffic::{Machine, Seen, Ways};
pub(crate) use world::{Used, World};

/// The way of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Scenario {
    /// Outside, switch, outside
    P2p,
    /// Outside, switch, VM, switch, outside
    P2v,
    /// Outside, switch, VM, switch, another VM of the tenant, switch, outside
    V2v,
}

/// How switches are divided among tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// One switch on the host
    Baseline,
    /// One switch in a compartment
    #[serde(rename = "1")]
    #[value(name = "1")]
    One,
    /// A switch in a compartment for each tenant
    #[serde(rename = "2")]
    #[value(name = "2")]
    Two,
    /// One switch on the host, with DPDK
    #[serde(rename = "baseline-dpdk")]
    BaselineDpdk,
    /// A switch with DPDK in a compartment for each tenant
    #[serde(rename = "3")]
    #[value(name = "3")]
    Three,
    /// One P4 switch on the host, with AF_XDP
    #[serde(rename = "baseline-p4")]
    BaselineP4,
    /// A P4 switch with AF_XDP in a compartment for each tenant
    #[serde(rename = "2-p4")]
    #[value(name = "2-p4")]
    TwoP4,
    /// As 1, with the NIC switch in XDP
    #[serde(rename = "1-xdp")]
    #[value(name = "1-xdp")]
    OneXdp,
    /// As 2, with the NIC switch in XDP
    #[serde(rename = "2-xdp")]
    #[value(name = "2-xdp")]
    TwoXdp,
    /// As 1, and VMs' devices leave checksums and segmentation to the host, as they do by default
    #[serde(rename = "1-offloads")]
    #[value(name = "1-offloads")]
    OneOffloads,
    /// As 2, and VMs' devices leave checksums and segmentation to the host, as they do by default
    #[serde(rename = "2-offloads")]
    #[value(name = "2-offloads")]
    TwoOffloads,
    /// As 2-p4, with the NIC switch in traffic control
    #[serde(rename = "2-p4-tc")]
    #[value(name = "2-p4-tc")]
    TwoP4Tc,
}

/// The key of P4 switches.
const P4: &str = "switch = \"p4\"\n";
/// The key of the NIC switch's other hook.
const XDP: &str = "nic_switch = \"xdp\"\n";

impl Level {
    /// Returns its name in the configuration, and the other keys of `[topology]` that it means.
    pub(crate) const fn keys(self) -> (&'static str, &'static str) {
        match self {
            Self::Baseline => ("baseline", ""),
            Self::One | Self::OneOffloads => ("1", ""),
            Self::Two | Self::TwoOffloads => ("2", ""),
            Self::BaselineDpdk => ("baseline", "datapath = \"dpdk\"\n"),
            Self::Three => ("3", ""),
            Self::BaselineP4 => ("baseline", P4),
            Self::TwoP4 => ("2", P4),
            Self::OneXdp => ("1", XDP),
            Self::TwoXdp => ("2", XDP),
            Self::TwoP4Tc => ("2", "switch = \"p4\"\nnic_switch = \"tc\"\n"),
        }
    }

    /// Reports whether VMs' devices keep their offloads, which switches on the host and in XDP do not take.
    pub(crate) const fn has_offloads(self) -> bool {
        matches!(self, Self::OneOffloads | Self::TwoOffloads)
    }

    /// Reports whether its switches are P4 switches.
    pub(crate) const fn has_p4_switches(self) -> bool {
        matches!(self, Self::BaselineP4 | Self::TwoP4 | Self::TwoP4Tc)
    }

    /// Returns the level that this one is compared with.
    pub(crate) const fn base(self) -> Self {
        if self.has_p4_switches() { Self::BaselineP4 } else { Self::Baseline }
    }
}

/// Programs of the tenants' VMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum P4 {
    /// No VM has one
    Without,
    /// Each VM has one in both directions
    With,
}

/// Which cores the switches have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Cores {
    /// All switches share the last core
    Shared,
    /// Each switch has one of its own, from the last one downwards
    Isolated,
}

/// Options of a measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Ways of the packets
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Scenario::P2v])]
    pub scenarios: Vec<Scenario>,
    /// How switches are divided among tenants
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Level::Baseline, Level::Two])]
    pub levels: Vec<Level>,
    /// P4 programs of the tenants' VMs, which let all packets through. P2p passes no VM, so it is measured
    /// without them only
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [P4::Without, P4::With])]
    pub p4: Vec<P4>,
    /// Cores of the switches; one that is the first core's shares it with the generator
    #[arg(long, value_enum, default_value_t = Cores::Shared)]
    pub cores: Cores,
    /// Numbers of tenants
    #[arg(long, value_delimiter = ',', default_values_t = [2])]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=8))]
    pub tenants: Vec<u16>,
    /// Lengths of a frame on the wire, with Ethernet's check sequence
    #[arg(long, value_delimiter = ',', default_values_t = [64])]
    #[arg(value_parser = clap::value_parser!(u16).range(64..=1518))]
    pub bytes: Vec<u16>,
    /// Rounds; the report has their median and spread
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,
    /// Milliseconds at each rate
    #[arg(long = "milliseconds", value_name = "MILLISECONDS", value_parser = milliseconds)]
    #[arg(default_value = "500")]
    pub time: Duration,
    /// Two rounds, with `--whole` one, of 200 milliseconds at every second rate; all scenarios have the same
    /// switches
    #[arg(long, conflicts_with_all = ["rounds", "time"])]
    pub quick: bool,
    /// All scenarios, Open vSwitch at each level, 1, 2 and 4 tenants, 64 and 1500 bytes
    #[arg(long, conflicts_with_all = ["scenarios", "levels", "tenants", "bytes"])]
    pub whole: bool,
    /// Rising packets a second, of all tenants: throughput is the most that comes back at one of them
    #[arg(long, value_delimiter = ',', default_values_t = RATES)]
    #[arg(value_parser = clap::value_parser!(u32).range(100..=2_000_000))]
    pub rates: Vec<u32>,
    /// Packets a second while latency is measured, of all tenants
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=200_000))]
    pub latency_rate: u32,
    /// Write each measurement into this file; one that is in the file already is not made again
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
}

/// Default rates: each is 1.6 times the one before.
const RATES: [u32; 6] = [25_000, 40_000, 63_000, 100_000, 160_000, 250_000];

/// The whole matrix.
const WHOLE: ([Scenario; 3], [Level; 5], [u16; 3], [u16; 2]) = (
    [Scenario::P2p, Scenario::P2v, Scenario::V2v],
    [Level::Baseline, Level::One, Level::Two, Level::BaselineDpdk, Level::Three],
    [1, 2, 4],
    [64, 1500],
);

impl Options {
    /// Returns the options with what [`Self::whole`] means in its place.
    fn complete(&self) -> Self {
        let mut all = self.clone();
        if self.whole {
            let (scenarios, levels, tenants, bytes) = WHOLE;
            (all.scenarios, all.levels) = (scenarios.to_vec(), levels.to_vec());
            (all.tenants, all.bytes) = (tenants.to_vec(), bytes.to_vec());
        }
        all
    }

    /// Returns the scenarios in groups that have the same switches.
    fn groups(&self) -> Vec<Vec<Scenario>> {
        if self.quick {
            return vec![self.scenarios.clone()];
        }
        // V2v needs a second VM for each tenant, whose port would cost the other scenarios time.
        let (of_two, of_one) = self.scenarios.iter().partition(|s| **s == Scenario::V2v);
        vec![of_one, of_two]
    }

    /// Returns the number of rounds.
    #[must_use]
    pub const fn rounds(&self) -> u16 {
        match (self.quick, self.whole) {
            (true, true) => 1,
            (true, false) => 2,
            (false, _) => self.rounds,
        }
    }

    fn time(&self) -> Duration {
        if self.quick { Duration::from_millis(200) } else { self.time }
    }

    /// Returns the scenarios that are measured with or without programs.
    fn scenarios(&self, p4: P4) -> impl Iterator<Item = &Scenario> {
        self.scenarios.iter().filter(move |s| p4 == P4::Without || **s != Scenario::P2p)
    }

    /// Returns the levels, each with and without programs, in a round's order.
    fn worlds(&self, round: u16) -> Vec<(Level, P4)> {
        let levels = in_turn(&self.levels, round).into_iter();
        levels.flat_map(|level| self.p4.iter().map(move |p4| (level, *p4))).collect()
    }

    /// Returns the rates; the highest is always among them.
    fn rates(&self) -> Vec<u32> {
        let mut rates = self.rates.clone();
        rates.sort_unstable();
        let step = if self.quick { 2 } else { 1 };
        rates.into_iter().rev().step_by(step).collect::<Vec<_>>().into_iter().rev().collect()
    }
}

/// A cell in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Sample {
    round: u16,
    scenario: Scenario,
    level: Level,
    p4: P4,
    tenants: u16,
    bytes: u16,
    offered_pps: f64,
    tenant_pps: Vec<f64>,
    overload_pps: Vec<f64>,
    micros: Percentiles,
    lost_percent: f64,
    switches: usize,
    cores: usize,
    busy_cores: f64,
    memory_mb: f64,
}

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// How the switches share cores.
    pub cores: Cores,
    /// By scenario, tenants, length and level.
    pub cells: Vec<Cell>,
    /// The claims about what was measured.
    pub bars: Vec<Bar>,
}

/// Steps that [`run`] reports.
#[must_use]
pub fn steps(options: &Options) -> usize {
    let options = &options.complete();
    let ways: usize = options.p4.iter().map(|p4| options.scenarios(*p4).count()).sum();
    usize::from(options.rounds())
        * [ways, options.levels.len(), options.tenants.len(), options.bytes.len()].iter().product::<usize>()
}

/// Measures; calls `progress` before each step.
///
/// # Errors
/// The switches cannot be made, no packet comes back, or the file of the option `resume` cannot be read or
/// written, or has other measurements.
pub fn run(options: &Options, mut progress: impl FnMut(String)) -> anyhow::Result<Report> {
    let options = &options.complete();
    let has_p4 = options.levels.iter().any(|level| level.has_p4_switches());
    ensure!(
        !(has_p4 && options.scenarios.contains(&Scenario::P2p)),
        "p2p needs a rule that only Open vSwitch has: leave p2p out of --scenarios, or P4 switches out of \
         --levels"
    );
    ensure!(
        options.p4.contains(&P4::Without) || !options.scenarios.contains(&Scenario::P2p),
        "no program judges packets of p2p, which pass no VM: leave p2p out of --scenarios, or add without to \
         --p4"
    );
    let mut results = results::open(options)?;
    for round in 1..=options.rounds() {
        for &tenants in &options.tenants {
            for group in options.groups() {
                let is_here = |s: &&Scenario| group.contains(*s);
                for (level, p4) in options.worlds(round) {
                    let place = Place { round, level, p4, tenants };
                    let scenarios: Vec<_> = options.scenarios(p4).filter(is_here).copied().collect();
                    measure_all(place, &scenarios, options, &mut results, &mut progress)?;
                }
            }
        }
    }
    let cells = cells::of(results.samples);
    let cores = options.cores;
    // The bar is for a shared core.
    let bars = if cores == Cores::Shared { cells::bars(&cells) } else { Vec::new() };
    Ok(Report { cores, bars, cells })
}

/// Returns the levels in a round's order.
pub(crate) fn in_turn(levels: &[Level], round: u16) -> Vec<Level> {
    let mut levels = levels.to_vec();
    if round.is_multiple_of(2) {
        levels.reverse();
    }
    levels
}

/// The place of new switches in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) round: u16,
    pub(crate) level: Level,
    pub(crate) p4: P4,
    pub(crate) tenants: u16,
}

/// Measures all lengths in these scenarios that have no result yet, with switches that are made for it.
fn measure_all(
    place: Place,
    scenarios: &[Scenario],
    options: &Options,
    results: &mut Samples<Sample>,
    progress: &mut impl FnMut(String),
) -> anyhow::Result<()> {
    let Place { round, level, p4, tenants } = place;
    let each = if scenarios.contains(&Scenario::V2v) { 2 } else { 1 };
    let mut world = None;
    for (scenario, bytes) in scenarios.iter().flat_map(|s| options.bytes.iter().map(|b| (*s, *b))) {
        let [way, at, programs] = [name(scenario), name(level), name(p4)];
        progress(format!(
            "round {round}, {way}, level {at}, {programs} P4, {tenants} tenants, {bytes} bytes"
        ));
        if results::has(&results.samples, place, scenario, bytes) {
            continue;
        }
        let world = match &mut world {
            Some(world) => world,
            none => none.insert(World::start(place, options.cores, each)?),
        };
        results.add(measure(world, place, scenario, bytes, options)?)?;
    }
    Ok(())
}

/// Trials of a cell until packets come back. On a busy machine, switches may have no core for seconds.
const TRIALS: usize = 5;

fn measure(
    world: &World,
    place: Place,
    scenario: Scenario,
    bytes: u16,
    options: &Options,
) -> anyhow::Result<Sample> {
    let Place { round, level, p4, tenants } = place;
    let mut trial = Trial::make(world, scenario, bytes, options)?;
    for _ in 1..TRIALS {
        if trial.few.micros.is_empty() {
            trial = Trial::make(world, scenario, bytes, options)?;
        }
    }
    let Trial { full, mut few, begin, end } = trial;
    let total = |seen: &Seen| seen.tenant_pps.iter().sum::<f64>();
    let best = full.iter().max_by(|a, b| total(a).total_cmp(&total(b))).context("no rate was measured")?;
    let over = full.last().context("no rate was measured")?;
    ensure!(!few.micros.is_empty(), "no packet came back: {} at level {}", name(scenario), name(level));
    Ok(Sample {
        round,
        scenario,
        level,
        p4,
        tenants,
        bytes,
        offered_pps: best.sent_pps,
        tenant_pps: best.tenant_pps.clone(),
        overload_pps: over.tenant_pps.clone(),
        micros: Percentiles::of(&mut few.micros),
        lost_percent: few.lost_percent,
        switches: world.switches(),
        cores: world.cores(),
        busy_cores: (end.core_seconds - begin.core_seconds) / (end.at - begin.at).as_secs_f64(),
        memory_mb: end.memory as f64 / 1e6,
    })
}

/// The packets of a cell in one round.
struct Trial {
    /// At each rate.
    full: Vec<Seen>,
    /// At the rate of the latency.
    few: Seen,
    /// At the beginning and at the end of the highest rate.
    begin: Used,
    end: Used,
}

impl Trial {
    fn make(world: &World, scenario: Scenario, bytes: u16, options: &Options) -> anyhow::Result<Self> {
        let mut outside = Machine::open(&world.cloud.outside)?;
        let mut vms =
            world.cloud.vms.iter().map(|vm| Machine::open(&vm.ns)).collect::<anyhow::Result<Vec<_>>>()?;
        let frames = world.of_outside(scenario)?;
        let frames = frames.iter().zip(0..).map(|(headers, tenant)| packet::frame(headers, bytes, tenant));
        let mut ways = Ways {
            outside: &mut outside,
            frames: frames.collect(),
            vms: vms.iter_mut().zip(world.of_vms(scenario)?).collect(),
        };
        let mut used = Vec::new();
        let look = || world.used().map(|now| used.push(now));
        let rates = [&[options.latency_rate], &options.rates()[..]].concat();
        let mut seen = traffic::measure(&mut ways, &rates, options.time(), look)?.into_iter();
        let few = seen.next().context("no rate was measured")?;
        let [begin, end] = used[..] else { bail!("usage was read otherwise than twice") };
        Ok(Self { full: seen.collect(), few, begin, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Words {
        #[command(flatten)]
        options: Options,
    }

    fn options(words: &str) -> Options {
        Words::parse_from(["topology"].into_iter().chain(words.split_whitespace())).options
    }

    #[test]
    fn the_whole_matrix_has_every_scenario_and_level() {
        // Three ways without programs and two with them, five levels, three numbers of tenants, two lengths.
        let round = (3 + 2) * 5 * 3 * 2;
        assert_eq!(["--whole --rounds 1", "--whole --quick"].map(|w| steps(&options(w))), [round; 2]);
        let both = Words::try_parse_from(["topology", "--whole", "--levels", "2"]);
        assert_eq!(both.map(|_| ()).unwrap_err().kind(), clap::error::ErrorKind::ArgumentConflict);
    }

    #[test]
    fn v2v_shares_no_switches_but_in_quick_runs() {
        let all = "--scenarios p2p,v2v,p2v";
        let [p2p, p2v, v2v] = [Scenario::P2p, Scenario::P2v, Scenario::V2v];
        assert_eq!(options(all).groups(), [vec![p2p, p2v], vec![v2v]]);
        assert_eq!(options(&format!("{all} --quick")).groups(), [vec![p2p, v2v, p2v]]);
    }
}
