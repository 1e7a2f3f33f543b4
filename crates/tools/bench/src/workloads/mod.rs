//! `p4shield-dev bench workloads`: real programs behind tenants' switches by level, as in the MTS paper
//! (Thimmaraju et al., ATC 2019, section 5 and figure 6).
//!
//! A server runs in a VM of each tenant, and a client for each outside. In each round the levels are measured
//! one after the other, every second round in reverse order, each with new switches.

mod cells;
mod chain;
mod iperf3;
mod memcached;
mod program;
mod results;
mod trial;
mod web;

use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::name;
use crate::resume::Samples;
use crate::stats::Percentiles;
use crate::topology::{Cores, Level, P4, Place, Scenario, World, in_turn};
use program::{Load, Program};
use trial::{Door, Trial};

pub use cells::Cell;

/// A server and its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// One TCP stream to each tenant: `iperf3`
    Iperf3,
    /// A page from each tenant's `nginx`, under `wrk`
    Web,
    /// Each tenant's `memcached`, under `memcaslap`
    Memcached,
}

impl Workload {
    fn program(self) -> &'static (dyn Program + Sync) {
        match self {
            Self::Iperf3 => &iperf3::Iperf3,
            Self::Web => &web::Web,
            Self::Memcached => &memcached::Memcached,
        }
    }

    /// Returns the unit of its throughput.
    #[must_use]
    pub fn unit(self) -> &'static str {
        self.program().unit()
    }

    /// Checks that its programs are installed.
    ///
    /// # Errors
    /// One is missing; the error names Debian's package.
    pub fn installed(self) -> anyhow::Result<()> {
        self.program().packages().iter().try_for_each(|package| package.path().map(drop))
    }
}

/// The way of a program's packets: from outside to a tenant's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// Outside, switch, the server's VM
    P2v,
    /// Outside, switch, a VM that forwards, switch, the server's VM
    V2v,
}

impl Way {
    const fn scenario(self) -> Scenario {
        match self {
            Self::P2v => Scenario::P2v,
            Self::V2v => Scenario::V2v,
        }
    }

    /// Returns the number of VMs of each tenant.
    const fn vms(self) -> usize {
        match self {
            Self::P2v => 1,
            Self::V2v => 2,
        }
    }
}

/// Options of a measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Programs
    #[arg(long, value_enum, value_delimiter = ',')]
    #[arg(default_values_t = [Workload::Iperf3, Workload::Web, Workload::Memcached])]
    pub workloads: Vec<Workload>,
    /// Ways of the packets
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Way::P2v])]
    pub scenarios: Vec<Way>,
    /// How switches are divided among tenants
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Level::Baseline, Level::Two])]
    pub levels: Vec<Level>,
    /// Numbers of tenants
    #[arg(long, value_delimiter = ',', default_values_t = [2])]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=8))]
    pub tenants: Vec<u16>,
    /// Rounds; the report has their median and spread
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,
    /// Seconds of each measurement: the programs count in whole ones (paper: 100)
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub seconds: u16,
    /// Two rounds of one second each
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    pub quick: bool,
    /// Connections at once to each web server and memcached (paper: up to 1000)
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub connections: u16,
    /// Bytes of the web page
    #[arg(long, default_value_t = 11_300, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub page: u32,
    /// TCP's congestion control in VMs and outside; default: the machine's. It must be in the machine's
    /// net.ipv4.tcp_allowed_congestion_control
    #[arg(long, value_name = "ALGORITHM")]
    pub congestion: Option<String>,
    /// Write each measurement into this file; one that is in the file already is not made again
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
}

impl Options {
    const fn rounds(&self) -> u16 {
        if self.quick { 2 } else { self.rounds }
    }

    const fn seconds(&self) -> u16 {
        if self.quick { 1 } else { self.seconds }
    }

    /// Returns TCP's congestion control.
    fn congestion(&self) -> anyhow::Result<String> {
        const MACHINES: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
        let machines =
            || std::fs::read_to_string(MACHINES).with_context(|| format!("cannot read {MACHINES}"));
        self.congestion.clone().map_or_else(|| Ok(machines()?.trim().to_owned()), Ok)
    }

    const fn load(&self) -> Load {
        Load { seconds: self.seconds(), connections: self.connections, page: self.page }
    }
}

/// A workload in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Sample {
    round: u16,
    workload: Workload,
    scenario: Scenario,
    level: Level,
    tenants: u16,
    /// By tenant, in the workload's unit.
    throughput: Vec<f64>,
    /// By tenant; none where the client does not measure it.
    micros: Vec<Percentiles>,
    failed: u64,
    switches: usize,
    cores: usize,
    core_seconds: f64,
    seconds: f64,
    memory_mb: f64,
}

