//! A command of the operator in a compartment that runs. It gets what the compartment's own processes have,
//! in an order in which nothing of the compartment is looked up or executed with privileges of the host.

use super::enter::{self, Kind, Limits};
use super::tools;
use p4shield_sandbox::{self as layers, Become, SandboxError};
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Stdio;

/// A command, and what it shares with the compartment beside namespaces.
#[derive(Clone, Debug)]
pub struct Errand {
    /// The compartment's core.
    pub core: u32,
    /// Its user, if it has the host's network: at the baseline.
    pub on_host: Option<u32>,
    /// The folder of the compartment's cgroup, unless this process is in it.
    pub cgroup: Option<PathBuf>,
    /// The compartment's limits.
    pub limits: Limits,
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// Reason why a command does not start.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The compartment cannot be entered.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The program cannot be executed inside.
    #[error("cannot run {program} in the switch compartment; it sees the host's /usr, and no other program")]
    Program {
        /// The program.
        program: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl CommandError {
    /// Returns the exit code that shells give for it: 127 if there is no such program, 126 otherwise.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Program { source, .. } if source.kind() == ErrorKind::NotFound => 127,
            _ => 126,
        }
    }
}

/// Replaces this process, which the host started among those of a compartment, by the command. Standard input
/// and outputs are the command's. Must be called while the process has one thread.
///
/// # Errors
/// [`CommandError`]; otherwise it does not return.
pub fn run_command(errand: &Errand) -> Result<Infallible, CommandError> {
    layers::close_all_but(&[0, 1])?;
    let terminal = std::env::var_os("TERM");
    enter::join_cgroup(errand.cgroup.as_deref())?;
    enter::use_core(errand.core);
    enter::limit(&errand.limits)?;
    layers::join_first_process(errand.on_host.map_or(Become::RootInside, Become::UserOfHost))?;
    enter::restrict(&Kind::Switch { on_host: errand.on_host.is_some(), dpdk: false, huge_pages: false })?;
    layers::end_with_parent()?;
    let mut command = tools::tool(&errand.program);
    command.args(&errand.arguments).stdin(Stdio::inherit());
    command.envs(terminal.map(|terminal| ("TERM", terminal)));
    let source = command.exec();
    let program = p4shield_text::printable(&errand.program.to_string_lossy());
    Err(CommandError::Program { program, source })
}
