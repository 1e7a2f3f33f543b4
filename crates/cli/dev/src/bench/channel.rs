//! `p4shield-dev bench channel`.

use p4shield_bench::channel::{Options, Row, run, steps};
use p4shield_console::Exit;

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
        let text = |rows: &Vec<Row>| table::print("round trips of a batch, and throughput", rows);
        let measure = |step: &mut dyn FnMut(String)| run(&self.options, step);
        self.form.show(steps(&self.options), measure, text, |rows| charts(rows))
    }
}

fn charts(rows: &[Row]) -> Vec<Chart> {
    let by_batch = |value: fn(&Row) -> f64| {
        let name = |r: &Row| format!("batch {}", r.batch);
        series(rows, name, |r| Some((f64::from(r.header_bytes), value(r))))
    };
    let (mpps, ns) = (["header bytes", "million packets/s"], ["header bytes", "ns"]);
    vec![
        ("channel-throughput.svg", by_size("Channel throughput", mpps, by_batch(|r| r.mpps))),
        (
            "channel-round-trip.svg",
            by_size("Channel round trip, median", ns, by_batch(|r| r.round_trip_ns.p50)),
        ),
    ]
}
