//! The daemon's log as docs/how-to/logs.md has operators read it.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{code, example, p4shield, stderr};
use p4shield_testbed::process::find;
use serde_json::Value;

const CONFIG: &str = r#"
attachment = "dpdk"
[daemon]
socket = "daemon.sock"
attach_socket = "attach.sock"
[[tenant]]
name = "alice"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.2"]
ingress = ["filter.o"]
"#;

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the log has a line of this event. Returns it.
fn line(log: &Path, event: &str) -> Value {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let text = std::fs::read_to_string(log).unwrap();
        let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let mut parsed = lines.by_ref().map(|l| serde_json::from_str::<Value>(l).expect("each line is JSON"));
        if let Some(line) = parsed.find(|line| line["event"] == event) {
            return line;
        }
        assert!(Instant::now() < end, "no line with event {event}:\n{text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs a daemon that meets a refused program, a crash of its P4 VM and a refused reload. Its log is `log`.
fn log(folder: &Path) -> std::path::PathBuf {
    let log = folder.join("log");
    let object = folder.join("filter.o").display().to_string();
    let made = p4shield(&["compile", &example("programs/port_filter.p4"), "-o", &object]);
    assert_eq!(code(&made), 0, "{}", stderr(&made));
    std::fs::write(folder.join("p4shield.toml"), CONFIG).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_p4shield"));
    run.args(["run", "--config"]).arg(folder.join("p4shield.toml"));
    run.env("P4SHIELD_LOG_FORMAT", "json").env_remove("P4SHIELD_LOG");
    let daemon = run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn();
    let daemon = Daemon(daemon.unwrap());
    let signal = |pid: u64, signal| {
        let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    };

    let runs = line(&log, "p4vm_runs");
    assert_eq!((&runs["level"], &runs["tenant"]), (&"INFO".into(), &"alice".into()));
    signal(runs["pid"].as_u64().unwrap(), rustix::process::Signal::KILL);
    let replaced = line(&log, "p4vm_replaced");
    assert_eq!((&replaced["level"], &replaced["tenant"]), (&"WARN".into(), &"alice".into()));
    assert!(replaced["timestamp"].is_string() && replaced["message"].is_string(), "{replaced}");

    std::fs::write(folder.join("p4shield.toml"), "attachment = 3\n").unwrap();
    signal(u64::from(daemon.0.id()), rustix::process::Signal::HUP);
    assert_eq!(line(&log, "reload_refused")["level"], "ERROR");
    let began = line(&log, "problem_began");
    assert!(began["kind"].is_string() && began["count"].is_u64(), "{began}");
    log
}

/// The commands of the how-to guide that use `jq`.
fn commands() -> Vec<String> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/how-to/logs.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    guide
        .lines()
        .filter(|line| line.starts_with("journalctl") && line.contains("jq"))
        .map(Into::into)
        .collect()
}

#[test]
fn operators_find_events_in_the_journal() {
    if let Err(why) = p4shield_testbed::usable() {
        p4shield_need::skip("machine", why);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let log = log(folder.path());
    if find("jq").is_none() {
        p4shield_need::skip("jq", "the package jq is missing");
        return;
    }
    // A journal with a line of systemd's own, and lines of the auditor and of the limit.
    let journalctl = folder.path().join("journalctl");
    let more = r#"{"event":"found","finding":"bypassed"}\n{"event":"lines_omitted","of":"x","lines":3}\n"#;
    let script = format!("#!/bin/sh\necho 'Started P4 Shield.'\nprintf '{more}'\ncat {}\n", log.display());
    std::fs::write(&journalctl, script).unwrap();
    std::fs::set_permissions(&journalctl, Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let commands = commands();
    assert_eq!(commands.len(), 5, "{commands:?}");
    for command in commands {
        let output = Command::new("sh").args(["-c", &command]).env("PATH", &path).output().unwrap();
        let found = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && !found.is_empty(), "{command}: {}", stderr(&output));
        // What a command selects has the fields that it shows.
        assert!(!found.contains(":null") || found.contains("\"port\":null"), "{command}: {found}");
    }
}
