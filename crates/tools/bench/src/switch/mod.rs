//! `p4shield-dev bench switch`: the cost of a P4 VM for an unmodified DPDK switch.
//!
//! Each round starts the switch in all [`Mode`]s, so that other load on the machine affects all of them.
//! Each figure is the median of the rounds, with its ratio to `plain`. The switch's polling thread has the
//! last core; the P4 VM and all other processes share the first one.
//!
//! * **Throughput**: DPDK's `net_pcap` replays packets from memory at the polling thread's speed, and
//!   `net_null` discards the forwarded ones: no system call and no other process is involved.
//! * **Latency and streams**: a client and a server in network namespaces, each behind a kernel interface of
//!   the switch (`net_af_packet` on veth), with the agent beside the server, so that `tcp_guard.p4` decides
//!   with real information.

mod lab;
mod round_trip;
mod shield;
mod stream;
mod throughput;
mod traffic;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use p4shield_install::{PreloadedAttachment, Root, find_library};
use serde::Serialize;

pub use crate::protocol::Protocol;
pub use lab::SwitchKind;
pub use round_trip::Load;

use crate::args::seconds;
use crate::figures::{figure, over_rounds};
use crate::name;
use crate::stats::Percentiles;

/// Configuration of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The distribution's switch alone.
    Plain,
    /// With P4 Shield's library; the packets are unowned.
    Attached,
    /// With P4 Shield's library; the packets are other ports', and the tenant's VM has a vhost-user port of
    /// its own. Throughput through Open vSwitch only.
    Neighbour,
    /// The program runs inside the switch process, as in P4rt-OVS.
    Inline,
    /// The program runs in a P4 VM.
    P4vm,
}

impl Mode {
    /// Every mode, plain first.
    pub const ALL: [Self; 5] = [Self::Plain, Self::Attached, Self::Neighbour, Self::Inline, Self::P4vm];

    /// Whether this part is measured.
    fn has(self, options: &Options, part: Part) -> bool {
        let exists = part == Part::Throughput && options.switch == SwitchKind::Ovs || self != Self::Neighbour;
        exists && options.parts.contains(&part)
    }
}

/// Options of a measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The unmodified switch
    #[arg(long, value_enum, default_value_t = SwitchKind::Ovs)]
    pub switch: SwitchKind,
    /// Frame sizes of the throughput measurement, with the frame check sequence
    #[arg(long = "bytes", value_delimiter = ',', default_values_t = [64, 128, 512, 1500])]
    #[arg(value_parser = clap::value_parser!(u32).range(64..=1518))]
    pub sizes: Vec<u32>,
    /// Message sizes of the latency and stream measurements
    #[arg(long = "message", value_delimiter = ',', default_values_t = [64, 512, 1400])]
    #[arg(value_parser = clap::value_parser!(u32).range(16..=1400))]
    pub messages: Vec<u32>,
    /// What to measure
    #[arg(long = "part", value_enum, value_delimiter = ',')]
    #[arg(default_values_t = [Part::Throughput, Part::Latency, Part::Streams])]
    pub parts: Vec<Part>,
    /// Rounds; the report has their median
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// Seconds for each throughput
    #[arg(long = "seconds", value_name = "SECONDS", value_parser = seconds, default_value = "2")]
    pub time: Duration,
    /// Round trips for each latency
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..))]
    pub round_trips: u32,
    /// TCP congestion control of client and server, such as cubic; default: this machine's
    #[arg(long, value_name = "ALGORITHM")]
    pub congestion: Option<String>,
    /// libp4shield_dpdk.so; default: the one beside this binary
    #[arg(long, value_name = "FILE", hide_default_value = true)]
    #[arg(default_value_os_t = find_library(&Root::new("/"), PreloadedAttachment::Dpdk))]
    pub library: PathBuf,
}

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Packets generated in memory
    Throughput,
    /// Request and response through kernel interfaces
    Latency,
    /// TCP and UDP through kernel interfaces
    Streams,
}

/// Packets per second through the switch.
#[derive(Clone, Debug, Serialize)]
pub struct Throughput {
    /// The switch's configuration.
    pub mode: Mode,
    /// Bytes of a frame, with its check sequence.
    pub bytes: u32,
    /// Million packets per second that left the switch.
    pub mpps: f64,
    /// `mpps` over that of plain.
    pub ratio: f64,
    /// Cycles of the polling thread per packet.
    pub cycles: f64,
}

