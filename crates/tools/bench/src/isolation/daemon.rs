//! The daemon of the bed: it keeps the switches running, and runs the tenants' P4 VMs.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use p4shield_testbed::process::{last_lines, product};
use p4shield_testbed::{Guarded, NetNs, wait_until};
use serde_json::Value;

/// Seconds in which the daemon must have made everything on a loaded machine.
const PATIENCE: u64 = 120;

/// The daemon, which ends on drop.
pub(super) struct Daemon {
    process: Guarded,
    socket: PathBuf,
    log: PathBuf,
}

impl Daemon {
    /// Starts it in the host's namespace; it applies the topology. The configuration has its sockets by
    /// [`complete`].
    pub(super) fn start(host: &NetNs, config: &Path) -> anyhow::Result<Self> {
        let folder = folder(config)?;
        let (socket, log) = (folder.join(SOCKET), folder.join("daemon.log"));
        let mut command = host.command(product()?);
        command.arg("run").arg("--config").arg(config);
        let errors = File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        let mut daemon = Self { process: Guarded::spawn(&mut command)?, socket, log };
        let mut has_ended = false;
        let ready = || {
            has_ended = daemon.process.ended().is_some();
            has_ended || Self::is_ready(&daemon.status())
        };
        let waited = wait_until("the daemon's switches and P4 VMs", PATIENCE, ready);
        if has_ended || waited.is_err() {
            let log = std::fs::read_to_string(&daemon.log).unwrap_or_default();
            bail!("the daemon does not run as configured; the end of its log:\n{}", last_lines(&log, 5));
        }
        Ok(daemon)
    }

    /// Reports whether there are switches, and all tenants and interfaces work.
    fn is_ready(status: &Value) -> bool {
        let is_empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
        !is_empty(&status["topology"]["switches"]) && is_empty(&status["problems"])
    }

    /// Returns the daemon's status; null while it does not answer.
    pub(super) fn status(&self) -> Value {
        let ask = |program| {
            let mut command = Command::new(program);
            command.args(["status", "--json", "--socket"]).arg(&self.socket).stderr(Stdio::null());
            command.output().ok()
        };
        let output = product().ok().and_then(ask);
        output.and_then(|output| serde_json::from_slice(&output.stdout).ok()).unwrap_or(Value::Null)
    }

    /// Returns a tenant's part of the status.
    pub(super) fn tenant(&self, name: &str) -> anyhow::Result<Value> {
        let status = self.status();
        let mut tenants = status["tenants"].as_array().into_iter().flatten();
        tenants.find(|t| t["name"] == name).cloned().with_context(|| format!("no status of tenant {name}"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // One that is killed leaves its P4 VMs to the next one.
        self.process.stop();
    }
}

/// The files of the daemon's sockets.
const SOCKET: &str = "daemon/socket";
const ATTACH: &str = "daemon/attach";

/// Returns the folder of the configuration's file.
pub(super) fn folder(config: &Path) -> anyhow::Result<&Path> {
    config.parent().context("the configuration is in no folder")
}

/// Adds the daemon's sockets to a configuration, and programs to VMs: for each an interface and the names of
/// object files.
pub(super) fn complete(text: &str, programs: &[(String, Vec<&str>)]) -> anyhow::Result<String> {
    let replaced = |text: &str, line: &str, more: &str| {
        let line = format!("{line}\n");
        anyhow::ensure!(text.contains(&line), "the configuration lacks the line {line}");
        Ok(text.replacen(&line, &format!("{line}{more}"), 1))
    };
    // P4 VMs end soon after a daemon that was killed with the benchmark.
    let sockets = format!("socket = \"{SOCKET}\"\nattach_socket = \"{ATTACH}\"\nadoption_time = \"5s\"\n");
    let mut text = replaced(text, "[daemon]", &sockets)?;
    for (interface, objects) in programs {
        let objects = objects.iter().map(|object| format!("\"{object}\"")).collect::<Vec<_>>().join(", ");
        let both = format!("ingress = [{objects}]\negress = [{objects}]\n");
        text = replaced(&text, &format!("interface = \"{interface}\""), &both)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_added_to_the_vms_with_an_interface() {
        let text = "[daemon]\nfirst_uid = 7\n[[tenant.vm]]\ninterface = \"a\"\n";
        let found = complete(text, &[("a".into(), vec!["x.o", "y.o"])]).unwrap();
        assert!(found.starts_with("[daemon]\nsocket = \"daemon/socket\"\n"), "{found}");
        let both = "interface = \"a\"\ningress = [\"x.o\", \"y.o\"]\negress = [\"x.o\", \"y.o\"]\n";
        assert!(found.ends_with(both), "{found}");
        assert!(complete(text, &[("b".into(), Vec::new())]).is_err());
        assert!(complete("", &[]).is_err());
    }
}
