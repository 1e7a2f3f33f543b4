//! The product's own processes, started as a user starts them: the host daemon with its P4 VM, and the agent.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{last_lines, product};
use crate::{Error, Guarded, NetNs, Result, leftover, listens, process, wait_until};

/// Seconds in which a part must start on a loaded machine.
const PATIENCE: u64 = 60;

/// A running daemon with the files of one tenant and one user VM in a temporary folder.
///
/// The configuration names the files, relative to itself: `tenant.key`, `program.o`, `vm.info`, `vm.log`,
/// `p4shield.sock`.
#[derive(Debug)]
pub struct Product {
    daemon: Guarded,
    folder: TempDir,
}

impl Product {
    /// Generates the key, compiles the program, starts the daemon (in `ns`, if given) and waits until its
    /// P4 VM runs.
    ///
    /// # Errors
    /// A command fails, or the daemon does not start; with the end of its log.
    pub fn start(ns: Option<&NetNs>, program: &str, config: &str) -> Result<Self> {
        let folder = leftover::folder("product")?;
        let at = |name: &str| folder.path().join(name);
        write(&at("program.p4"), program)?;
        write(&at("p4shield.toml"), config)?;
        process::run(Command::new(product()?).arg("keygen").arg(at("tenant.key")))?;
        let mut compile = Command::new(product()?);
        process::run(compile.arg("compile").arg(at("program.p4")).arg("-o").arg(at("program.o")))?;
        let mut run = p4shield(ns, "run")?;
        run.arg("--config").arg(at("p4shield.toml"));
        let daemon = spawn(folder.path(), &mut run, "run")?;
        let product = Self { daemon, folder };
        product.await_part("start of the P4 VM", "run", || {
            product.p4vm().is_some() || product.failed_starts().len() > 1
        })?;
        match product.failed_starts().pop() {
            Some(last) if product.p4vm().is_none() => Err(Error::failed("p4shield run".to_owned(), last)),
            _ => Ok(product),
        }
    }

    /// Returns the lines of the daemon's log about a P4 VM that did not start. The daemon tries again, but
    /// what failed twice most likely fails for good.
    fn failed_starts(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.at("run.log")).unwrap_or_default();
        log.lines().filter(|line| line.contains("p4vm_start_failed")).map(str::to_owned).collect()
    }

    /// Returns the path of a file.
    #[must_use]
    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the output of `p4shield status --json`; null while the daemon does not answer. Its exit code
    /// only reports whether there are problems.
    #[must_use]
    pub fn status(&self) -> Value {
        let output = p4shield(None, "status")
            .ok()
            .and_then(|mut c| c.args(["--json", "--socket"]).arg(self.at("p4shield.sock")).output().ok());
        output.and_then(|out| serde_json::from_slice(&out.stdout).ok()).unwrap_or(Value::Null)
    }

    /// Returns the P4 VM's process id while it runs with its programs loaded.
    #[must_use]
    pub fn p4vm(&self) -> Option<i32> {
        let status = self.status();
        let tenant = &status["tenants"][0];
        let pid = (tenant["state"] == "running").then(|| tenant["pid"].as_i64()).flatten()?;
        i32::try_from(pid).ok()
    }

    /// Returns the exit status if the daemon has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.daemon.ended()
    }

    /// Starts the agent of a tenant's VM in `ns` and waits for its first publication; `interface` is the
    /// option's value, `NAME` or `NAME:MBPS`. Its control socket is `agent.sock`.
    ///
    /// # Errors
    /// The agent does not publish; with the end of its log.
    pub fn agent(
        &self,
        ns: &NetNs,
        [tenant, vm]: [&str; 2],
        interface: &str,
        threshold: u64,
    ) -> Result<Guarded> {
        let mut agent = p4shield(Some(ns), "agent")?;
        agent.args(["run", "--tenant", tenant, "--vm", vm, "--interface", interface]);
        agent.args(["--tcp-threshold", &threshold.to_string(), "--key"]).arg(self.at("tenant.key"));
        agent.arg("--info-page").arg(self.at("vm.info")).arg("--state").arg(self.at("agent.epoch"));
        agent.arg("--socket").arg(self.at("agent.sock"));
        let agent = spawn(self.folder.path(), &mut agent, "agent")?;
        let published = || listens(&self.at("agent.sock"));
        self.await_part("first publication of the agent", "agent", published)?;
        Ok(agent)
    }

    /// Prepares the auditor of a tenant's VM in `ns`; its log is `audit.log`.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn auditor(&self, ns: &NetNs, [tenant, vm]: [&str; 2], interface: &str) -> Result<Command> {
        let mut audit = p4shield(Some(ns), "audit")?;
        audit.args(["--json", "--tenant", tenant, "--vm", vm, "--interface", interface, "--key"]);
        audit.arg(self.at("tenant.key")).arg("--log-page").arg(self.at("vm.log"));
        audit.stdin(Stdio::null()).stderr(log(self.folder.path(), "audit")?);
        Ok(audit)
    }

    /// Waits until a part is ready.
    ///
    /// # Errors
    /// [`Error::Failed`] with the end of the part's log.
    pub fn await_part(&self, what: &str, part: &str, done: impl FnMut() -> bool) -> Result<()> {
        wait_until(what, PATIENCE, done).map_err(|e| {
            let why = format!("{e}; the end of its log:\n{}", self.log_end(part));
            Error::failed(format!("p4shield {part}"), why)
        })
    }

    /// Returns the end of a part's log.
    #[must_use]
    pub fn log_end(&self, part: &str) -> String {
        last_lines(&std::fs::read_to_string(self.at(&format!("{part}.log"))).unwrap_or_default(), 5)
    }
}

fn p4shield(ns: Option<&NetNs>, command: &str) -> Result<Command> {
    let exe = product()?;
    let mut p4shield = ns.map_or_else(|| Command::new(&exe), |ns| ns.command(&exe));
    p4shield.arg(command);
    Ok(p4shield)
}

fn spawn(folder: &Path, command: &mut Command, part: &str) -> Result<Guarded> {
    Guarded::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log(folder, part)?))
}

fn log(folder: &Path, part: &str) -> Result<File> {
    let path = folder.join(format!("{part}.log"));
    File::create(&path).map_err(Error::system(format!("write {}", path.display())))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(Error::system(format!("write {}", path.display())))
}
