//! The commands.

mod agent;
mod attach;
mod audit;
mod bench;
mod compile;
mod completions;
mod demo;
mod explain;
mod host;
mod identity;
mod keygen;
mod p4vm;
mod test;
mod verify;

use clap::Subcommand;

use crate::exit::Exit;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compile a P4 program to an eBPF object
    Compile(compile::Compile),
    /// Find everything that is wrong with a P4 program
    Check(compile::Check),
    /// Explain the code of an error or a warning
    Explain(explain::Args),
    /// Run test scripts against a P4 program
    Test(test::Test),
    /// Run every test script of a folder and print a table
    Conformance(test::Conformance),
    /// Make a tenant's key
    Keygen(keygen::Args),
    /// Say whether a P4 VM would run a program
    Verify(verify::Args),
    #[command(hide = true)]
    VerifyChild(verify::Child),
    /// Run the host daemon
    Run(host::Run),
    /// Tell how the host daemon and its P4 VMs are
    Status(host::ShowStatus),
    /// Print Prometheus metrics
    Metrics(host::Metrics),
    // No summary here: one would replace the help that their own comments give.
    Attach(attach::Attach),
    Detach(attach::Detach),
    /// Replace programs while traffic flows
    Program(host::Program),
    #[command(hide = true, name = "p4vm")]
    P4Vm(p4vm::Args),
    /// Publish in-VM information (in the user VM)
    Agent(agent::Args),
    /// Tell whether every packet went through the program (in the user VM)
    Audit(audit::Args),
    /// Show a P4 program guarding live traffic, and attack it
    Demo(demo::Args),
    /// Measure P4 Shield on this machine
    Bench(bench::Args),
    /// Print shell completions
    Completions(completions::Completions),
    /// Write man pages into a folder
    Man(completions::Man),
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Compile(a) => a.run(),
            Self::Check(a) => a.run(),
            Self::Explain(a) => a.run(),
            Self::Test(a) => a.run(),
            Self::Conformance(a) => a.run(),
            Self::Keygen(a) => a.run(),
            Self::Verify(a) => a.run(),
            Self::VerifyChild(a) => a.run(),
            Self::Run(a) => a.run(),
            Self::Status(a) => a.run(),
            Self::Metrics(a) => a.run(),
            Self::Attach(a) => a.run(),
            Self::Detach(a) => a.run(),
            Self::Program(a) => a.run(),
            Self::P4Vm(a) => a.run(),
            Self::Agent(a) => a.run(),
            Self::Audit(a) => a.run(),
            Self::Demo(a) => a.run(),
            Self::Bench(a) => a.run(),
            Self::Completions(a) => a.run(),
            Self::Man(a) => a.run(),
        }
    }
}
