//! `p4shield wires`: the host daemon starts it, never a user.

use p4shield_console::Exit;

/// The process that serves the wires. `p4shield run` starts it and controls it over its standard input.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        p4shield_daemon::serve_wires()?;
        Ok(Exit::Done)
    }
}
