//! `p4shield-dev bench veth`.

use p4shield_bench::name;
use p4shield_bench::veth::{Options, Report, run, steps};
use p4shield_console::{Exit, output};
use p4shield_plot::Bars;

use super::{Form, table};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    options: Options,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        p4shield_testbed::usable().map_err(anyhow::Error::msg)?;
        let measure = |step: &mut dyn FnMut(String)| run(&self.options, step);
        self.form.show(steps(&self.options), measure, tables, |r| vec![("veth.svg", chart(r).svg())])
    }
}

fn tables(r: &Report) -> anyhow::Result<()> {
    match &r.without_testpmd {
        Some(why) => output::line(format_args!("(throughput is not measured: {why})")),
        None => table::print("one direction, 64-byte packets; ratios are of testpmd", &r.throughput)?,
    }
    table::print("request and response while entries are written; ratios of p99", &r.latency)
}

fn chart(r: &Report) -> Bars {
    let bars = r.throughput.iter().map(|t| (name(t.mode), t.mpps));
    Bars {
        title: "AF_XDP ports on veth, one direction".into(),
        unit: "million packets a second".into(),
        bars: bars.collect(),
    }
}
