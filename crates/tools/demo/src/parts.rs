//! The product's own processes, started as a user would start them: host daemon, agent, auditor.

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

/// Where everything of a run lies, in one temporary folder.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
}

impl Files {
    /// Below `folder`.
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

    /// The last words of a part's log, for an error message.
    #[must_use]
    pub fn last_words(&self, part: &str) -> String {
        last_lines(&std::fs::read_to_string(self.at(&format!("{part}.log"))).unwrap_or_default())
    }
}

/// The end of a log.
pub(crate) fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}

/// The `p4shield` to demonstrate.
fn p4shield(ns: Option<&NetNs>) -> Result<Command, Error> {
    let exe = process::product()?;
    Ok(ns.map_or_else(|| Command::new(&exe), |ns| ns.command(&exe)))
}

/// Makes the key, compiles the program and writes the configuration.
///
/// # Errors
/// What the commands say.
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

/// The host daemon, with the P4 VM below it.
#[derive(Debug)]
pub struct Daemon {
    process: Guarded,
    socket: PathBuf,
}

impl Daemon {
    /// Starts it and waits until the P4 VM judges packets.
    ///
    /// # Errors
    /// If it does not get there; with its last words.
    pub fn start(scene: &Scene, files: &Files) -> Result<Self, Error> {
        let mut c = p4shield(Some(&scene.host))?;
        c.arg("run").arg("--config").arg(files.config());
        let process =
            Guarded::spawn(c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(files.log_of("run")?))?;
        let daemon = Self { process, socket: files.socket() };
        wait_until("start of the P4 VM", 20, || daemon.p4vm().is_some()).map_err(|e| Error::Part {
            part: "p4shield run",
            source: e,
            words: files.last_words("run"),
        })?;
        Ok(daemon)
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.ended()
    }

    /// What `p4shield status --json` says; null while nobody answers. Its exit code only tells whether all is well.
    #[must_use]
    pub fn status(&self) -> Value {
        let said = p4shield(None)
            .ok()
            .and_then(|mut c| c.args(["status", "--json", "--socket"]).arg(&self.socket).output().ok());
        said.and_then(|out| serde_json::from_slice(&out.stdout).ok()).unwrap_or(Value::Null)
    }

    /// The process id of the P4 VM, while one runs with its programs loaded.
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
/// If it does not publish.
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
        .map_err(|e| Error::Part { part: "p4shield agent", source: e, words: files.last_words("agent") })?;
    Ok(agent)
}

/// What the auditor has said so far.
#[derive(Debug, Default)]
struct Said {
    standing: String,
    news: Vec<String>,
    findings: Vec<Value>,
    looks: u64,
}

/// The auditor in the user VM.
#[derive(Debug)]
pub struct Auditor {
    process: Guarded,
    said: Arc<Mutex<Said>>,
    reader: Option<JoinHandle<()>>,
}

impl Auditor {
    /// Starts it and waits until it has compared something.
    ///
    /// # Errors
    /// If it does not.
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
        let said = Arc::new(Mutex::new(Said::default()));
        let reader = process.child().stdout.take().map(|out| {
            let said = Arc::clone(&said);
            std::thread::spawn(move || listen(BufReader::new(out), &said))
        });
        let auditor = Self { process, said, reader };
        wait_until("first look of the auditor", 15, || auditor.locked(|s| s.looks > 1)).map_err(|e| {
            Error::Part { part: "p4shield audit", source: e, words: files.last_words("audit") }
        })?;
        Ok(auditor)
    }

    fn locked<R>(&self, f: impl FnOnce(&mut Said) -> R) -> R {
        f(&mut self.said.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.ended()
    }

    /// What it found since the last call; if nothing, where the audit stands.
    #[must_use]
    pub fn words(&self) -> String {
        self.locked(|s| {
            let news = std::mem::take(&mut s.news);
            if news.is_empty() { s.standing.clone() } else { news.join("; ") }
        })
    }

    /// Its findings since the last call.
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

/// Reads `p4shield audit --json`: an object a line, a finding or a look; both have `words`.
fn listen(lines: impl BufRead, said: &Mutex<Said>) {
    for line in lines.lines().map_while(Result::ok) {
        let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        if value.get("finding").is_some() {
            said.news.push(value["words"].as_str().unwrap_or_default().to_owned());
            said.findings.push(value);
        } else if value["event"] == "standing" {
            said.standing = standing(&value);
            said.looks += 1;
        }
    }
}

/// Where the audit stands, short enough for a table.
fn standing(value: &Value) -> String {
    let both = |key: &str| [&value["ingress"][key], &value["egress"][key]];
    if both("suspicious").iter().any(|v| **v == true) {
        "looking into a difference".into()
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
    fn findings_and_looks_are_told_apart() {
        let said = Mutex::new(Said::default());
        let text = "{\"event\":\"standing\"}\nrubbish\n{\"finding\":\"bypassed\",\"packets\":3,\"words\":\"3 round\"}\n";
        listen(text.as_bytes(), &said);
        let said = said.into_inner().unwrap();
        assert_eq!((said.looks, said.findings.len(), said.news), (1, 1, vec!["3 round".to_owned()]));
        assert_eq!(said.findings[0]["packets"], 3);
    }
}
