//! Programs inside the compartment, with its environment.

use super::enter::{RUN, STATE};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Seconds that a tool waits for a switch.
pub(super) const TIMEOUT: &str = "--timeout=15";
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// A program of Open vSwitch, or another one inside, without input.
pub(super) fn tool(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", PATH).current_dir("/").stdin(Stdio::null());
    for (variable, folder) in
        [("OVS_RUNDIR", RUN), ("OVS_LOGDIR", "/tmp"), ("OVS_DBDIR", STATE), ("OVS_SYSCONFDIR", "/tmp")]
    {
        command.env(variable, folder);
    }
    command
}

/// Runs a tool; returns what it prints.
pub(super) fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("cannot run {name}: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Runs a tool with this input.
pub(super) fn feed(command: &mut Command, input: &str) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("cannot run {name}: {e}"))?;
    // A tool that does not read all of it says why.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(|e| format!("{name}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
