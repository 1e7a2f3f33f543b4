//! `p4shield tenant-exec`: `p4shield exec` starts it, never a user.

use p4shield_console::{Exit, output};
use p4shield_tenantswitch::{Errand, Limits, run_command};
use std::ffi::OsString;
use std::path::PathBuf;

/// A command in a switch compartment. `p4shield exec` starts it, as a process of the compartment's.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The compartment's core
    #[arg(long)]
    core: u32,
    /// Folder of the compartment's cgroup
    #[arg(long)]
    cgroup: Option<PathBuf>,
    /// The program
    program: OsString,
    /// Its arguments
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    arguments: Vec<OsString>,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let Self { core, cgroup, program, arguments } = self;
        let errand = Errand { core, cgroup, limits: Limits::of(false), program, arguments };
        let Err(error) = run_command(&errand);
        let code = error.code();
        output::error(&error.into());
        Ok(Exit::Code(code))
    }
}
