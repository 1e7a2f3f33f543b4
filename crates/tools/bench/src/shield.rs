//! P4 Shield around the measured switch, started as an operator starts it: daemon, P4 VM, agent.

use std::ffi::OsString;
use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use p4shield_testbed::{Guarded, NetNs, leftover, process, wait_until};
use serde_json::Value;
use tempfile::TempDir;

use crate::Error;

/// The program of the P4 Shield paper's measurements.
pub(crate) const GUARD: &str = include_str!("../../../../examples/programs/tcp_guard.p4");
/// The tenant's name.
pub(crate) const TENANT: &str = "bench";
/// The user VM's name.
pub(crate) const VM: &str = "server";
const CONFIG: &str = include_str!("cloud.toml");
/// TCP memory that programs allow; more than any measurement uses.
const THRESHOLD: &str = "1GiB";
/// Seconds in which a part must start on a loaded machine.
const PATIENCE: u64 = 60;

/// Parts of a cloud with one tenant and one user VM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<'s> {
    /// The library that is preloaded into the switch.
    pub(crate) library: &'s Path,
    /// Text of the tenant's P4 program.
    pub(crate) program: &'s str,
    /// Text of the configuration: [`Config`] and [`ports`]. The program's object is `program.o`.
    pub(crate) config: &'s str,
}

/// The configuration except the ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config<'s> {
    pub(crate) attachment: &'s str,
    pub(crate) placement: &'s str,
    /// The user VM's name.
    pub(crate) address: Ipv4Addr,
    /// Further keys of the tenant with their values.
    pub(crate) keys: &'s str,
    /// Whether the program is the egress program, too.
    pub(crate) both: bool,
}

impl Config<'_> {
    /// Returns the text of the file.
    pub(crate) fn text(&self) -> String {
        CONFIG
            .replace("@ATTACHMENT@", self.attachment)
            .replace("@PLACEMENT@", self.placement)
            .replace("@ADDRESS@", &self.address.to_string())
            .replace("@KEYS@", self.keys)
            .replace("@EGRESS@", if self.both { "\"program.o\"" } else { "" })
    }
}

/// Returns the ports' part: the uplink and the user VM's port.
pub(crate) fn ports([uplink, vm]: &[String; 2]) -> String {
    format!(
        "\n[[port]]\nname = {uplink:?}\nrole = \"uplink\"\n\
         \n[[port]]\nname = {vm:?}\ntenant = \"{TENANT}\"\nvm = \"{VM}\"\n"
    )
}

/// A running daemon with its P4 VM, and the agent once it is started.
pub(crate) struct Shield {
    folder: TempDir,
    binary: PathBuf,
    library: PathBuf,
    _daemon: Guarded,
    agent: Option<Guarded>,
}

impl Shield {
    /// Compiles the program, starts the daemon and waits until its P4 VM runs.
    pub(crate) fn start(setup: &Setup<'_>) -> Result<Self, Error> {
        present(setup.library)?;
        let folder = leftover::folder("bench")?;
        let at = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| {
            std::fs::write(at(name), text)
                .map_err(|e| Error::Switch(format!("cannot write {}: {e}", at(name).display())))
        };
        write("program.p4", setup.program)?;
        write("p4shield.toml", setup.config)?;
        let binary = process::product()?;
        process::run(Command::new(&binary).arg("keygen").arg(at("bench.key")))?;
        let mut compile = Command::new(&binary);
        process::run(compile.arg("compile").arg(at("program.p4")).arg("-o").arg(at("program.o")))?;

        let mut command = Command::new(&binary);
        command.arg("run").arg("--config").arg(at("p4shield.toml"));
        let daemon = spawn(folder.path(), &mut command, "daemon.log")?;
        let shield = Self { binary, library: setup.library.to_owned(), _daemon: daemon, agent: None, folder };
        shield.await_part("start of the daemon", "daemon.log", || shield.p4vm().is_some())?;
        Ok(shield)
    }

    /// Returns the path of a file of this run.
    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the daemon's status; null while it does not answer.
    pub(crate) fn status(&self) -> Value {
        let mut status = Command::new(&self.binary);
        status.args(["status", "--json", "--socket"]).arg(self.at("p4shield.sock"));
        let said = status.output().ok();
        said.and_then(|o| serde_json::from_slice(&o.stdout).ok()).unwrap_or(Value::Null)
    }

    /// Returns the P4 VM's process id while it runs with its programs loaded.
    pub(crate) fn p4vm(&self) -> Option<i32> {
        let status = self.status();
        let tenant = &status["tenants"][0];
        let pid = (tenant["state"] == "running").then(|| tenant["pid"].as_i64()).flatten()?;
        i32::try_from(pid).ok()
    }

    /// Starts the user VM's agent in `ns`; `interface` is the option's value, `NAME` or `NAME:MBPS`.
    pub(crate) fn start_agent(&mut self, ns: &NetNs, interface: &str) -> Result<(), Error> {
        let mut command = ns.command(&self.binary);
        command.args(["agent", "run", "--tenant", TENANT, "--vm", VM, "--interface", interface]);
        command.args(["--tcp-threshold", THRESHOLD, "--key"]).arg(self.at("bench.key"));
        command.arg("--info-page").arg(self.at("server.info"));
        command.arg("--state").arg(self.at("agent.epoch")).arg("--socket").arg(self.agent_socket());
        self.agent = Some(spawn(self.folder.path(), &mut command, "agent.log")?);
        let ready = || self.agent_socket().exists();
        self.await_part("first publication of the agent", "agent.log", ready)
    }

    /// Returns the agent's control socket.
    pub(crate) fn agent_socket(&self) -> PathBuf {
        self.at("agent.sock")
    }

    /// Returns the switch's environment.
    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![
            ("LD_PRELOAD", self.library.clone().into_os_string()),
            ("P4SHIELD_CONFIG", self.at("p4shield.toml").into_os_string()),
        ]
    }

    /// Waits until the library in the switch has connected to the daemon; otherwise the benchmark would
    /// measure a plain switch.
    pub(crate) fn await_switch(&self) -> Result<(), Error> {
        let reported = || self.status()["switches"].as_array().is_some_and(|switches| !switches.is_empty());
        self.await_part("report of the library in the switch", "daemon.log", reported)
    }

    fn await_part(&self, what: &str, log: &str, done: impl FnMut() -> bool) -> Result<(), Error> {
        wait_until(what, PATIENCE, done).map_err(|e| {
            let log = std::fs::read_to_string(self.at(log)).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            Error::Switch(format!("{e}: {}", lines[lines.len().saturating_sub(5)..].join("\n")))
        })
    }
}

/// Refuses a missing library: the dynamic linker would only warn.
pub(crate) fn present(library: &Path) -> Result<(), Error> {
    if library.is_file() {
        return Ok(());
    }
    Err(Error::Switch(format!("{} does not exist; name the library with --library", library.display())))
}

fn spawn(folder: &Path, command: &mut Command, log: &str) -> Result<Guarded, Error> {
    let log =
        File::create(folder.join(log)).map_err(|e| Error::Switch(format!("cannot write a log: {e}")))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Ok(Guarded::spawn(command)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libp4shield_xsk.so");
        let refused = present(&library).unwrap_err().to_string();
        assert!(refused.contains("libp4shield_xsk.so does not exist"), "{refused}");
        File::create(&library).unwrap();
        present(&library).unwrap();
    }
}
