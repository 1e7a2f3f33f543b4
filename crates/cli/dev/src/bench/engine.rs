//! `p4shield-dev bench engine`.

use p4shield_bench::engine::{Options, Report, STEPS, run};
use p4shield_plot::Bars;

use super::{Form, write_chart};
use p4shield_console::Exit;
use p4shield_console::output::{self, Progress};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    form: Form,
    /// Rounds, of which the quickest counts
    #[arg(long, default_value_t = 100)]
    rounds: usize,
    /// Packets in each round
    #[arg(long, default_value_t = 20_000)]
    packets: u32,
}

/// Nanoseconds of one program execution with in-VM information in the P4 Shield paper (figure 10).
const PAPER_NS: f64 = 421.0;

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let options = Options { rounds: self.rounds.max(1), packets: self.packets.max(1) };
        let progress = Progress::new(STEPS);
        let report = run(&options, |what| progress.step(what.into()))?;
        drop(progress);
        if self.form.json {
            output::json(&report)?;
        } else {
            table(&report);
        }
        if let Some(folder) = self.form.svg {
            write_chart(&folder, "engine-phases.svg", &chart(&report).svg()?)?;
        }
        Ok(Exit::Done)
    }
}

fn table(r: &Report) {
    output::line(format_args!(
        "{:<36} {:>9} {:>15} {:>11} {:>10} {:>10}",
        "program, packet", "JIT ns", "interpreter ns", "insns/path", "compile ms", "verify ms"
    ));
    for p in &r.programs {
        output::line(format_args!(
            "{:<36} {:>9.1} {:>15.1} {:>11} {:>10.2} {:>10.1}",
            p.name,
            p.jit_ns,
            p.interpreter_ns,
            format!("{}/{}", p.instructions, p.longest_path),
            p.compile_ms,
            p.verify_ms
        ));
    }
    output::line(format_args!("\n{:<36} {:>9} {:>15}", "phase (JIT)", "adds ns", "so far ns"));
    for p in &r.phases {
        output::line(format_args!("{:<36} {:>9.1} {:>15.1}", p.name, p.ns, p.so_far_ns));
    }
    output::line(format_args!("(the paper's program, all phases: {PAPER_NS} ns)"));
    output::line(format_args!(
        "\n{:<36} {:>9.1}   once a publication (10 ms), not once a packet",
        "decryption of a snapshot", r.decrypt_ns
    ));
}

fn chart(r: &Report) -> Bars {
    Bars {
        title: "A packet's way through the P4 VM, by phase (JIT)".into(),
        unit: "nanoseconds".into(),
        bars: r.phases.iter().map(|p| (p.name.to_owned(), p.ns)).collect(),
    }
}
