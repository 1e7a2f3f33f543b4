//! `uservm`: `p4shield` of a user VM, with the commands that it needs, as one static file.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use p4shield_console::{Exit, Options};
use p4shield_uservm::{agent, audit, keygen};

/// Publishes what a user VM knows to the tenant's P4 programs, and audits that they judge every packet.
///
/// This is the command `p4shield` for user VMs; that of workstation and host has further subcommands.
#[derive(Debug, Parser)]
#[command(name = "p4shield", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused (configuration or input); `audit` \
                  has further ones, see `p4shield audit --help`."
)]
struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Command,
}

// No comments on the variants: they would replace the help that each command's own arguments give.
#[derive(Debug, Subcommand)]
enum Command {
    Agent(agent::Args),
    Audit(Box<audit::Args>),
    Keygen(keygen::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    p4shield_console::main(cli.options, || -> anyhow::Result<Exit> {
        match cli.command {
            Command::Agent(a) => a.run(),
            Command::Audit(a) => a.run(),
            Command::Keygen(a) => a.run(),
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
