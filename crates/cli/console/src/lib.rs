//! What the commands of `p4shield` and `p4shield-dev` share: exit codes, output, signals, and the files that
//! a user names.

#![forbid(unsafe_code)]

pub mod exit;
pub mod input;
pub mod output;
pub mod signals;
pub mod units;

pub use exit::{Exit, Refused};

use std::process::ExitCode;

/// Options of every command.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Options {
    /// Log more: -v debug, -vv trace (or set P4SHIELD_LOG, for example to `info,p4shield_daemon=debug`)
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
    /// Log as JSON lines (or set P4SHIELD_LOG_FORMAT=json)
    #[arg(long, global = true)]
    log_json: bool,
}

/// Starts logging, runs a command, prints its error, and returns the exit code: the body of `main`.
pub fn main(options: Options, command: impl FnOnce() -> anyhow::Result<Exit>) -> ExitCode {
    output::logging(options.verbose, options.log_json);
    let exit = command().unwrap_or_else(|error| {
        output::error(&error);
        Exit::of(&error)
    });
    exit.into()
}
