//! `p4shield-dev bench defaults`.

use anyhow::bail;
use p4shield_bench::defaults::{Options, Report, run, steps, usable};
use p4shield_console::{Exit, output};

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
        if let Err(why) = usable() {
            bail!("this machine cannot run the measurement: {why}");
        }
        let measure = |step: &mut dyn FnMut(String)| run(&self.options, step);
        self.form.show(steps(&self.options), measure, tables, |_| Vec::new())
    }
}

fn tables(r: &Report) -> anyhow::Result<()> {
    output::line(format_args!("{}; it polls on core {}, nothing else is bound", r.switch, r.polling_core));
    table::print("one TCP stream, one UDP flow, pings; ratios are of plain", &r.rows)
}
