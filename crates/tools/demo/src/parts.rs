//! The product's own processes, started as a user starts them: host daemon, agent, auditor.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use p4shield_testbed::{Guarded, NetNs, process, wait_until};
use serde_json::Value;

use crate::Error;
use crate::scene::{Scene, TENANT, VM_NAME};

/// The files of a run, in one temporary folder.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
}

impl Files {
    /// Returns a path below the folder.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The tenant's key.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.at("alice.key")
    }

    /// The compiled program.
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.at("tcp_guard.o")
    }

    /// The info page.
    #[must_use]
    pub fn info_page(&self) -> PathBuf {
        self.at("web.info")
    }

    /// The log page.
    #[must_use]
    pub fn log_page(&self) -> PathBuf {
        self.at("web.log")
    }

    /// The host daemon's configuration.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.at("p4shield.toml")
    }

    /// The host daemon's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.at("p4shield.sock")
    }

    fn log_of(&self, part: &str) -> Result<File, Error> {
        let path = self.at(&format!("{part}.log"));
        File::create(&path).map_err(|source| Error::Read { path, source })
    }

    /// Returns the end of a part's log, for an error message.
    #[must_use]
    pub fn log_end(&self, part: &str) -> String {
        last_lines(&std::fs::read_to_string(self.at(&format!("{part}.log"))).unwrap_or_default())
    }
}

/// Returns the last lines of a log.
pub(crate) fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}

/// The `p4shield` to demonstrate.
fn p4shield(ns: Option<&NetNs>) -> Result<Command, Error> {
    let exe = process::product()?;
    Ok(ns.map_or_else(|| Command::new(&exe), |ns| ns.command(&exe)))
}

/// Generates the key, compiles the program and writes the configuration.
///
/// # Errors
/// A command failed.
pub fn prepare(files: &Files, source: &str) -> Result<(), Error> {
    let program = files.at("tcp_guard.p4");
    let write = |path: PathBuf, text: &str| {
        std::fs::write(&path, text).map_err(|source| Error::Read { path, source })
    };
    write(program.clone(), source)?;
    write(files.config(), &config(files))?;
    process::run(p4shield(None)?.arg("keygen").arg(files.key()))?;
    process::run(p4shield(None)?.arg("compile").arg(program).arg("-o").arg(files.program()))?;
    Ok(())
}

fn config(files: &Files) -> String {
    include_str!("demo.toml")
        .replace("@KEY@", &files.key().display().to_string())
        .replace("@PROGRAM@", &files.program().display().to_string())
        .replace("@INFO@", &files.info_page().display().to_string())
        .replace("@LOG@", &files.log_page().display().to_string())
        .replace("@SOCKET@", &files.socket().display().to_string())
}

/// The host daemon; the P4 VM is its child.
#[derive(Debug)]
pub struct Daemon {
    process: Guarded,
    socket: PathBuf,
}

impl Daemon {
    /// Starts the daemon and waits until the P4 VM judges packets.
    ///
    /// # Errors
    /// The P4 VM does not become ready; with the end of the daemon's log.
    pub fn start(scene: &Scene, files: &Files) -> Result<Self, Error> {
        let mut c = p4shield(Some(&scene.host))?;
        c.arg("run").arg("--config").arg(files.config());
        let process =
            Guarded::spawn(c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(files.log_of("run")?))?;
        let daemon = Self { process, socket: files.socket() };
        wait_until("start of the P4 VM", 20, || daemon.p4vm().is_some()).map_err(|e| Error::Part {
            part: "p4shield run",
            source: e,
            words: files.log_end("run"),
        })?;
        Ok(daemon)
    }

    /// Returns the exit status if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.ended()
    }

    /// Returns the output of `p4shield status --json`; null while the daemon does not answer. Its exit code
    /// only reports whether there are problems.
    #[must_use]
    pub fn status(&self) -> Value {
        let output = p4shield(None)
            .ok()
            .and_then(|mut c| c.args(["status", "--json", "--socket"]).arg(&self.socket).output().ok());
        output.and_then(|out| serde_json::from_slice(&out.stdout).ok()).unwrap_or(Value::Null)
    }

    /// Returns the process id of the P4 VM while it runs with its programs loaded.
    #[must_use]
    pub fn p4vm(&self) -> Option<i32> {
        let status = self.status();
        let tenant = &status["tenants"][0];
        (tenant["state"] == "running")
            .then(|| tenant["pid"].as_i64())
            .flatten()
            .and_then(|p| p.try_into().ok())
    }
}

