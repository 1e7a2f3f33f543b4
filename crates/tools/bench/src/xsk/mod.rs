//! `p4shield-dev bench xsk`: the experiments of TransP4 (Tashiro, Iwai and Kourai, 2026) with an unmodified
//! Open vSwitch over AF_XDP, and an endurance run.
//!
//! A client and a server, each in a network namespace behind a veth port of the switch; the server's side is
//! the user VM, with the agent in it. The switch's polling thread has the last core; all other processes
//! share the first.
//!
//! * [`messages`]: latency of requests and responses, and throughput, by message size. Each round measures
//!   all [`Mode`]s, so that other load on the machine affects all of them. Each figure is the median of the
//!   rounds, with its ratio to `plain`.
//! * [`delay`]: the same by the P4 VM's time per packet.
//! * [`hysteresis`]: a program with a register sheds the load that fills the VM's link, and readmits it.
//! * [`long`]: many connections with random loss and kills of the P4 VM; the state of all connections and
//!   frames.

pub mod delay;
pub mod hysteresis;
pub mod long;
pub mod messages;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use p4shield_install::{PreloadedAttachment, Root, find_library};
use p4shield_testbed::{OpenVswitch, process};
use serde::Serialize;

use crate::args::{milliseconds, seconds};
use crate::cores;

/// Configuration of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The distribution's switch alone.
    Plain,
    /// With P4 Shield's library, which replaces the rings; no packet is judged.
    Relay,
    /// With the library and a P4 VM.
    P4vm,
}

impl Mode {
    /// Every mode, plain first.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Relay, Self::P4vm];
}

/// Options of a measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// What to measure
    #[arg(long = "part", value_enum, value_delimiter = ',')]
    #[arg(default_values_t = [Part::Hysteresis, Part::Messages, Part::Delay])]
    pub parts: Vec<Part>,
    /// Message sizes of the latency and throughput measurements; over UDP at most the longest datagram
    #[arg(long = "message", value_delimiter = ',', default_values_t = [1, 64, 512, 1400, 8192, 65_536])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub messages: Vec<u32>,
    /// Rounds; the report has their median
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// Milliseconds for each throughput
    #[arg(long = "time-ms", value_name = "MS", value_parser = milliseconds, default_value = "1000")]
    pub time: Duration,
    /// Round trips for each latency
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(10..))]
    pub round_trips: u32,
    /// TCP congestion control of client and server, such as cubic; default: this machine's
    #[arg(long, value_name = "ALGORITHM")]
    pub congestion: Option<String>,
    /// Microseconds that the P4 VM adds to each packet, in the part `delay`
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1, 2, 5, 10, 20, 50, 100])]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub delay_us: Vec<u32>,
    /// Seconds of the part `hysteresis`, and of the part `long`
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "20")]
    pub seconds: Duration,
    /// Link speed that the VM's agent publishes in the part `hysteresis`, Mbit/s
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    pub link_mbps: u64,
    /// Connections at a time in the part `long`
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub connections: u32,
    /// Seconds between two kills of the P4 VM in the part `long`
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "40")]
    pub restart_every: Duration,
    /// libp4shield_xsk.so; default: the one beside this binary
    #[arg(long, value_name = "FILE", hide_default_value = true)]
    #[arg(default_value_os_t = find_library(&Root::new("/"), PreloadedAttachment::Xsk))]
    pub library: PathBuf,
}

/// An experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// A program sheds the load that fills the VM's link, then readmits it
    Hysteresis,
    /// Latency and throughput by message size: plain, with rings replaced, with a P4 VM
    Messages,
    /// Latency and throughput by the P4 VM's processing time
    Delay,
    /// Many connections, random packet loss, repeated kills of the P4 VM
    Long,
}

/// All figures.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The switch's own name and version.
    pub switch: String,
    /// The core of all other processes, and the core of the switch's polling thread.
    pub cores: [usize; 2],
    /// By message size.
    pub messages: Option<messages::Report>,
    /// By the P4 VM's time per packet.
    pub delay: Option<delay::Report>,
    /// Figure 7 of the paper.
    pub hysteresis: Option<hysteresis::Timeline>,
    /// The endurance run.
    pub long: Option<long::Report>,
}

/// Checks whether this machine can run the switch.
///
/// # Errors
/// The reason why not.
pub fn usable() -> Result<(), String> {
    OpenVswitch::usable()
}

/// Steps that [`run`] reports.
#[must_use]
pub fn steps(options: &Options) -> usize {
    let of = |part: &Part| match part {
        Part::Hysteresis | Part::Long => 1,
        Part::Messages => messages::steps(options),
        Part::Delay => delay::steps(options),
    };
    options.parts.iter().map(of).sum()
}

/// Measures; calls `progress` before each step.
///
/// # Errors
/// The switch, the daemon or the agent does not start or stop; with its output.
pub fn run(options: &Options, mut progress: impl FnMut(String)) -> anyhow::Result<Report> {
    let version = process::run(std::process::Command::new("ovs-vswitchd").arg("--version"))?;
    let switch = version.lines().next().unwrap_or("Open vSwitch").to_owned();
    let mut report = Report { switch, cores: cores::two(), ..Report::default() };
    for part in &options.parts {
        match part {
            Part::Hysteresis => {
                progress("hysteresis".into());
                report.hysteresis = Some(hysteresis::play(options)?);
            }
            Part::Messages => report.messages = Some(messages::measure(options, &mut progress)?),
            Part::Delay => report.delay = Some(delay::measure(options, &mut progress)?),
            Part::Long => {
                progress("connections, drops, restarts".into());
                report.long = Some(long::play(options)?);
            }
        }
    }
    Ok(report)
}
