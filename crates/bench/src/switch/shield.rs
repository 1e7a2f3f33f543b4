//! P4 Shield around a switch, started as an operator would start it.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use p4shield_testbed::{Guarded, NetNs, leftover, process, wait_until};
use tempfile::TempDir;

use super::lab::SERVER;
use super::{Mode, Options};
use crate::Error;

const GUARD: &str = include_str!("../../../../examples/programs/tcp_guard.p4");
const CONFIG: &str = include_str!("bench.toml");
/// Used TCP memory that the guard allows; more than any of the measurements uses.
const THRESHOLD: &str = "1GiB";
/// Seconds that a part may take to start on a loaded machine.
const PATIENCE: u64 = 60;

/// Configuration, daemon and P4 VM; none of it in [`Mode::Plain`].
pub(super) struct Shield {
    folder: TempDir,
    binary: PathBuf,
    library: Option<PathBuf>,
    _daemon: Option<Guarded>,
    agent: Option<Guarded>,
}

impl Shield {
    /// Starts what `mode` needs; `ports` are the uplink's and the user VM's.
    pub(super) fn start(options: &Options, mode: Mode, ports: &[String; 2]) -> Result<Self, Error> {
        let folder = leftover::folder("bench")?;
        let mut shield =
            Self { folder, binary: options.binary.clone(), library: None, _daemon: None, agent: None };
        if mode != Mode::Plain {
            shield.prepare(mode, ports)?;
            shield._daemon = Some(shield.daemon()?);
            shield.library = Some(options.library.clone());
        }
        Ok(shield)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn prepare(&self, mode: Mode, ports: &[String; 2]) -> Result<(), Error> {
        let write = |name: &str, text: &str| {
            std::fs::write(self.at(name), text)
                .map_err(|e| Error::Switch(format!("cannot write {}: {e}", self.at(name).display())))
        };
        write("tcp_guard.p4", GUARD)?;
        write("p4shield.toml", &config(mode, ports))?;
        process::run(Command::new(&self.binary).arg("keygen").arg(self.at("bench.key")))?;
        let mut compile = Command::new(&self.binary);
        compile.arg("compile").arg(self.at("tcp_guard.p4")).arg("-o").arg(self.at("tcp_guard.o"));
        process::run(&mut compile)?;
        Ok(())
    }

    fn daemon(&self) -> Result<Guarded, Error> {
        let mut command = Command::new(&self.binary);
        command.arg("run").arg("--config").arg(self.at("p4shield.toml"));
        let daemon = self.spawn(&mut command, "daemon.log")?;
        self.await_part("start of the daemon", "daemon.log", || {
            let mut status = Command::new(&self.binary);
            status.args(["status", "--json", "--socket"]).arg(self.at("p4shield.sock"));
            status.output().is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("\"running\""))
        })?;
        Ok(daemon)
    }

    /// Starts the agent of the user VM in `ns`, whose interface `eth0` is.
    pub(super) fn start_agent(&mut self, ns: &NetNs) -> Result<(), Error> {
        if self.library.is_none() {
            return Ok(());
        }
        let mut command = ns.command(&self.binary);
        command.args(["agent", "run", "--tenant", "bench", "--vm", "server", "--interface", "eth0"]);
        command.args(["--tcp-threshold", THRESHOLD, "--key"]).arg(self.at("bench.key"));
        command.arg("--info-page").arg(self.at("server.info"));
        command.arg("--state").arg(self.at("agent.epoch")).arg("--socket").arg(self.at("agent.sock"));
        self.agent = Some(self.spawn(&mut command, "agent.log")?);
        self.await_part("first publication of the agent", "agent.log", || self.at("agent.sock").exists())
    }

    /// What the switch has to be started with.
    pub(super) fn environment(&self) -> Vec<(&'static str, OsString)> {
        self.library.as_ref().map_or_else(Vec::new, |library| {
            vec![
                ("LD_PRELOAD", library.into()),
                ("P4SHIELD_CONFIG", self.at("p4shield.toml").into_os_string()),
            ]
        })
    }

    /// A folder for this run's files.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn spawn(&self, command: &mut Command, log: &str) -> Result<Guarded, Error> {
        let log =
            File::create(self.at(log)).map_err(|e| Error::Switch(format!("cannot write a log: {e}")))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Ok(Guarded::spawn(command)?)
    }

    fn await_part(&self, what: &str, log: &str, done: impl FnMut() -> bool) -> Result<(), Error> {
        wait_until(what, PATIENCE, done).map_err(|e| {
            let log = std::fs::read_to_string(self.at(log)).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            Error::Switch(format!("{e}: {}", lines[lines.len().saturating_sub(5)..].join("\n")))
        })
    }
}

/// The configuration. Packets that are no tenant's come from ports that are nobody's.
fn config(mode: Mode, ports: &[String; 2]) -> String {
    let (placement, address) = match mode {
        Mode::Inline => ("inline", SERVER.to_string()),
        Mode::Attached => ("p4vm", "192.0.2.1".to_owned()),
        Mode::Plain | Mode::P4vm => ("p4vm", SERVER.to_string()),
    };
    let mut text = CONFIG.replace("@PLACEMENT@", placement).replace("@ADDRESS@", &address);
    if mode != Mode::Attached {
        let [uplink, server] = ports;
        text += &format!("\n[[port]]\nname = {uplink:?}\nrole = \"uplink\"\n");
        text += &format!("\n[[port]]\nname = {server:?}\ntenant = \"bench\"\nvm = \"server\"\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_modes_configuration_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p4shield.toml");
        for mode in [Mode::Attached, Mode::Inline, Mode::P4vm] {
            std::fs::write(&path, config(mode, &["net_pcap0".into(), "net_null1".into()])).unwrap();
            if let Err(e) = p4shield_config::Config::load(&path) {
                panic!("{mode:?}: {e}");
            }
        }
    }
}
