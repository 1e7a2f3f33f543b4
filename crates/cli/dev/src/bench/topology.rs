//! `p4shield-dev bench topology`.

use std::path::PathBuf;

use p4shield_bench::name;
use p4shield_bench::stats::Spread;
use p4shield_bench::topology::{Cell, Cores, Level, Options, Order, P4, Report, Scenario, run, steps};
use p4shield_console::{Exit, output};
use serde::Serialize;

use super::{Form, table};

pub(super) mod figures;
mod page;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    form: Form,
    /// Also write `topology.html` and `topology.json` into this folder: throughput, latency and resources
    #[arg(long, value_name = "FOLDER")]
    report: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// A cell, as a row of the table. `±%` is the standard deviation over the rounds.
#[derive(Serialize)]
struct Shown {
    scenario: Scenario,
    tenants: u16,
    bytes: u16,
    level: Level,
    p4: P4,
    rounds: usize,
    offered_pps: f64,
    pps: f64,
    #[serde(rename = "±%")]
    pps_percent: f64,
    tenant_pps: String,
    jain: f64,
    overload_pps: f64,
    overload_jain: f64,
    ratio: Option<f64>,
    #[serde(rename = "± %")]
    ratio_percent: f64,
    order: Order,
    /// Over the same without P4 programs.
    plain_ratio: Option<f64>,
    p50_us: f64,
    p99_us: f64,
    #[serde(rename = "±  %")]
    p99_percent: f64,
    lost_percent: f64,
    switches: usize,
    cores: usize,
    busy_cores: f64,
    core_pps: f64,
    core_ratio: Option<f64>,
    memory_mb: f64,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        p4shield_testbed::usable().map_err(anyhow::Error::msg)?;
        let measure = |step: &mut dyn FnMut(String)| {
            let report = run(&self.options, step)?;
            self.report.as_deref().map_or(Ok(()), |folder| page::write(folder, &report))?;
            Ok(report)
        };
        let exit = self.form.show(steps(&self.options), measure, print, |r| figures::all(&r.cells))?;
        if let Some(folder) = &self.report {
            output::note(format_args!("wrote {}", folder.join(page::NAME).display()));
        }
        Ok(exit)
    }
}

/// Returns the table's title.
fn heading(r: &Report) -> String {
    let cores = match r.cores {
        Cores::Shared => "on one shared core",
        Cores::Isolated => "with a core each",
    };
    format!(
        "tenants' switches {cores}; median and deviation (±%) over the rounds, ratios to the baseline in the \
         same round"
    )
}

fn print(r: &Report) -> anyhow::Result<()> {
    table::print(&heading(r), &r.cells.iter().map(shown).collect::<Vec<_>>())?;
    table::print("claims", &r.bars)
}

fn shown(c: &Cell) -> Shown {
    let tenant_pps = c.tenant_pps.iter().map(|pps| format!("{pps:.0}")).collect::<Vec<_>>().join("/");
    Shown {
        scenario: c.scenario,
        tenants: c.tenants,
        bytes: c.bytes,
        level: c.level,
        p4: c.p4,
        rounds: c.rounds,
        offered_pps: c.offered_pps,
        pps: c.pps.median,
        pps_percent: c.pps.variation_percent,
        tenant_pps,
        jain: c.jain,
        overload_pps: c.overload_pps.median,
        overload_jain: c.overload_jain,
        ratio: median(&c.ratio),
        ratio_percent: c.ratio.variation_percent,
        order: c.order,
        plain_ratio: median(&c.plain_ratio),
        p50_us: c.p50_us.median,
        p99_us: c.p99_us.median,
        p99_percent: c.p99_us.variation_percent,
        lost_percent: c.lost_percent,
        switches: c.switches,
        cores: c.cores,
        busy_cores: c.busy_cores.median,
        core_pps: c.core_pps.median,
        core_ratio: median(&c.core_ratio),
        memory_mb: c.memory_mb.median,
    }
}

/// Returns a median; `None` without a round.
pub(super) fn median(spread: &Spread) -> Option<f64> {
    (!spread.rounds.is_empty()).then_some(spread.median)
}

/// Returns a cell's name in a figure.
fn title(c: &Cell) -> String {
    let s = if c.tenants == 1 { "" } else { "s" };
    format!("{}, {} tenant{s}, {} B, {}", name(c.scenario), c.tenants, c.bytes, at(c))
}

/// Returns the name of a cell's level and programs in a figure.
fn at(c: &Cell) -> String {
    let with = if c.p4 == P4::With { ", with P4" } else { "" };
    format!("{}{with}", level(c.level))
}

/// Returns a level's name in a figure.
pub(super) fn level(level: Level) -> String {
    if [Level::Baseline, Level::BaselineDpdk, Level::BaselineP4].contains(&level) {
        name(level)
    } else {
        format!("level {}", name(level))
    }
}
