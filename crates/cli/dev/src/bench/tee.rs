//! `p4shield-dev bench tee`.

use std::path::PathBuf;

use p4shield_bench::tee::{Options, Report, run, steps};
use p4shield_console::{Exit, output};

use self::tables::{LATENCIES, bar, compared, costs, latencies, maximum, paper, rates, reasons, title_of};
use super::{Form, table};

mod figures;
mod page;
mod tables;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    form: Form,
    /// Also write `tee.html` and `tee.json` into this folder: the paper's figures 3 and 4 with this machine
    #[arg(long, value_name = "FOLDER")]
    report: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let measure = |step: &mut dyn FnMut(String)| {
            let report = run(&self.options, step)?;
            self.report.as_deref().map_or(Ok(()), |folder| page::write(folder, &report))?;
            Ok(report)
        };
        let exit = self.form.show(steps(&self.options), measure, print, figures::all)?;
        if let Some(folder) = &self.report {
            output::note(format_args!("wrote {}", folder.join(page::NAME).display()));
        }
        Ok(exit)
    }
}

fn print(r: &Report) -> anyhow::Result<()> {
    output::line(format_args!(
        "{}; times in microseconds, rates in million packets a second; a read of the clock takes {:.4} µs",
        r.processor, r.clock_read
    ));
    let title = "the line of a batch, with intervals of 95 %: input and output (io), processing (p)";
    table::print(title, &r.rows.iter().map(costs).collect::<Vec<_>>())?;
    let title = "the maximum; the time of a batch in the switch there (p50, p90, p99)";
    table::print(title, &r.rows.iter().map(maximum).collect::<Vec<_>>())?;
    for row in &r.rows {
        let lines = reasons(row);
        if !lines.is_empty() {
            output::line(format_args!("\n{}", lines.join("\n")));
        }
    }
    table::print("veth, at rising rates of the sender", &rates(r))?;
    table::print(LATENCIES, &latencies(r))?;
    for missing in &r.missing {
        output::line(format_args!("({} is not measured: {})", title_of(&missing.row), missing.reason));
    }
    table::print("the paper: T4P4S, 1500 bytes", &r.paper.iter().map(paper).collect::<Vec<_>>())?;
    output::line(format_args!("\n{}", bar(r)));
    compared(r).iter().for_each(output::line);
    Ok(())
}
