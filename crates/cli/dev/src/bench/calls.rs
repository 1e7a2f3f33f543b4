//! `p4shield-dev bench calls`.

use p4shield_bench::calls::{Options, Report, run};
use p4shield_bench::stats::Spread;
use p4shield_console::{Exit, output};
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
    function: &'static str,
    million_packets_s: f64,
    variation_percent: f64,
    of_inline: f64,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let measure = |step: &mut dyn FnMut(String)| run(&self.options, step);
        self.form.show(self.options.rounds as usize, measure, print, |_| Vec::new())
    }
}

fn print(r: &Report) -> anyhow::Result<()> {
    let row = |function, speed: &Spread, of_inline| Row {
        function,
        million_packets_s: speed.median,
        variation_percent: speed.variation_percent,
        of_inline,
    };
    let rows = [
        row("inline", &r.inline, 1.0),
        row("echo: the packet thread answers", &r.echo, r.echo_ratio.median),
        row("in a compartment", &r.apart, r.ratio.median),
    ];
    let what = format!("a P4 switch on one core calls a function for each packet, {} bytes", r.packet_bytes);
    table::print(&what, &rows)?;
    output::line(format_args!(
        "a packet takes {:.0} ns more for the switch's own part of a call, and {:.0} ns more for channel and \
         compartment",
        r.costs.switch_ns, r.costs.compartment_ns
    ));
    Ok(())
}
