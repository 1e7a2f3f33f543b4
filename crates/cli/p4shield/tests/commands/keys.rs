//! `p4shield key` with a daemon, a P4 VM and an agent.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{code, p4shield, stderr, stdout};
use serde_json::Value;
use tempfile::TempDir;

const CONFIG: &str = r#"
attachment = "dpdk"
[daemon]
socket = "daemon.sock"
attach_socket = "attach.sock"
[[tenant]]
name = "alice"
key_file = "alice.key"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.2"]
info_page = "web.info"
log_page = "web.log"
[[tenant.vm]]
name = "db"
addresses = ["10.0.0.3"]
key_file = "db.key"
"#;

/// A process, killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(words: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Running(command.spawn().unwrap())
}

/// A host with a daemon, and a VM with an agent.
struct World {
    folder: TempDir,
    _daemon: Running,
    _agent: Running,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        for words in [["generate", &at("alice.key")], ["generate", &at("db.key")]] {
            let made = p4shield(&[&["key"], &words[..]].concat());
            assert_eq!(code(&made), 0, "{}", stderr(&made));
        }
        std::fs::write(at("p4shield.toml"), CONFIG).unwrap();
        let daemon = start(&["run", "--config", &at("p4shield.toml")]);
        wait_for("the info page", || Path::new(&at("web.info")).exists());
        // The VM's copy.
        std::fs::copy(at("alice.key"), at("vm.key")).unwrap();
        let of_vm =
            ["--tenant", "alice", "--vm", "web", "--key", &at("vm.key"), "--info-page", &at("web.info")];
        let own = ["--state", &at("vm.epoch"), "--socket", &at("agent.sock")];
        let agent = start(&[&["agent", "run"], &of_vm[..], &own].concat());
        let world = Self { folder, _daemon: daemon, _agent: agent };
        wait_for("information", || world.web()["info"]["accepted"].as_u64() > Some(5));
        world
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn key(&self, words: &[&str]) -> std::process::Output {
        p4shield(&[&["key"], words].concat())
    }

    fn rotate(&self, words: &[&str]) -> std::process::Output {
        let socket = self.at("daemon.sock").display().to_string();
        self.key(&[&["rotate"], words, &["--socket", &socket]].concat())
    }

    /// Returns the number of the key in a file.
    fn id(&self, name: &str) -> String {
        stdout(&self.key(&["id", &self.at(name).display().to_string()])).trim().to_owned()
    }

    fn install(&self) {
        let (new, path) = (self.at("alice.key"), self.at("vm.key"));
        let done = self.key(&["install", &new.display().to_string(), &path.display().to_string()]);
        assert_eq!(code(&done), 0, "{}", stderr(&done));
    }

    fn status(&self, more: &[&str]) -> String {
        let socket = self.at("daemon.sock").display().to_string();
        stdout(&p4shield(&[&["status", "--socket", &socket], more].concat()))
    }

    /// Returns the status of the VM `web`.
    fn web(&self) -> Value {
        let status: Value = serde_json::from_str(&self.status(&["--json"])).unwrap_or_default();
        status["tenants"][0]["vms"][0].clone()
    }
}

fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !happened() {
        assert!(Instant::now() < end, "{what} never came");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_rotation_is_started_followed_and_shown() {
    let world = World::new();
    let old = world.id("alice.key");
    assert_eq!(old.len(), 16);
    assert_eq!(world.web()["keys"]["key"], old);
    let done = world.rotate(&["alice", "--window", "5m"]);
    assert_eq!(code(&done), 0, "{}", stderr(&done));
    let new = world.id("alice.key");
    let text = stdout(&done);
    for part in [&*new, &*old, "both for", "VM (web)", "p4shield key install NEW KEY_FILE"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    wait_for("the window", || world.status(&[]).contains("agent has the previous one"));
    world.install();
    wait_for("the agent", || world.status(&[]).contains("agent follows, log has the previous one"));
    wait_for("the log", || world.status(&[]).contains(&format!("key {new}\n")));
    let web = world.web();
    assert_eq!((&web["info"]["forged"], &web["keys"]["agent_follows"]), (&0.into(), &true.into()));
    // For scripts.
    let json: Value = serde_json::from_str(&stdout(&world.rotate(&["alice", "--json"]))).unwrap();
    assert_eq!((&json["tenant"], &json["previous"]), (&"alice".into(), &new.into()));
    assert_eq!(json["key"], world.id("alice.key"));
}

#[test]
fn wrong_rotations_are_refused_with_a_reason() {
    let world = World::new();
    let short = world.at("short.key");
    std::fs::write(&short, "short").unwrap();
    let short = short.display().to_string();
    for (words, exit, why) in [
        (&["bob"][..], 3, "no tenant \"bob\""),
        (&["alice/web"], 3, "no key of its own"),
        (&["alice/x"], 3, "has no VM \"x\""),
        (&["alice", "--key-file", &short], 3, "short.key"),
        (&["alice", "--window", "30h"], 3, "too long"),
        (&["alice", "--window", "soon"], 2, "write a number with a unit"),
    ] {
        let refused = world.rotate(words);
        assert_eq!(code(&refused), exit, "{words:?}: {}", stderr(&refused));
        assert!(stderr(&refused).contains(why), "{words:?}: {}", stderr(&refused));
    }
    // A VM with a key of its own, and one that no agent uses.
    assert!(stdout(&world.rotate(&["alice/db"])).contains("db.key has key"));
    assert_eq!(code(&world.rotate(&["alice"])), 0);
    let again = world.rotate(&["alice"]);
    assert!(code(&again) == 3 && stderr(&again).contains("rotates already"), "{}", stderr(&again));
    let at_once = world.rotate(&["alice", "--window", "0s"]);
    assert!(stdout(&at_once).contains("has ended"), "{}", stdout(&at_once));
    // A file that is no key replaces none.
    let key = world.at("vm.key").display().to_string();
    let before = world.id("vm.key");
    assert_eq!(code(&world.key(&["install", &short, &key])), 1);
    assert_eq!(world.id("vm.key"), before);
}
