//! `p4shield-dev bench engine`.

use p4shield_bench::engine::{Options, Report, STEPS, run};
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

/// Nanoseconds of one program execution with in-VM information in the P4 Shield paper (figure 10).
const PAPER_NS: f64 = 421.0;

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let measure = |step: &mut dyn FnMut(String)| run(&self.options, step);
        self.form.show(STEPS, measure, tables, |r| vec![("engine-phases.svg", chart(r).svg())])
    }
}

fn tables(r: &Report) -> anyhow::Result<()> {
    table::print("programs and packets", &r.programs)?;
    table::print("phases (JIT): what each adds", &r.phases)?;
    output::line(format_args!("(the paper's program, all phases: {PAPER_NS} ns)"));
    output::line(format_args!(
        "\ndecryption of a snapshot: {:.1} ns once a publication (10 ms), not once a packet",
        r.decrypt_ns
    ));
    Ok(())
}

fn chart(r: &Report) -> Bars {
    Bars {
        title: "A packet's way through the P4 VM, by phase (JIT)".into(),
        unit: "nanoseconds".into(),
        bars: r.phases.iter().map(|p| (p.name.to_owned(), p.ns)).collect(),
    }
}
