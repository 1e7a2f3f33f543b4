//! `p4shield-dev bench tenants`.

use p4shield_bench::tenants::{Options, Report, STEPS, run};
use p4shield_console::Exit;
use serde::Serialize;

use super::{Form, table};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    options: Options,
}

/// The compartments, as a row of the table.
#[derive(Serialize)]
struct Shown {
    compartments: usize,
    pss_mb: f64,
    most_pss_mb: f64,
    rss_mb: f64,
    idle_percent: f64,
    most_idle_percent: f64,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        p4shield_testbed::usable().map_err(anyhow::Error::msg)?;
        let measure = |step: &mut dyn FnMut(String)| run(&self.options, step);
        self.form.show(STEPS, measure, tables, |_| Vec::new())
    }
}

fn tables(r: &Report) -> anyhow::Result<()> {
    table::print("seconds of p4shield topology", &[r.seconds])?;
    let most = |rounds: &[f64]| rounds.last().copied().unwrap_or_default();
    let shown = Shown {
        compartments: r.compartments.pss_mb.rounds.len(),
        pss_mb: r.compartments.pss_mb.median,
        most_pss_mb: most(&r.compartments.pss_mb.rounds),
        rss_mb: r.compartments.rss_mb.median,
        idle_percent: r.compartments.idle_percent.median,
        most_idle_percent: most(&r.compartments.idle_percent.rounds),
    };
    table::print("a compartment: median and most of all; idle in percent of a core", &[shown])
}
