//! `p4shield`: the product's one binary.
//!
//! Each command is a module under [`commands`] with its arguments and a `run` that returns an [`Exit`].
//! Libraries do the work; this crate holds arguments, output and exit codes.
//!
//! [`Exit`]: p4shield_console::Exit

#![forbid(unsafe_code)]

mod commands;

use std::process::ExitCode;

use clap::Parser;

use commands::Command;
use p4shield_console::Options;

/// Lets cloud tenants' P4 programs decide what happens to their packets, outside the cloud's switch.
#[derive(Debug, Parser)]
#[command(name = "p4shield", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused (program, configuration or input); \
                  `audit` adds 10 to 18, see `p4shield audit --help`; `exec` exits with its command's code."
)]
struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    commands::answer_shell();
    let cli = Cli::parse();
    p4shield_console::main(cli.options, || cli.command.run())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
