//! `p4shield-dev bench`.

mod calls;
mod channel;
mod defaults;
mod engine;
mod forward;
mod isolation;
mod mediator;
mod p4vm;
mod page;
mod switch;
mod table;
mod tee;
mod tenants;
mod topology;
mod veth;
mod workloads;
mod xsk;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use p4shield_console::output::{self, Progress};
use p4shield_console::{Exit, signals};
use p4shield_plot::{Lines, Series};
use p4shield_testbed::leftover;
use serde::Serialize;

/// Measure P4 Shield on this machine
///
/// Figures depend on the machine and its other load; compare ratios within one run.
/// docs/performance.md has reference figures.
///
/// Examples:
///
///   p4shield-dev bench defaults --busy 0,2   what a user gets
///   p4shield-dev bench engine
///   p4shield-dev bench switch --svg charts    Open vSwitch plain, attached, inline, with a P4 VM
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// What a user gets with defaults on a busy machine: iperf3 and ping, plain and with P4 Shield
    Defaults(defaults::Args),
    /// Nanoseconds per packet, for whole programs and by phase
    Engine(engine::Args),
    /// Packets a second of a P4 switch on one core, by program; beside peers
    Forward(forward::Args),
    /// Packets a second of a P4 switch whose program calls a function: inline, and in a compartment
    Calls(calls::Args),
    /// Round trip and throughput between mediator and P4 VM, by batch and header size
    Channel(channel::Args),
    /// Victim's rate and probes while another tenant's switch is attacked: one switch for both, and one each
    Isolation(isolation::Args),
    /// Nanoseconds per packet in the switch's thread, by traffic, burst and header size
    Mediator(mediator::Args),
    /// Start, restart, round trip and idle cost of a P4 VM, by what isolates it: a process, a virtual machine
    P4vm(p4vm::Args),
    /// Throughput, latency and streams of an unmodified switch: plain, with the library, inline, with a P4 VM
    Switch(switch::Args),
    /// Costs of a batch of packets in a P4 switch, as the paper TEE Time at P4 models them
    Tee(tee::Args),
    /// Start, memory and idle cost of tenants' switches at level 2
    Tenants(tenants::Args),
    /// Throughput, latency, cores and memory of tenants' switches: baseline and levels side by side
    Topology(topology::Args),
    /// A P4 switch with AF_XDP ports: beside testpmd's, and while entries are written
    Veth(veth::Args),
    /// The MTS paper's programs behind tenants' switches: baseline and levels side by side
    Workloads(workloads::Args),
    /// TransP4's experiments with an unmodified Open vSwitch over AF_XDP, and an endurance run
    Xsk(xsk::Args),
}

/// Output of a measurement.
#[derive(Debug, clap::Args)]
struct Form {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Also write SVG charts into this folder
    #[arg(long, value_name = "FOLDER")]
    svg: Option<PathBuf>,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let end = signals::CleanEnd::with(abandon)?;
        end.unless_begun(match self.benchmark {
            Benchmark::Defaults(a) => a.run(),
            Benchmark::Engine(a) => a.run(),
            Benchmark::Forward(a) => a.run(),
            Benchmark::Calls(a) => a.run(),
            Benchmark::Channel(a) => a.run(),
            Benchmark::Isolation(a) => a.run(),
            Benchmark::Mediator(a) => a.run(),
            Benchmark::P4vm(a) => a.run(),
            Benchmark::Switch(a) => a.run(),
            Benchmark::Tee(a) => a.run(),
            Benchmark::Tenants(a) => a.run(),
            Benchmark::Topology(a) => a.run(),
            Benchmark::Veth(a) => a.run(),
            Benchmark::Workloads(a) => a.run(),
            Benchmark::Xsk(a) => a.run(),
        })
    }
}

/// Removes what a benchmark made, before its process ends: switches first, since they need their namespace.
fn abandon() {
    p4shield_bench::delete_switches();
    leftover::abandon();
}

/// A file's name and its SVG.
type Chart = (&'static str, Result<String, p4shield_plot::Error>);

impl Form {
    /// Measures behind a progress bar, then shows the report in this form.
    fn show<R: Serialize>(
        &self,
        steps: usize,
        measure: impl FnOnce(&mut dyn FnMut(String)) -> anyhow::Result<R>,
        text: impl FnOnce(&R) -> anyhow::Result<()>,
        charts: impl FnOnce(&R) -> Vec<Chart>,
    ) -> anyhow::Result<Exit> {
        let progress = Progress::new(steps);
        let report = measure(&mut |what| progress.step(what))?;
        drop(progress);
        if self.json {
            output::json(&report)?;
        } else {
            text(&report)?;
        }
        if let Some(folder) = &self.svg {
            for (name, svg) in charts(&report) {
                write_chart(folder, name, &svg?)?;
            }
        }
        Ok(Exit::Done)
    }
}

fn write_chart(folder: &Path, name: &str, svg: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, svg))
        .with_context(|| format!("cannot write {}", path.display()))?;
    output::note(format_args!("wrote {}", path.display()));
    Ok(())
}

/// Returns a line for each name, in order of first appearance, through the points of the rows with this name.
fn series<'r, R: 'r>(
    rows: impl IntoIterator<Item = &'r R>,
    name: impl Fn(&R) -> String,
    point: impl Fn(&R) -> Option<(f64, f64)>,
) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for row in rows {
        let (name, point) = (name(row), point(row));
        match all.iter_mut().find(|s| s.name == name) {
            Some(line) => line.points.extend(point),
            None => all.push(Series { name, points: point.into_iter().collect() }),
        }
    }
    all
}

/// Draws lines over message or frame sizes.
fn by_size(title: &str, [x, y]: [&str; 2], series: Vec<Series>) -> Result<String, p4shield_plot::Error> {
    let (title, x, y) = (title.into(), x.into(), y.into());
    Lines { title, x, y, series, log_x: true, ..Lines::default() }.svg()
}
