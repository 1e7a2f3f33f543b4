//! `p4shield-dev bench switch`.

use anyhow::bail;
use p4shield_bench::name;
use p4shield_bench::switch::{Load, Options, Protocol, Report, run, steps};
use p4shield_console::{Exit, output};

use super::{Chart, Form, by_size, series, table};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    options: Options,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        if let Err(why) = self.options.switch.usable() {
            bail!("this machine cannot run the switch: {why}");
        }
        let measure = |step: &mut dyn FnMut(String)| run(&self.options, step);
        self.form.show(steps(&self.options), measure, tables, charts)
    }
}

fn tables(r: &Report) -> anyhow::Result<()> {
    let [polling, p4vm] = r.cores;
    output::line(format_args!("{}; it polls on core {polling}, the P4 VM has core {p4vm}", r.switch));
    table::print("packets generated in memory; ratios are of plain", &r.throughput)?;
    table::print("request and response", &r.latency)?;
    table::print("one connection or flow", &r.streams)
}

fn charts(r: &Report) -> Vec<Chart> {
    let latency = |protocol: Protocol| {
        let some = r.latency.iter().filter(move |l| l.protocol == protocol && l.load == Load::Idle);
        series(some, |l| name(l.mode), |l| Some((f64::from(l.message), l.micros.p50)))
    };
    let stream = |protocol: Protocol| {
        let some = r.streams.iter().filter(move |s| s.protocol == protocol);
        series(some, |s| name(s.mode), |s| Some((f64::from(s.message), s.mbps)))
    };
    let packets = series(&r.throughput, |t| name(t.mode), |t| Some((f64::from(t.bytes), t.mpps)));
    let frames = ["bytes of a frame", "million packets/s"];
    let (us, mbps) = (["bytes of a message", "microseconds"], ["bytes of a message", "million bits/s"]);
    let all = [
        ("switch-throughput.svg", "Packets through the switch", frames, packets),
        ("switch-latency-udp.svg", "UDP request and response, median", us, latency(Protocol::Udp)),
        ("switch-latency-tcp.svg", "TCP request and response, median", us, latency(Protocol::Tcp)),
        ("switch-stream-udp.svg", "One UDP flow", mbps, stream(Protocol::Udp)),
        ("switch-stream-tcp.svg", "One TCP connection", mbps, stream(Protocol::Tcp)),
    ];
    let measured = all.into_iter().filter(|(.., series)| !series.is_empty());
    measured.map(|(file, title, axes, series)| (file, by_size(title, axes, series))).collect()
}
