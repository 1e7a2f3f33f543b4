//! `p4shield-dev bench xsk`: the experiments of TransP4 (Tashiro, Iwai and Kourai, 2026) with an unmodified Open vSwitch over
//! AF_XDP, and a long one that TransP4 does not survive.
//!
//! A client and a server, each in a network namespace behind a veth port of the switch; the server's side is the user VM,
//! with the agent in it. The switch's polling thread has the last core; client, server, agent, daemon and P4 VM share the
//! first.
//!
//! * [`messages`]: latency of requests and responses, and throughput, by message size, in each [`Mode`] one after the
//!   other, round after round, so that whatever else the machine does hits all of them. Each figure is the median of the
//!   rounds and stands beside its ratio to `plain`.
//! * [`delay`]: the same against the time that the P4 VM takes for a packet.
//! * [`hysteresis`]: a program with a register sheds the load that fills the VM's network and lets it through again.
//! * [`long`]: many connections while a program drops at random and the P4 VM is killed; what became of them and of the
//!   switch's frames.

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

/// What is on a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The switch as the distribution made it.
    Plain,
    /// P4 Shield's library in it, which replaces its rings and has nothing judged.
    Relay,
    /// The library, and a P4 VM that judges.
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

/// With what to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The binary `p4shield`, to be started as daemon and agent.
    pub binary: PathBuf,
    /// The library `libp4shield_xsk.so`.
    pub library: PathBuf,
    /// Message sizes; over UDP those that are longer than a datagram can be are that long.
    pub messages: Vec<u32>,
    /// How often everything is measured.
    pub rounds: usize,
    /// How long each throughput is measured.
    pub time: Duration,
    /// Round trips of each latency.
    pub round_trips: usize,
    /// How TCP controls congestion in client and server; none: as on the machine.
    pub congestion: Option<String>,
    /// What the P4 VM takes longer for each packet, in [`delay`].
    pub delays: Vec<Duration>,
    /// What [`hysteresis`] plays.
    pub hysteresis: hysteresis::Play,
    /// What [`long`] plays.
    pub long: long::Play,
}

/// Which experiments to make.
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

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The switch, as it calls itself.
    pub switch: String,
    /// The core of everything else, and that of the switch's polling thread.
    pub cores: [usize; 2],
    /// By message size.
    pub messages: Option<messages::Report>,
    /// By the P4 VM's time.
    pub delay: Option<delay::Report>,
    /// Figure 7 of the paper.
    pub hysteresis: Option<hysteresis::Timeline>,
    /// The long experiment.
    pub long: Option<long::Report>,
}

/// Whether this machine can run the switch; otherwise why not.
///
/// # Errors
/// A sentence that says what is missing.
pub fn usable() -> Result<(), String> {
    OvsAfxdp::usable()
}

/// Steps that [`run`] tells of.
#[must_use]
pub fn steps(options: &Options, parts: Parts) -> usize {
    usize::from(parts.hysteresis)
        + usize::from(parts.messages) * messages::steps(options)
        + usize::from(parts.delay) * delay::steps(options)
        + usize::from(parts.long)
}

/// Measures; `progress` is told before each step.
///
/// # Errors
/// If the switch, the daemon or the agent does not start or end as it should, with what it said.
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
