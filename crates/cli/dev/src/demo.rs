//! `p4shield-dev demo`.

use std::path::PathBuf;

use clap::ValueEnum;
use p4shield_console::{Exit, output, signals};
use p4shield_demo::{Options, run};

use crate::image;

/// Show a P4 program guarding live traffic, and attack it
///
/// Builds network namespaces for a client, a cloud host and a user VM with a switch between them,
/// starts daemon, P4 VM, agent and auditor, opens connections, fills TCP memory with real sockets,
/// then acts as a malicious cloud. Writes an HTML report and removes everything it made. Needs root.
///
/// Examples:
///
///   p4shield-dev demo
///   p4shield-dev demo --quick --report /tmp/report
///   p4shield-dev demo --compartment vm               the P4 VM is a virtual machine
///
/// Exit code 1 if a claim does not hold.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Shorter phases: under 30 seconds
    #[arg(long)]
    quick: bool,
    /// What isolates the P4 VM; `vm` boots a virtual machine, by emulation where KVM runs no guest
    #[arg(long, value_enum, default_value_t = Compartment::Process)]
    compartment: Compartment,
    /// Folder of the report
    #[arg(long, value_name = "FOLDER", default_value = "report")]
    report: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Compartment {
    Process,
    Vm,
}

const PROGRAM: &str = include_str!("../../../../examples/programs/tcp_guard.p4");

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        if let Err(why) = p4shield_testbed::usable() {
            anyhow::bail!("the demo cannot run on this machine: {why}");
        }
        let result = run(&Options {
            quick: self.quick,
            report: self.report,
            image: (self.compartment == Compartment::Vm).then(image::of_machines).transpose()?,
            program: PROGRAM.into(),
            interrupted: signals::stop_flag()?,
            say: |line| output::line(line),
        })?;
        output::line(format_args!("report: {}", result.page.display()));
        output::line(if result.held { "every claim held" } else { "a claim FAILED" });
        Ok(if result.held { Exit::Done } else { Exit::Failed })
    }
}
