//! `p4shield-dev bench p4vm`.

use p4shield_bench::p4vm::{Options, Row, run, steps};
use p4shield_console::{Exit, output};
use serde::Serialize;

use super::{Form, table};
use crate::image;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    options: Options,
}

/// A row of the table.
#[derive(Serialize)]
struct Shown {
    compartment: String,
    mapping: String,
    ready_ms: f64,
    restart_ms: f64,
    round_trip_us: f64,
    round_trip_p99_us: f64,
    wake_up_us: f64,
    idle_percent: f64,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let image = image::of_machines().inspect_err(|why| output::note(why)).ok();
        let steps = steps(&self.options, image.is_some());
        self.form.show(steps, |step| run(&self.options, image, step), |rows| print(rows), |_| Vec::new())
    }
}

fn print(rows: &[Row]) -> anyhow::Result<()> {
    let shown = rows.iter().map(|row| Shown {
        compartment: row.compartment.clone(),
        mapping: row.mapping.clone().unwrap_or_else(|| "-".to_owned()),
        ready_ms: row.ready_ms.median,
        restart_ms: row.restart_ms.median,
        round_trip_us: row.round_trip_us.p50,
        round_trip_p99_us: row.round_trip_us.p99,
        wake_up_us: row.wake_up_us.p50,
        idle_percent: row.idle_percent.median,
    });
    table::print("a P4 VM with tcp_guard.p4; tcg: emulated", &shown.collect::<Vec<_>>())
}
