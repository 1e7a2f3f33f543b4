//! `p4shield-dev bench isolation`.

use p4shield_bench::isolation::{Options, Report, run, steps};
use p4shield_console::Exit;

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
        self.form.show(steps(&self.options), measure, tables, |_| Vec::new())
    }
}

fn tables(r: &Report) -> anyhow::Result<()> {
    table::print("the victim's traffic; ratios are of its rate without an attack", &r.rows)?;
    table::print("claims, by the worst attack", &r.bars)
}
