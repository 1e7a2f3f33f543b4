//! `p4shield-dev bench veth`: a P4 switch with AF_XDP ports on veth.
//!
//! * **Throughput**: one direction, 64-byte packets, beside `testpmd` over DPDK's `net_af_xdp`, which runs no
//!   program, and beside the same switch in a compartment. A `testpmd` that only sends has the first core, so
//!   that the forwarder has the second one; all forwarders have their defaults. Each switch has a session of
//!   its own, among which Linux shares a busy core. Packets count where they arrive.
//! * **Writes**: requests and responses between the two hosts while nothing is written, while entries are
//!   added at a steady rate to another switch, and while they are added to the one that forwards. No thread
//!   is bound to a core.
//!
//! Each round measures all of them, so that other load on the machine affects all.

mod throughput;
mod world;
mod writes;

use std::time::Duration;

use p4shield_testbed::Testpmd;
use serde::Serialize;

use crate::args::seconds;
use crate::figures::{figure, over_rounds};
use crate::name;
use crate::stats::Percentiles;

/// A program that forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Forwarder {
    /// `dpdk-testpmd` over `net_af_xdp`, which reads no packet.
    Testpmd,
    /// `p4shield switch run` with the program of TEE Time at P4.
    P4shield,
    /// The same with `--placement pipeline`: in a compartment.
    Pipeline,
}

/// The writes during a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tables {
    /// None.
    Idle,
    /// Entries are added to those of another switch, through which no packet passes: what sharing the
    /// machine's cores with a controller costs.
    Elsewhere,
    /// Entries are added.
    Written,
}

/// Options of a measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Rounds; the report has their median
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// Seconds for each throughput
    #[arg(long = "seconds", value_name = "SECONDS", value_parser = seconds, default_value = "2")]
    pub time: Duration,
    /// Round trips for each latency
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(100..))]
    pub round_trips: u32,
    /// Entries that are added each second
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    pub entries: u32,
}

/// Packets a second in one direction.
#[derive(Clone, Debug, Serialize)]
pub struct Throughput {
    /// The forwarder.
    pub mode: Forwarder,
    /// Bytes of a packet, without the frame check sequence.
    pub bytes: u32,
    /// Million packets a second that arrived.
    pub mpps: f64,
    /// Sent packets that did not arrive, percent.
    pub lost_percent: f64,
    /// `mpps` over that of testpmd.
    pub ratio: f64,
}

/// Request and response through the switch.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// The writes meanwhile.
    pub mode: Tables,
    /// Bytes of request and of response.
    pub message: u32,
    /// Entries that were added each second.
    pub entries_s: f64,
    /// Microseconds from request to response.
    pub micros: Percentiles,
    /// Requests without a response in time.
    pub lost: u64,
    /// Packets that the switch dropped.
    pub dropped: u64,
    /// The 99th percentile over that without writes.
    pub ratio: f64,
}

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// 64-byte packets in one direction.
    pub throughput: Vec<Throughput>,
    /// The reason why testpmd is not measured, nor any throughput, for which it sends.
    pub without_testpmd: Option<String>,
    /// Request and response.
    pub latency: Vec<Latency>,
}

/// Steps that [`run`] reports.
#[must_use]
pub fn steps(options: &Options) -> usize {
    usize::from(options.rounds) * 4
}

/// Measures; calls `progress` before each step.
///
/// # Errors
/// A forwarder does not start, or forwards nothing.
pub fn run(options: &Options, mut progress: impl FnMut(String)) -> anyhow::Result<Report> {
    let without_testpmd = Testpmd::usable().err();
    let (mut throughput, mut latency) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        if without_testpmd.is_none() {
            for forwarder in [Forwarder::Testpmd, Forwarder::P4shield, Forwarder::Pipeline] {
                progress(format!("round {round}, throughput of {}", name(forwarder)));
                throughput.push(throughput::measure(options, forwarder)?);
            }
        }
        progress(format!("round {round}, request and response"));
        latency.extend(writes::measure(options)?);
    }
    Ok(Report { throughput: over_rounds(throughput), without_testpmd, latency: over_rounds(latency) })
}

figure!(Throughput, Forwarder::Testpmd, |t| t.mpps, [bytes]);
figure!(Latency, Tables::Idle, |l| l.micros.p99, [message]);
