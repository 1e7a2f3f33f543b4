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

use p4shield_testbed::{OvsAfxdp, process};
use serde::Serialize;

use crate::{Error, cores};

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

    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Relay => "relay",
            Self::P4vm => "p4vm",
        }
    }
}

/// Options of a measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// The binary `p4shield`, to be started as daemon and agent.
    pub binary: PathBuf,
    /// The library `libp4shield_xsk.so`.
    pub library: PathBuf,
    /// Message sizes; over UDP at most the longest datagram.
    pub messages: Vec<u32>,
    /// Number of rounds.
    pub rounds: usize,
    /// Duration of each throughput measurement.
    pub time: Duration,
    /// Round trips per latency measurement.
    pub round_trips: usize,
    /// TCP congestion control of client and server; none: the machine's.
    pub congestion: Option<String>,
    /// Time that the P4 VM adds to each packet, in [`delay`].
    pub delays: Vec<Duration>,
    /// Scenario of [`hysteresis`].
    pub hysteresis: hysteresis::Scenario,
    /// Scenario of [`long`].
    pub long: long::Scenario,
}

/// Experiments to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// [`hysteresis`].
    pub hysteresis: bool,
    /// [`messages`].
    pub messages: bool,
    /// [`delay`].
    pub delay: bool,
    /// [`long`].
    pub long: bool,
}

/// All figures.
#[derive(Clone, Debug, Serialize)]
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
    OvsAfxdp::usable()
}

/// Steps that [`run`] reports.
#[must_use]
pub fn steps(options: &Options, parts: Parts) -> usize {
    usize::from(parts.hysteresis)
        + usize::from(parts.messages) * messages::steps(options)
        + usize::from(parts.delay) * delay::steps(options)
        + usize::from(parts.long)
}

/// Measures; calls `progress` before each step.
///
/// # Errors
/// The switch, the daemon or the agent does not start or stop; with its output.
pub fn run(options: &Options, parts: Parts, mut progress: impl FnMut(String)) -> Result<Report, Error> {
    let version = process::run(std::process::Command::new("ovs-vswitchd").arg("--version"))?;
    let mut report = Report {
        switch: version.lines().next().unwrap_or("Open vSwitch").to_owned(),
        cores: cores::two(),
        messages: None,
        delay: None,
        hysteresis: None,
        long: None,
    };
    if parts.hysteresis {
        progress("hysteresis".into());
        report.hysteresis = Some(hysteresis::play(options)?);
    }
    if parts.messages {
        report.messages = Some(messages::measure(options, &mut progress)?);
    }
    if parts.delay {
        report.delay = Some(delay::measure(options, &mut progress)?);
    }
    if parts.long {
        progress("connections, drops, restarts".into());
        report.long = Some(long::play(options)?);
    }
    Ok(report)
}