/// Starts the agent in the user VM and waits for its first publication.
///
/// # Errors
/// The agent does not publish.
pub fn agent(scene: &Scene, files: &Files, threshold: u64) -> Result<Guarded, Error> {
    let mut c = p4shield(Some(&scene.vm))?;
    c.args(["agent", "run", "--tenant", TENANT, "--vm", VM_NAME, "--interface", "eth0", "--tcp-threshold"])
        .arg(threshold.to_string())
        .arg("--key")
        .arg(files.key())
        .arg("--info-page")
        .arg(files.info_page())
        .arg("--state")
        .arg(files.at("agent.epoch"))
        .arg("--socket")
        .arg(files.at("agent.sock"));
    let agent = Guarded::spawn(c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(files.log_of("agent")?))?;
    wait_until("first publication of the agent", 10, || files.at("agent.sock").exists())
        .map_err(|e| Error::Part { part: "p4shield agent", source: e, words: files.log_end("agent") })?;
    Ok(agent)
}

/// The auditor's output so far.
#[derive(Debug, Default)]
struct AuditOutput {
    standing: String,
    unread: Vec<String>,
    findings: Vec<Value>,
    comparisons: u64,
}

/// The auditor in the user VM.
#[derive(Debug)]
pub struct Auditor {
    process: Guarded,
    output: Arc<Mutex<AuditOutput>>,
    reader: Option<JoinHandle<()>>,
}

impl Auditor {
    /// Starts the auditor and waits for its first comparison.
    ///
    /// # Errors
    /// The auditor does not compare.
    pub fn start(scene: &Scene, files: &Files) -> Result<Self, Error> {
        let mut c = p4shield(Some(&scene.vm))?;
        c.args([
            "audit",
            "--json",
            "--tenant",
            TENANT,
            "--vm",
            VM_NAME,
            "--interface",
            "eth0",
            "--hold-ms",
            "50",
        ])
        .arg("--key")
        .arg(files.key())
        .arg("--log-page")
        .arg(files.log_page());
        let mut process =
            Guarded::spawn(c.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(files.log_of("audit")?))?;
        let output = Arc::new(Mutex::new(AuditOutput::default()));
        let reader = process.child().stdout.take().map(|out| {
            let output = Arc::clone(&output);
            std::thread::spawn(move || read_output(BufReader::new(out), &output))
        });
        let auditor = Self { process, output, reader };
        wait_until("first comparison of the auditor", 15, || auditor.locked(|s| s.comparisons > 1))
            .map_err(|e| Error::Part { part: "p4shield audit", source: e, words: files.log_end("audit") })?;
        Ok(auditor)
    }

    fn locked<R>(&self, f: impl FnOnce(&mut AuditOutput) -> R) -> R {
        f(&mut self.output.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the exit status if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.ended()
    }

    /// Returns the findings since the last call; without any, the state of the audit.
    #[must_use]
    pub fn words(&self) -> String {
        self.locked(|s| {
            let unread = std::mem::take(&mut s.unread);
            if unread.is_empty() { s.standing.clone() } else { unread.join("; ") }
        })
    }

    /// Returns the findings since the last call.
    #[must_use]
    pub fn take_findings(&self) -> Vec<Value> {
        self.locked(|s| std::mem::take(&mut s.findings))
    }
}

impl Drop for Auditor {
    fn drop(&mut self) {
        self.process.stop();
        if let Some(r) = self.reader.take() {
            let _ = r.join();
        }
    }
}

/// Reads `p4shield audit --json`: one object per line, a finding or a comparison, each with `words`.
fn read_output(lines: impl BufRead, output: &Mutex<AuditOutput>) {
    for line in lines.lines().map_while(Result::ok) {
        let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        if value.get("finding").is_some() {
            output.unread.push(value["words"].as_str().unwrap_or_default().to_owned());
            output.findings.push(value);
        } else if value["event"] == "standing" {
            output.standing = standing(&value);
            output.comparisons += 1;
        }
    }
}

/// Returns the state of the audit, short enough for a table.
fn standing(value: &Value) -> String {
    let both = |key: &str| [&value["ingress"][key], &value["egress"][key]];
    if both("suspicious").iter().any(|v| **v == true) {
        "checking a difference".into()
    } else if both("aligned").iter().all(|v| **v == true) {
        let compared: u64 = both("verified").iter().filter_map(|v| v.as_u64()).sum();
        format!("every packet went through ({compared} compared)")
    } else {
        "not yet certain".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_and_comparisons_are_distinguished() {
        let output = Mutex::new(AuditOutput::default());
        let text = "{\"event\":\"standing\"}\nrubbish\n\
                    {\"finding\":\"bypassed\",\"packets\":3,\"words\":\"3 round\"}\n";
        read_output(text.as_bytes(), &output);
        let output = output.into_inner().unwrap();
        assert_eq!(
            (output.comparisons, output.findings.len(), output.unread),
            (1, 1, vec!["3 round".to_owned()])
        );
        assert_eq!(output.findings[0]["packets"], 3);
    }
}
