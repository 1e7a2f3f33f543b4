//! `p4shield-dev bench switch`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::ValueEnum;
use p4shield_bench::switch::{
    Latency, Load, Mode, Options, Parts, Protocol, Report, Stream, SwitchKind, Throughput, run, steps,
};
use p4shield_install::{PreloadedAttachment as Attached, Root, find_library};
use p4shield_plot::{Lines, Series};

use super::{Form, write_chart};
use p4shield_console::Exit;
use p4shield_console::output::{self, Progress};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    form: Form,
    /// The unmodified switch
    #[arg(long, value_enum, default_value_t = Switch::Ovs)]
    switch: Switch,
    /// Frame sizes of the throughput measurement
    #[arg(long, value_delimiter = ',', default_values_t = [64, 128, 512, 1500])]
    #[arg(value_parser = clap::value_parser!(u32).range(64..=1518))]
    bytes: Vec<u32>,
    /// Message sizes of the latency and stream measurements
    #[arg(long, value_delimiter = ',', default_values_t = [64, 512, 1400])]
    #[arg(value_parser = clap::value_parser!(u32).range(16..=1400))]
    message: Vec<u32>,
    /// What to measure
    #[arg(long, value_enum, value_delimiter = ',')]
    #[arg(default_values_t = [Part::Throughput, Part::Latency, Part::Streams])]
    part: Vec<Part>,
    /// Rounds; the report has their median
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Seconds for each throughput
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    seconds: u16,
    /// Round trips for each latency
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..))]
    round_trips: u32,
    /// TCP congestion control of client and server, such as cubic; default: this machine's
    #[arg(long, value_name = "ALGORITHM")]
    congestion: Option<String>,
    /// libp4shield_dpdk.so; default: the one beside this binary
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Switch {
    /// Open vSwitch over DPDK
    Ovs,
    /// dpdk-testpmd
    Testpmd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Packets generated in memory
    Throughput,
    /// Request and response through kernel interfaces
    Latency,
    /// TCP and UDP through kernel interfaces
    Streams,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let kind = match self.switch {
            Switch::Ovs => SwitchKind::Ovs,
            Switch::Testpmd => SwitchKind::Testpmd,
        };
        if let Err(why) = kind.usable() {
            bail!("this machine cannot run the switch: {why}");
        }
        let options = Options {
            binary: p4shield_testbed::process::product()?,
            library: self.library.unwrap_or_else(|| find_library(&Root::new("/"), Attached::Dpdk)),
            switch: kind,
            modes: Mode::ALL.to_vec(),
            sizes: self.bytes,
            messages: self.message,
            rounds: self.rounds.into(),
            time: Duration::from_secs(self.seconds.into()),
            round_trips: self.round_trips as usize,
            congestion: self.congestion,
        };
        let has = |part| self.part.contains(&part);
        let parts = Parts {
            throughput: has(Part::Throughput),
            latency: has(Part::Latency),
            streams: has(Part::Streams),
        };
        let progress = Progress::new(steps(&options, parts));
        let report = run(&options, parts, |what| progress.step(what))?;
        drop(progress);
        if self.form.json {
            output::json(&report)?;
        } else {
            table(&report);
        }
        if let Some(folder) = self.form.svg {
            for (name, chart) in charts(&report) {
                write_chart(&folder, name, &chart.svg()?)?;
            }
        }
        Ok(Exit::Done)
    }
}

fn table(r: &Report) {
    let [polling, p4vm] = r.cores;
    output::line(format_args!("{}; it polls on core {polling}, the P4 VM has core {p4vm}", r.switch));
    if !r.throughput.is_empty() {
        output::line(format_args!(
            "\n{:>6} {:<10} {:>12} {:>10} {:>16}",
            "bytes", "", "Mpackets/s", "of plain", "cycles/packet"
        ));
    }
    for t in &r.throughput {
        output::line(format_args!(
            "{:>6} {:<10} {:>12.3} {:>10.3} {:>16.0}",
            t.bytes,
            t.mode.name(),
            t.mpps,
            t.ratio,
            t.cycles
        ));
    }
    if !r.latency.is_empty() {
        output::line(format_args!(
            "\n{:<5} {:>8} {:<5} {:<10} {:>9} {:>9} {:>9} {:>10}",
            "", "message", "load", "", "p50 us", "p90 us", "p99 us", "of plain"
        ));
    }
    for l in &r.latency {
        output::line(format_args!(
            "{:<5} {:>8} {:<5} {:<10} {:>9.1} {:>9.1} {:>9.1} {:>10.3}",
            l.protocol.name(),
            l.message,
            l.load.name(),
            l.mode.name(),
            l.micros.p50,
            l.micros.p90,
            l.micros.p99,
            l.ratio
        ));
    }
    if !r.streams.is_empty() {
        output::line(format_args!(
            "\n{:<5} {:>8} {:<10} {:>10} {:>10}",
            "", "message", "", "Mbit/s", "of plain"
        ));
    }
    for s in &r.streams {
        output::line(format_args!(
            "{:<5} {:>8} {:<10} {:>10.1} {:>10.3}",
            s.protocol.name(),
            s.message,
            s.mode.name(),
            s.mbps,
            s.ratio
        ));
    }
}

fn by_mode<T>(all: &[T], mode: impl Fn(&T) -> Mode, point: impl Fn(&T) -> (f64, f64)) -> Vec<Series> {
    let line = |m: Mode| Series {
        name: m.name().into(),
        points: all.iter().filter(|t| mode(t) == m).map(&point).collect(),
    };
    Mode::ALL.into_iter().map(line).filter(|s| !s.points.is_empty()).collect()
}

fn chart(title: &str, x: &str, y: &str, series: Vec<Series>) -> Option<Lines> {
    let lines =
        Lines { title: title.into(), x: x.into(), y: y.into(), series, bands: Vec::new(), log_x: true };
    (!lines.series.is_empty()).then_some(lines)
}

fn charts(r: &Report) -> Vec<(&'static str, Lines)> {
    let packets = by_mode(&r.throughput, |t: &Throughput| t.mode, |t| (f64::from(t.bytes), t.mpps));
    let latency = |protocol| {
        let some = |l: &&Latency| l.protocol == protocol && l.load == Load::Idle;
        let all: Vec<Latency> = r.latency.iter().filter(some).cloned().collect();
        by_mode(&all, |l| l.mode, |l| (f64::from(l.message), l.micros.p50))
    };
    let stream = |protocol| {
        let all: Vec<Stream> = r.streams.iter().filter(|s| s.protocol == protocol).cloned().collect();
        by_mode(&all, |s| s.mode, |s| (f64::from(s.message), s.mbps))
    };
    let (x, us, mbps) = ("bytes of a message", "microseconds", "million bits/s");
    let charts = [
        (
            "switch-throughput.svg",
            chart("Packets through the switch", "bytes of a frame", "million packets/s", packets),
        ),
        ("switch-latency-udp.svg", chart("UDP request and response, median", x, us, latency(Protocol::Udp))),
        ("switch-latency-tcp.svg", chart("TCP request and response, median", x, us, latency(Protocol::Tcp))),
        ("switch-stream-udp.svg", chart("One UDP flow", x, mbps, stream(Protocol::Udp))),
        ("switch-stream-tcp.svg", chart("One TCP connection", x, mbps, stream(Protocol::Tcp))),
    ];
    charts.into_iter().filter_map(|(name, c)| Some((name, c?))).collect()
}
