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
/// Figures depend on the machine and on what else it does; compare ratios within one run.
/// docs/performance.md tells what was measured elsewhere.
///
/// Examples:
///
///   p4shield-dev bench engine
///   p4shield-dev bench switch --svg charts    Open vSwitch plain, attached, inline, with a P4 VM
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Nanoseconds a packet, for whole programs and by phase
    Engine(engine::Args),
    /// Round trip and throughput between mediator and P4 VM, by batch and header size
    Channel(channel::Args),
    /// Nanoseconds a packet in the switch's thread, by traffic, burst and header size
    Mediator(mediator::Args),
    /// Packets a second, latency and streams of an unmodified switch: plain, with P4 Shield in it, inline, with a P4 VM
    Switch(switch::Args),
    /// TransP4's experiments with an unmodified Open vSwitch over AF_XDP: hysteresis, messages, delay; and a long one
    Xsk(xsk::Args),
}

/// How to print what was measured.
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
        end.unless_begun(match self.what {
            What::Engine(a) => a.run(),
            What::Channel(a) => a.run(),
            What::Mediator(a) => a.run(),
            What::Switch(a) => a.run(),
            What::Xsk(a) => a.run(),
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
