//! `p4shield-dev bench workloads`.

use std::path::PathBuf;

use p4shield_bench::name;
use p4shield_bench::topology::{Level, Order, Scenario};
use p4shield_bench::workloads::{Cell, Options, Report, Workload, run, steps};
use p4shield_console::{Exit, output};
use serde::Serialize;

use super::topology::{level, median};
use super::{Form, table};

mod costs;
mod figures;
mod page;
mod paper;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    form: Form,
    /// Also write `workloads.html` and `workloads.json` into this folder: the MTS paper's figure 6, and its
    /// values beside these
    #[arg(long, value_name = "FOLDER")]
    report: Option<PathBuf>,
    /// With --report: the `topology.json` of a report of `bench topology`, for the paper's figure 5
    #[arg(long, value_name = "FILE", requires = "report")]
    topology: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// A cell, as a row of the table. `±%` is the standard deviation over the rounds.
#[derive(Serialize)]
struct Shown {
    workload: Workload,
    scenario: Scenario,
    tenants: u16,
    level: Level,
    rounds: usize,
    throughput: f64,
    unit: String,
    #[serde(rename = "±%")]
    throughput_percent: f64,
    by_tenant: String,
    jain: f64,
    ratio: Option<f64>,
    #[serde(rename = "± %")]
    ratio_percent: f64,
    order: Order,
    p50_us: Option<f64>,
    p90_us: Option<f64>,
    p99_us: Option<f64>,
    #[serde(rename = "±  %")]
    p99_percent: f64,
    tenant_p99_us: String,
    failed: u64,
    switches: usize,
    cores: usize,
    busy_cores: f64,
    core_throughput: f64,
    core_ratio: Option<f64>,
    memory_mb: f64,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        p4shield_testbed::usable().map_err(anyhow::Error::msg)?;
        let packets = self.topology.as_deref().map_or(Ok(Vec::new()), page::packets)?;
        let measure = |step: &mut dyn FnMut(String)| {
            let report = run(&self.options, step)?;
            self.report.as_deref().map_or(Ok(()), |folder| page::write(folder, &report, &packets))?;
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
fn about(r: &Report) -> String {
    format!(
        "programs behind tenants' switches on one shared core, TCP with {}; median and deviation (±%) over \
         the rounds, ratios to the baseline in the same round, response times of the slowest tenant",
        r.congestion,
    )
}

fn print(r: &Report) -> anyhow::Result<()> {
    table::print(&about(r), &r.cells.iter().map(shown).collect::<Vec<_>>())
}

fn shown(c: &Cell) -> Shown {
    let list = |all: &[f64]| all.iter().map(|one| format!("{one:.0}")).collect::<Vec<_>>().join("/");
    Shown {
        workload: c.workload,
        scenario: c.scenario,
        tenants: c.tenants,
        level: c.level,
        rounds: c.rounds,
        throughput: c.throughput.median,
        unit: c.unit.clone(),
        throughput_percent: c.throughput.variation_percent,
        by_tenant: list(&c.tenant_throughput),
        jain: c.jain,
        ratio: median(&c.ratio),
        ratio_percent: c.ratio.variation_percent,
        order: c.order,
        p50_us: median(&c.p50_us),
        p90_us: median(&c.p90_us),
        p99_us: median(&c.p99_us),
        p99_percent: c.p99_us.variation_percent,
        tenant_p99_us: list(&c.tenant_p99_us),
        failed: c.failed,
        switches: c.switches,
        cores: c.cores,
        busy_cores: c.busy_cores.median,
        core_throughput: c.core_throughput.median,
        core_ratio: median(&c.core_ratio),
        memory_mb: c.memory_mb.median,
    }
}

/// Returns a cell's name in a figure of its workload.
fn title(c: &Cell) -> String {
    let s = if c.tenants == 1 { "" } else { "s" };
    format!("{}, {} tenant{s}, {}", name(c.scenario), c.tenants, level(c.level))
}
