//! `p4shield-dev bench`.

mod channel;
mod engine;
mod mediator;
mod switch;
mod xsk;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use p4shield_testbed::leftover;

use p4shield_console::Exit;
use p4shield_console::{output, signals};

/// Measure P4 Shield on this machine
///
/// Figures depend on the machine and its other load; compare ratios within one run.
/// docs/performance.md has reference figures.
///
/// Examples:
///
///   p4shield-dev bench engine
///   p4shield-dev bench switch --svg charts    Open vSwitch plain, attached, inline, with a P4 VM
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// Nanoseconds per packet, for whole programs and by phase
    Engine(engine::Args),
    /// Round trip and throughput between mediator and P4 VM, by batch and header size
    Channel(channel::Args),
    /// Nanoseconds per packet in the switch's thread, by traffic, burst and header size
    Mediator(mediator::Args),
    /// Throughput, latency and streams of an unmodified switch: plain, with the library, inline, with a P4 VM
    Switch(switch::Args),
    /// TransP4's experiments with an unmodified Open vSwitch over AF_XDP, and an endurance run
    Xsk(xsk::Args),
}

/// Output of a measurement.
#[derive(Debug, clap::Args)]
struct Form {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Also write SVG charts into this folder
    #[arg(long, value_name = "FOLDER")]
    svg: Option<PathBuf>,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let end = signals::CleanEnd::with(leftover::abandon)?;
        end.unless_begun(match self.benchmark {
            Benchmark::Engine(a) => a.run(),
            Benchmark::Channel(a) => a.run(),
            Benchmark::Mediator(a) => a.run(),
            Benchmark::Switch(a) => a.run(),
            Benchmark::Xsk(a) => a.run(),
        })
    }
}

fn write_chart(folder: &Path, name: &str, svg: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, svg))
        .with_context(|| format!("cannot write {}", path.display()))?;
    output::note(format_args!("wrote {}", path.display()));
    Ok(())
}
