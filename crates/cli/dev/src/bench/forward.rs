//! `p4shield-dev bench forward`.

use p4shield_bench::forward::{Forwarding, Options, PEERS, Report, STEPS, run};
use p4shield_console::{Exit, output};
use p4shield_plot::Bars;
use serde::Serialize;

use super::{Form, table};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    options: Options,
}

/// A row of the table.
#[derive(Serialize)]
struct Row {
    program: &'static str,
    ports: &'static str,
    threads: usize,
    entries: u32,
    longest_path: usize,
    million_packets_s: f64,
    variation_percent: f64,
    least_ns: f64,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let measure = |step: &mut dyn FnMut(String)| run(&self.options, step);
        self.form.show(STEPS, measure, tables, |r| vec![("forward.svg", chart(r).svg())])
    }
}

fn row(f: &Forwarding) -> Row {
    Row {
        program: f.program,
        ports: f.ports,
        threads: f.threads,
        entries: f.entries,
        longest_path: f.longest_path,
        million_packets_s: f.million_packets_s.median,
        variation_percent: f.million_packets_s.variation_percent,
        least_ns: f.least_ns,
    }
}

fn tables(r: &Report) -> anyhow::Result<()> {
    let what = format!("a P4 switch on a core for each thread, {}-byte packets, two ports", r.packet_bytes);
    table::print(&what, &r.programs.iter().map(row).collect::<Vec<_>>())?;
    if let Some(why) = &r.without_dpdk {
        output::line(format_args!("(net_null ports are not measured: {why})"));
    }
    if r.peers.is_empty() {
        output::line(format_args!("(peers are measured if {PEERS} names the folder of their scripts)"));
    }
    r.peers.iter().for_each(output::line);
    Ok(())
}

fn chart(r: &Report) -> Bars {
    let bar = |p: &Forwarding| {
        let threads = if p.threads > 1 { format!(", {} threads", p.threads) } else { String::new() };
        (format!("{}, {}{threads}", p.program, p.ports), p.million_packets_s.median)
    };
    let bars = r.programs.iter().map(bar);
    Bars {
        title: "A P4 switch on a core for each thread".into(),
        unit: "million packets a second".into(),
        bars: bars.collect(),
    }
}
