//! `p4shield`: the product's one binary.
//!
//! Each command is a module under [`commands`] with its arguments and a `run` that returns an [`Exit`].
//! Libraries do the work; this crate holds arguments, output and exit codes.

#![forbid(unsafe_code)]

mod commands;

use std::process::ExitCode;

use clap::Parser;

use commands::Command;
use p4shield_console::{Exit, output};

/// Lets cloud tenants' P4 programs decide what happens to their packets, outside the cloud's switch.
#[derive(Debug, Parser)]
#[command(name = "p4shield", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused (program, configuration or input); \
                  `audit` adds 10 to 18, see `p4shield audit --help`."
)]
struct Cli {
    /// Log more: -v debug, -vv trace (or set P4SHIELD_LOG, for example to `info,p4shield_daemon=debug`)
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
    /// Log as JSON lines
    #[arg(long, global = true)]
    log_json: bool,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    output::logging(cli.verbose, cli.log_json);
    match cli.command.run() {
        Ok(exit) => exit.into(),
        Err(error) => {
            output::error(&error);
            Exit::of(&error).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
