//! `p4shield-dev bench xsk`.

use anyhow::bail;
use p4shield_bench::xsk::{Options, Report, hysteresis, long, run, steps, usable};
use p4shield_console::{Exit, output};

use super::{Form, table};

mod charts;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    options: Options,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        if let Err(why) = usable() {
            bail!("this machine cannot run the switch: {why}");
        }
        let measure = |step: &mut dyn FnMut(String)| run(&self.options, step);
        self.form.show(steps(&self.options), measure, tables, charts::all)
    }
}

fn tables(r: &Report) -> anyhow::Result<()> {
    let [others, polling] = r.cores;
    output::line(format_args!("{}; it polls on core {polling}, everything else has core {others}", r.switch));
    r.hysteresis.as_ref().map_or(Ok(()), hysteresis_lines)?;
    if let Some(m) = &r.messages {
        table::print("request and response; ratios are of plain", &m.latency)?;
        table::print("one connection or flow", &m.throughput)?;
    }
    if let Some(d) = &r.delay {
        table::print("request and response, by the P4 VM's delay", &d.latency)?;
        table::print("one connection or flow, by the P4 VM's delay", &d.throughput)?;
    }
    r.long.as_ref().inspect(|l| long_lines(l));
    Ok(())
}

fn hysteresis_lines(t: &hysteresis::Timeline) -> anyhow::Result<()> {
    table::print("use of the VM's link in percent, and traffic to ports 8000 and 9000", &t.samples)?;
    let percent = [0, 1].map(|n| 100.0 * t.arrived[n] as f64 / t.sent[n].max(1) as f64);
    output::line(format_args!(
        "the program shed and readmitted the load {} times; \
         {:.1} % of the traffic to port 8000 arrived, {:.1} % to 9000",
        t.cycles, percent[0], percent[1]
    ));
    Ok(())
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
