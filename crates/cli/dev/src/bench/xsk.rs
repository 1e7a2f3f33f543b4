//! `p4shield-dev bench xsk`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::ValueEnum;
use p4shield_bench::xsk::{Options, Parts, delay, hysteresis, long, messages, run, steps, usable};
use p4shield_install::{PreloadedAttachment as Attached, Root, find_library};

use super::Form;
use p4shield_console::Exit;
use p4shield_console::output::{self, Progress};

mod charts;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    form: Form,
    /// What to measure
    #[arg(long, value_enum, value_delimiter = ',')]
    #[arg(default_values_t = [Part::Hysteresis, Part::Messages, Part::Delay])]
    part: Vec<Part>,
    /// Message sizes of the latency and throughput measurements
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64, 512, 1400, 8192, 65_536])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_536))]
    message: Vec<u32>,
    /// Rounds; the report has their median
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Milliseconds for each throughput
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..))]
    time_ms: u32,
    /// Round trips for each latency
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(10..))]
    round_trips: u32,
    /// TCP congestion control of client and server, such as cubic; default: this machine's
    #[arg(long, value_name = "ALGORITHM")]
    congestion: Option<String>,
    /// Microseconds that the P4 VM adds to each packet, in the part `delay`
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1, 2, 5, 10, 20, 50, 100])]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=10_000))]
    delay_us: Vec<u32>,
    /// Seconds of the part `hysteresis`, and of the part `long`
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Link speed that the VM's agent publishes in the part `hysteresis`, Mbit/s
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    link_mbps: u64,
    /// Connections at a time in the part `long`
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Seconds between two kills of the P4 VM in the part `long`
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    restart_every: u32,
    /// libp4shield_xsk.so; default: the one beside this binary
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A program sheds the load that fills the VM's link, then readmits it
    Hysteresis,
    /// Latency and throughput by message size: plain, with rings replaced, with a P4 VM
    Messages,
    /// Latency and throughput by the P4 VM's processing time
    Delay,
    /// Many connections, random packet loss, repeated kills of the P4 VM
    Long,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        if let Err(why) = usable() {
            bail!("this machine cannot run the switch: {why}");
        }
        let has = |part| self.part.contains(&part);
        let parts = Parts {
            hysteresis: has(Part::Hysteresis),
            messages: has(Part::Messages),
            delay: has(Part::Delay),
            long: has(Part::Long),
        };
        let options = self.options()?;
        let progress = Progress::new(steps(&options, parts));
        let report = run(&options, parts, |what| progress.step(what))?;
        drop(progress);
        if let Some(folder) = self.form.svg {
            for (name, chart) in charts::all(&report) {
                super::write_chart(&folder, name, &chart.svg()?)?;
            }
        }
        if self.form.json {
            output::json(&report)?;
            return Ok(Exit::Done);
        }
        let [others, polling] = report.cores;
        output::line(format_args!(
            "{}; it polls on core {polling}, everything else has core {others}",
            report.switch
        ));
        report.hysteresis.as_ref().inspect(|t| hysteresis_lines(t));
        report.messages.as_ref().inspect(|m| message_tables(m));
        report.delay.as_ref().inspect(|d| delay_tables(d));
        report.long.as_ref().inspect(|l| long_lines(l));
        Ok(Exit::Done)
    }

    fn options(&self) -> anyhow::Result<Options> {
        let library = self.library.clone().unwrap_or_else(|| find_library(&Root::new("/"), Attached::Xsk));
        let seconds = Duration::from_secs(self.seconds.into());
        Ok(Options {
            binary: p4shield_testbed::process::product()?,
            library,
            messages: self.message.clone(),
            rounds: self.rounds.into(),
            time: Duration::from_millis(self.time_ms.into()),
            round_trips: self.round_trips as usize,
            congestion: self.congestion.clone(),
            delays: self.delay_us.iter().map(|us| Duration::from_micros((*us).into())).collect(),
            hysteresis: hysteresis::Scenario {
                time: seconds,
                link_mbps: self.link_mbps,
                ..hysteresis::Scenario::default()
            },
            long: long::Scenario {
                time: seconds,
                connections: self.connections,
                restart_every: Duration::from_secs(self.restart_every.into()),
            },
        })
    }
}

