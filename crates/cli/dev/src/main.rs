//! `p4shield-dev`: the demonstration and the benchmarks of P4 Shield.
//!
//! They build namespaces, switches and guests, which a tenant's or an operator's machine never needs, so they
//! are a binary of their own. It runs the `p4shield` that lies beside it.

#![forbid(unsafe_code)]

mod bench;
mod demo;
mod image;

use std::process::ExitCode;

use clap::Parser;
use p4shield_console::Options;

/// Demonstrates P4 Shield on live traffic, and measures it.
#[derive(Debug, Parser)]
#[command(name = "p4shield-dev", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 done, 1 failed or a claim did not hold, 2 wrong usage.")]
struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Command,
}

// No comments on the variants: they would replace the help that each command's own arguments give.
#[derive(Debug, clap::Subcommand)]
enum Command {
    Demo(demo::Args),
    Bench(bench::Args),
    #[command(hide = true)]
    Traffic(demo::TrafficArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    p4shield_console::main(cli.options, || match cli.command {
        Command::Demo(args) => args.run(),
        Command::Bench(args) => args.run(),
        Command::Traffic(args) => args.run(),
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