/// Request/response latency between two kernel interfaces of the switch.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// The switch's configuration.
    pub mode: Mode,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Other traffic of the switch.
    pub load: Load,
    /// Bytes of request and of response.
    pub message: u32,
    /// Microseconds from request to response.
    pub micros: Percentiles,
    /// The median over that of plain.
    pub ratio: f64,
}

/// Throughput of one connection or flow.
#[derive(Clone, Debug, Serialize)]
pub struct Stream {
    /// The switch's configuration.
    pub mode: Mode,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Bytes of a message.
    pub message: u32,
    /// Received million bits per second.
    pub mbps: f64,
    /// `mbps` over that of plain.
    pub ratio: f64,
}

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The switch's own name and version.
    pub switch: String,
    /// The core of the switch's polling thread, and the P4 VM's.
    pub cores: [usize; 2],
    /// With packets from memory.
    pub throughput: Vec<Throughput>,
    /// Request and response.
    pub latency: Vec<Latency>,
    /// Throughput of TCP and UDP by message size.
    pub streams: Vec<Stream>,
}

/// Steps that [`run`] reports.
#[must_use]
pub fn steps(options: &Options) -> usize {
    let of_mode = |mode: Mode| {
        let throughputs = if mode.has(options, Part::Throughput) { options.sizes.len() } else { 0 };
        throughputs + usize::from(mode.has(options, Part::Latency) || mode.has(options, Part::Streams))
    };
    usize::from(options.rounds) * Mode::ALL.into_iter().map(of_mode).sum::<usize>()
}

/// Measures; calls `progress` before each step.
///
/// # Errors
/// The switch, the daemon or the agent does not start; with its output.
pub fn run(options: &Options, mut progress: impl FnMut(String)) -> anyhow::Result<Report> {
    let [p4vm, polling] = crate::cores::two();
    let mut samples = Samples::default();
    for round in 1..=options.rounds {
        for mode in Mode::ALL {
            let has = |part| mode.has(options, part);
            let mut tell = |what: &str| progress(format!("round {round}, {}, {what}", name(mode)));
            if has(Part::Throughput) {
                for &bytes in &options.sizes {
                    tell(&format!("{bytes} bytes"));
                    samples.throughput.push(throughput::measure(options, mode, bytes)?);
                }
            }
            if has(Part::Latency) || has(Part::Streams) {
                tell("client and server");
                let world = world::World::start(options, mode)?;
                if has(Part::Latency) {
                    samples.latency.extend(world.latencies(options)?);
                }
                if has(Part::Streams) {
                    samples.streams.extend(stream::measure(&world, options)?);
                }
            }
        }
    }
    Ok(samples.report(options.switch.version()?, [polling, p4vm]))
}

/// Samples of all rounds, still without ratios.
#[derive(Default)]
struct Samples {
    throughput: Vec<Throughput>,
    latency: Vec<Latency>,
    streams: Vec<Stream>,
}

impl Samples {
    fn report(self, switch: String, cores: [usize; 2]) -> Report {
        Report {
            switch,
            cores,
            throughput: over_rounds(self.throughput),
            latency: over_rounds(self.latency),
            streams: over_rounds(self.streams),
        }
    }
}

figure!(Throughput, Mode::Plain, |t| t.mpps, [bytes]);
figure!(Latency, Mode::Plain, |l| l.micros.p50, [protocol, load, message]);
figure!(Stream, Mode::Plain, |s| s.mbps, [protocol, message]);

#[cfg(test)]
mod tests {
    use super::*;

    fn throughput(mode: Mode, bytes: u32, mpps: f64) -> Throughput {
        Throughput { mode, bytes, mpps, ratio: 0.0, cycles: 0.0 }
    }

    #[test]
    fn the_median_round_is_compared_with_plain() {
        let samples = vec![
            throughput(Mode::Plain, 64, 10.0),
            throughput(Mode::P4vm, 64, 1.0),
            throughput(Mode::Plain, 64, 30.0),
            throughput(Mode::P4vm, 64, 9.0),
            throughput(Mode::Plain, 64, 20.0),
            throughput(Mode::P4vm, 64, 15.0),
            throughput(Mode::P4vm, 128, 5.0),
        ];
        let got: Vec<_> = over_rounds(samples).iter().map(|t| (t.mode, t.bytes, t.mpps, t.ratio)).collect();
        assert_eq!(got[..2], [(Mode::Plain, 64, 20.0, 1.0), (Mode::P4vm, 64, 9.0, 0.45)]);
        assert!(got[2].3.is_nan(), "there is no plain to compare with");
    }
}
