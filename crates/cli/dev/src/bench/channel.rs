//! `p4shield-dev bench channel`.

use std::time::Duration;

use p4shield_bench::channel::{Options, Row};
use p4shield_plot::{Lines, Series};

use super::{Form, write_chart};
use p4shield_console::Exit;
use p4shield_console::output::{self, Progress};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    form: Form,
    /// Batch sizes
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=32))]
    batch: Option<Vec<u8>>,
    /// Header sizes in bytes
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=9728))]
    header_bytes: Option<Vec<u32>>,
    /// Milliseconds for each throughput
    #[arg(long, default_value_t = 500)]
    time_ms: u64,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let mut options = Options { time: Duration::from_millis(self.time_ms.max(1)), ..Options::default() };
        if let Some(batches) = self.batch {
            options.batches = batches.into_iter().map(usize::from).collect();
        }
        if let Some(headers) = self.header_bytes {
            options.headers = headers;
        }
        let progress = Progress::new(options.batches.len() * options.headers.len());
        let rows = p4shield_bench::channel::run(&options, |batch, header| {
            progress.step(format!("batch {batch}, {header} header bytes"));
        })?;
        drop(progress);
        if self.form.json {
            output::json(&rows)?;
        } else {
            table(&rows);
        }
        if let Some(folder) = self.form.svg {
            write_chart(&folder, "channel-throughput.svg", &throughput(&rows).svg()?)?;
            write_chart(&folder, "channel-round-trip.svg", &round_trip(&rows).svg()?)?;
        }
        Ok(Exit::Done)
    }
}

fn table(rows: &[Row]) {
    output::line(format_args!(
        "{:>12} {:>6} {:>26} {:>26} {:>14}",
        "header bytes", "batch", "round trip p50 / p99 (ns)", "per packet p50 (ns)", "Mpackets/s"
    ));
    for r in rows {
        let trip = format!("{:.0} / {:.0}", r.round_trip_ns.p50, r.round_trip_ns.p99);
        output::line(format_args!(
            "{:>12} {:>6} {trip:>26} {:>26.1} {:>14.2}",
            r.header_bytes,
            r.batch,
            r.round_trip_ns.p50 / r.batch as f64,
            r.mpps
        ));
    }
}

fn by_batch(rows: &[Row], title: &str, y: &str, value: impl Fn(&Row) -> f64) -> Lines {
    let mut batches: Vec<usize> = rows.iter().map(|r| r.batch).collect();
    batches.sort_unstable();
    batches.dedup();
    let line = |batch| Series {
        name: format!("batch {batch}"),
        points: rows
            .iter()
            .filter(|r| r.batch == batch)
            .map(|r| (f64::from(r.header_bytes), value(r)))
            .collect(),
    };
    Lines {
        title: title.into(),
        x: "header bytes".into(),
        y: y.into(),
        series: batches.into_iter().map(line).collect(),
        bands: Vec::new(),
        log_x: true,
    }
}

fn throughput(rows: &[Row]) -> Lines {
    by_batch(rows, "Channel throughput", "million packets/s", |r| r.mpps)
}

fn round_trip(rows: &[Row]) -> Lines {
    by_batch(rows, "Channel round trip, median", "ns", |r| r.round_trip_ns.p50)
}
