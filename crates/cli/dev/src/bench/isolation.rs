//! `p4shield-dev bench isolation`.

use std::path::PathBuf;

use p4shield_bench::isolation::{Options, Report, run, steps};
use p4shield_console::{Exit, output};

use super::{Form, table};

mod figures;
mod page;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    form: Form,
    /// Also write `isolation.html` and `isolation.json` into this folder: the levels side by side
    #[arg(long, value_name = "FOLDER")]
    report: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        p4shield_testbed::usable().map_err(anyhow::Error::msg)?;
        let measure = |step: &mut dyn FnMut(String)| {
            let report = run(&self.options, step)?;
            self.report.as_deref().map_or(Ok(()), |folder| page::write(folder, &report))?;
            Ok(report)
        };
        let exit = self.form.show(steps(&self.options), measure, tables, |r| figures::all(&r.rows))?;
        if let Some(folder) = &self.report {
            output::note(format_args!("wrote {}", folder.join(page::NAME).display()));
        }
        Ok(exit)
    }
}

fn tables(r: &Report) -> anyhow::Result<()> {
    table::print("the victim's traffic; ratios are of its rate without an adversary", &r.rows)?;
    table::print("claims, by the worst adversary", &r.bars)
}