/// All figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// TCP's congestion control.
    pub congestion: String,
    /// By workload, scenario, tenants and level.
    pub cells: Vec<Cell>,
}

/// Steps that [`run`] reports.
#[must_use]
pub fn steps(options: &Options) -> usize {
    let Options { workloads, scenarios, levels, tenants, .. } = options;
    let lists = [workloads.len(), scenarios.len(), levels.len(), tenants.len()];
    usize::from(options.rounds()) * lists.iter().product::<usize>()
}

/// Measures; calls `progress` before each step.
///
/// # Errors
/// A program is missing, fails or prints what this does not understand, the switches cannot be made, or the
/// file of the option `resume` cannot be read or written, or has other measurements.
pub fn run(options: &Options, mut progress: impl FnMut(String)) -> anyhow::Result<Report> {
    // At once, and not after the switches of an hour.
    options.workloads.iter().try_for_each(|workload| workload.installed())?;
    if options.scenarios.contains(&Way::V2v) {
        chain::NFT.path()?;
    }
    let mut results = results::open(options)?;
    for round in 1..=options.rounds() {
        for &tenants in &options.tenants {
            for &way in &options.scenarios {
                for level in in_turn(&options.levels, round) {
                    let place = Place { round, level, p4: P4::Without, tenants };
                    measure_all(place, way, options, &mut results, &mut progress)?;
                }
            }
        }
    }
    Ok(Report { congestion: options.congestion()?, cells: cells::of(&results.samples) })
}

/// Measures all workloads that have no result yet, with switches that are made for it.
fn measure_all(
    place: Place,
    way: Way,
    options: &Options,
    results: &mut Samples<Sample>,
    progress: &mut impl FnMut(String),
) -> anyhow::Result<()> {
    let Place { round, level, tenants, .. } = place;
    let mut world = None;
    for &workload in &options.workloads {
        let [program, scenario, at] = [name(workload), name(way.scenario()), name(level)];
        progress(format!("round {round}, {program}, {scenario}, level {at}, {tenants} tenants"));
        if results::has(&results.samples, place, way.scenario(), workload) {
            continue;
        }
        let world = match &mut world {
            Some(world) => world,
            none => none.insert(start(place, way, options.congestion.as_deref())?),
        };
        results.add(measure(world, place, way, workload, options)?)?;
    }
    Ok(())
}

/// Makes the switches, and the chains of VMs.
fn start(place: Place, way: Way, congestion: Option<&str>) -> anyhow::Result<World> {
    let world = World::start(place, Cores::Shared, way.vms())?;
    if let Some(algorithm) = congestion {
        let vms = world.cloud.vms.iter().map(|vm| &vm.ns);
        vms.chain([&world.cloud.outside]).try_for_each(|ns| ns.congestion_control(algorithm))?;
    }
    for vms in world.tenants() {
        vms.iter().zip(vms.iter().skip(1)).try_for_each(|(first, to)| chain::forward(first, to))?;
    }
    Ok(world)
}

fn measure(
    world: &World,
    place: Place,
    way: Way,
    workload: Workload,
    options: &Options,
) -> anyhow::Result<Sample> {
    let Place { round, level, tenants, .. } = place;
    // The last VM of a tenant serves, and clients reach it at the address of the first one.
    let ends = world.tenants().filter_map(|vms| vms.first().zip(vms.last()));
    let doors: Vec<_> = ends.map(|(first, server)| Door { first, server }).collect();
    let Trial { seen, begin, end } = Trial::run(world, workload.program(), &doors, options.load())?;
    let throughput: Vec<f64> = seen.iter().map(|seen| seen.throughput).collect();
    // One that starves is a result.
    let some_served = throughput.iter().any(|t| *t > 0.0);
    ensure!(some_served, "no tenant got anything: {} at level {}", name(workload), name(level));
    Ok(Sample {
        round,
        workload,
        scenario: way.scenario(),
        level,
        tenants,
        throughput,
        micros: seen.iter().filter_map(|seen| seen.micros).collect(),
        failed: seen.iter().map(|seen| seen.failed).sum(),
        switches: world.switches(),
        cores: world.cores(),
        core_seconds: end.core_seconds - begin.core_seconds,
        seconds: (end.at - begin.at).as_secs_f64(),
        memory_mb: end.memory as f64 / 1e6,
    })
}
