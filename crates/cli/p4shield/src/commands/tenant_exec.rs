//! `p4shield tenant-exec`: `p4shield exec` starts it, never a user.

use p4shield_console::{Exit, output};
use p4shield_tenantswitch::{Errand, Limits, run_command, run_in_machine};
use std::ffi::OsString;
use std::path::PathBuf;

/// A command in a switch compartment. `p4shield exec` starts it, as a process of the compartment's.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The compartment's core
    #[arg(long, required_unless_present = "machine")]
    core: Option<u32>,
    /// Socket of the compartment, which is a virtual machine
    #[arg(long, conflicts_with = "core")]
    machine: Option<PathBuf>,
    /// Its user, if it has the host's network
    #[arg(long)]
    on_host: Option<u32>,
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
        let Self { core, machine, on_host, cgroup, program, arguments } = self;
        if let Some(control) = machine {
            let command: Vec<_> = std::iter::once(program).chain(arguments).collect();
            return Ok(Exit::Code(run_in_machine(&control, &command)?));
        }
        let core = core.unwrap_or_default();
        let errand = Errand { core, on_host, cgroup, limits: Limits::of(false, 0), program, arguments };
        let Err(error) = run_command(&errand);
        let code = error.code();
        output::error(&error.into());
        Ok(Exit::Code(code))
    }
}