fn hysteresis_lines(t: &hysteresis::Timeline) {
    output::line(format_args!(
        "\n{:>6} {:>12} {:>12} {:>12}",
        "s", "link used %", "8000 Mbit/s", "9000 Mbit/s"
    ));
    for s in &t.samples {
        let used = s.utilisation.map_or_else(|| "unknown".to_owned(), |u| format!("{u:.1}"));
        let shed = if s.shed { "  shed" } else { "" };
        let [kept, load] = s.mbps;
        output::line(format_args!("{:>6.1} {used:>12} {kept:>12.1} {load:>12.1}{shed}", s.at));
    }
    let percent = [0, 1].map(|n| 100.0 * t.arrived[n] as f64 / t.sent[n].max(1) as f64);
    output::line(format_args!(
        "the program shed and readmitted the load {} times; \
         {:.1} % of the traffic to port 8000 arrived, {:.1} % to 9000",
        t.cycles, percent[0], percent[1]
    ));
}

fn message_tables(m: &messages::Report) {
    output::line(format_args!(
        "\n{:<4} {:>8} {:<6} {:>9} {:>9} {:>9} {:>9}",
        "", "message", "", "p50 us", "p90 us", "p99 us", "of plain"
    ));
    for l in &m.latency {
        output::line(format_args!(
            "{:<4} {:>8} {:<6} {:>9.1} {:>9.1} {:>9.1} {:>9.3}",
            l.protocol.name(),
            l.message,
            l.mode.name(),
            l.micros.p50,
            l.micros.p90,
            l.micros.p99,
            l.ratio
        ));
    }
    output::line(format_args!(
        "\n{:<4} {:>8} {:<6} {:>10} {:>12} {:>9}",
        "", "message", "", "Mbit/s", "variation %", "of plain"
    ));
    for t in &m.throughput {
        output::line(format_args!(
            "{:<4} {:>8} {:<6} {:>10.1} {:>12.1} {:>9.3}",
            t.protocol.name(),
            t.message,
            t.mode.name(),
            t.mbps.median,
            t.mbps.variation_percent,
            t.ratio
        ));
    }
}

fn delay_tables(d: &delay::Report) {
    let name = |delay: Option<f64>| delay.map_or_else(|| "plain".to_owned(), |us| format!("{us:.0}"));
    output::line(format_args!(
        "\n{:>8} {:<4} {:>9} {:>9} {:>9}",
        "delay us", "", "p50 us", "p90 us", "p99 us"
    ));
    for l in &d.latency {
        let (delay, m) = (name(l.delay_us), l.micros);
        output::line(format_args!(
            "{delay:>8} {:<4} {:>9.1} {:>9.1} {:>9.1}",
            l.protocol.name(),
            m.p50,
            m.p90,
            m.p99
        ));
    }
    output::line(format_args!("\n{:>8} {:<4} {:>8} {:>10}", "delay us", "", "message", "Mbit/s"));
    for t in &d.throughput {
        let delay = name(t.delay_us);
        output::line(format_args!(
            "{delay:>8} {:<4} {:>8} {:>10.1}",
            t.protocol.name(),
            t.message,
            t.mbps.median
        ));
    }
}

fn long_lines(l: &long::Report) {
    output::line(format_args!(
        "\n{:.0} s, {} connections, {} messages, {:.1} MB; {} came back otherwise, {} connections failed",
        l.seconds,
        l.connections,
        l.messages,
        l.bytes as f64 / 1e6,
        l.corrupted,
        l.failures.len()
    ));
    for failure in &l.failures {
        output::line(format_args!("  {failure}"));
    }
    output::line(format_args!(
        "the P4 VM was killed {} times and restarted within {:.2} s; TCP retransmitted {} segments, \
         {} times by timeout; longest pause {:.2} s",
        l.restarts, l.longest_outage_s, l.retransmitted, l.timeouts, l.longest_pause_s
    ));
    for s in &l.sockets {
        let frames: Vec<String> =
            s.frames.iter().filter(|f| *f.1 > 0).map(|(who, n)| format!("{n} {who}")).collect();
        output::line(format_args!(
            "a socket's {} frames: {}; {} steps refused",
            s.total,
            frames.join(", "),
            s.refused.map_or_else(|| "?".to_owned(), |n| n.to_string())
        ));
    }
    output::line(format_args!("the switch {}", if l.aborted { "ABORTED" } else { "runs" }));
}
