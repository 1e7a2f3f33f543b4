//! `p4shield-dev bench defaults`: what a user gets who follows the tutorials.
//!
//! An unmodified Open vSwitch with AF_XDP ports on veth and one polling core, two tenants, programs in both
//! directions. Nothing is pinned or tuned, other processes keep the machine busy, and the clients are
//! `iperf3` and `ping`. Each round measures the plain switch and the switch with P4 Shield, by turns.

mod clients;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use p4shield_install::{PreloadedAttachment, Root, find_library};
use p4shield_testbed::{OpenVswitch, process};
use serde::Serialize;

use crate::args::seconds;
use crate::cores;
use crate::stats::Spread;
use clients::{BusyLoops, Flood, Ping, Servers};
use world::World;

/// Options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Busy processes beside the cloud, one measurement for each number
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1, 2, 4])]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=64))]
    pub busy: Vec<u16>,
    /// Rounds; the report has their median
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// Seconds for each throughput
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "5")]
    pub seconds: Duration,
    /// Pings of each measurement, 50 a second
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub pings: u32,
    /// libp4shield_xsk.so; default: the one beside this binary
    #[arg(long, value_name = "FILE", hide_default_value = true)]
    #[arg(default_value_os_t = find_library(&Root::new("/"), PreloadedAttachment::Xsk))]
    pub library: PathBuf,
}

/// Whether the switch is the distribution's alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The distribution's switch alone.
    Plain,
    /// With the library, two tenants and their P4 VMs.
    P4vm,
}

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The switch's own name and version.
    pub switch: String,
    /// The core of the switch's polling thread.
    pub polling_core: usize,
    /// By number of busy processes and mode.
    pub rows: Vec<Row>,
}

/// Medians of the rounds; losses are sums over all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Busy processes beside the cloud.
    pub busy: u16,
    /// The mode.
    pub mode: Mode,
    /// One TCP stream of iperf3 to the server.
    pub tcp_mbps: f64,
    /// The same as a share of plain.
    pub tcp_of_plain: f64,
    /// TCP segments sent again, per gigabyte.
    pub retransmits_per_gb: f64,
    /// One UDP flow of iperf3 with 1400 bytes a datagram, as received.
    pub udp_mbps: f64,
    /// The same as a share of plain.
    pub udp_of_plain: f64,
    /// Median of the rounds' average round trip of `ping`, milliseconds.
    pub ping_ms: f64,
    /// Pings lost, of all rounds.
    pub pings_lost: u32,
    /// Pings lost while the neighbour floods its own port, of all rounds.
    pub flooded_pings_lost: u32,
    /// Packets of all tenants without a verdict at the deadline.
    pub deadline: u64,
    /// Packets of all tenants that found a queue or channel full.
    pub full: u64,
}

/// Figures of one round.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    tcp: clients::Stream,
    udp_mbps: f64,
    idle: Ping,
    flooded: Ping,
    lost: world::Lost,
}

/// Checks whether this machine can run the switch and the clients.
///
/// # Errors
/// The reason why not.
pub fn usable() -> Result<(), String> {
    let missing = ["iperf3", "ping"].into_iter().find(|client| process::find(client).is_none());
    missing.map_or(Ok(()), |client| Err(format!("{client} is not installed"))).and(OpenVswitch::usable())
}

/// Steps that [`run`] reports.
#[must_use]
pub fn steps(options: &Options) -> usize {
    usize::from(options.rounds) * 2 * options.busy.len()
}

/// Measures.
///
/// # Errors
/// A part of the cloud does not start, or a client fails.
pub fn run(options: &Options, mut step: impl FnMut(String)) -> anyhow::Result<Report> {
    let mut samples = vec![[Vec::new(), Vec::new()]; options.busy.len()];
    let mut switch = String::new();
    for round in 0..options.rounds {
        // The mode that comes first alternates, so that a drift of the machine affects both.
        let modes = [Mode::Plain, Mode::P4vm];
        for mode in if round % 2 == 0 { modes } else { [modes[1], modes[0]] } {
            let world = World::start(options, mode)?;
            let servers = Servers::start(&world)?;
            switch = world.switch.appctl(&["version"])?.lines().next().unwrap_or_default().to_owned();
            for (level, &busy) in options.busy.iter().enumerate() {
                step(format!("round {}, {}, {busy} busy", round + 1, crate::name(mode)));
                samples[level][mode as usize].push(sample(options, &world, &servers, busy)?);
            }
        }
    }
    let rows = options.busy.iter().zip(&samples).flat_map(|(&busy, both)| {
        [Mode::Plain, Mode::P4vm].map(|mode| row(busy, mode, &both[mode as usize], &both[0]))
    });
    Ok(Report { switch, polling_core: cores::two()[1], rows: rows.collect() })
}

fn sample(options: &Options, world: &World, servers: &Servers, busy: u16) -> anyhow::Result<Sample> {
    let _busy = BusyLoops::start(busy)?;
    let before = world.lost();
    let idle = Ping::measure(world, options.pings)?;
    let tcp = servers.tcp(world, options.seconds)?;
    let udp_mbps = servers.udp(world, options.seconds)?;
    let flood = Flood::start(world)?;
    let flooded = Ping::measure(world, options.pings)?;
    drop(flood);
    Ok(Sample { tcp, udp_mbps, idle, flooded, lost: world.lost() - before })
}

fn row(busy: u16, mode: Mode, own: &[Sample], plain: &[Sample]) -> Row {
    let median = |of: &dyn Fn(&Sample) -> f64| Spread::of(own.iter().map(of).collect()).median;
    let share = |of: &dyn Fn(&Sample) -> f64| {
        Spread::of(own.iter().zip(plain).map(|(own, plain)| of(own) / of(plain)).collect()).median
    };
    Row {
        busy,
        mode,
        tcp_mbps: median(&|s| s.tcp.mbps),
        tcp_of_plain: share(&|s| s.tcp.mbps),
        retransmits_per_gb: median(&|s| s.tcp.retransmits_per_gb),
        udp_mbps: median(&|s| s.udp_mbps),
        udp_of_plain: share(&|s| s.udp_mbps),
        ping_ms: median(&|s| s.idle.average_ms),
        pings_lost: own.iter().map(|s| s.idle.lost).sum(),
        flooded_pings_lost: own.iter().map(|s| s.flooded.lost).sum(),
        deadline: own.iter().map(|s| s.lost.deadline).sum(),
        full: own.iter().map(|s| s.lost.full).sum(),
    }
}
