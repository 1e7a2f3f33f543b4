//! Keys from a handshake: daemon, P4 VM and agent as processes, and a host between them that attacks.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{code, p4shield, stderr, stdout};
use p4shield_abi::handshake_page::HANDSHAKE_PAGE_SIZE;
use p4shield_channel::{HandshakePage, SharedMemory};
use serde_json::Value;
use tempfile::TempDir;

/// `VM` is replaced by the lines of the VM.
const CONFIG: &str = r#"
attachment = "dpdk"
[daemon]
socket = "daemon.sock"
attach_socket = "attach.sock"
state = "state"
[[tenant]]
name = "alice"
TENANT
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.2"]
info_page = "web.info"
log_page = "web.log"
VM
"#;

const SAMPLE: &str = "sample = true\n";

/// A process, killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(words: &[&str], log: &Path) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield"));
    let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Running(command.spawn().unwrap())
}

/// A host with a daemon, and a VM whose agent may run.
struct World {
    folder: TempDir,
    daemon: Running,
}

impl World {
    /// `vm` has the VM's lines of the configuration.
    fn new(tenant: &str, vm: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for key in ["agent.key", "other.key", "file.key"] {
            let made = p4shield(&["keygen", &at(key).display().to_string()]);
            assert_eq!(code(&made), 0, "{}", stderr(&made));
        }
        let public = stdout(&p4shield(&["key", "public", &at("agent.key").display().to_string()]));
        let vm = vm.replace("PUBLIC", public.trim());
        let config = CONFIG.replace("TENANT", tenant).replace("VM", &vm);
        std::fs::write(at("p4shield.toml"), config).unwrap();
        std::fs::write(at("sample.toml"), SAMPLE).unwrap();
        let config = at("p4shield.toml").display().to_string();
        let daemon = start(&["run", "--config", &config], &at("daemon.log"));
        let world = Self { folder, daemon };
        // A daemon that answers has made all pages.
        wait_for("the daemon", || world.web().is_object());
        world
    }

    /// A VM whose agent has the key `agent.key`.
    fn of_known_agent() -> Self {
        let vm = "key = \"handshake\"\nhandshake_page = \"web.handshake\"\nagent_key = \"PUBLIC\"";
        Self::new("evidence = \"sample\"", vm)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }

    /// Starts the VM's agent, with the page and with further options.
    fn agent(&self, page: &str, more: &[&str]) -> Running {
        let (key, info, page) = (self.text("vm.key"), self.text("web.info"), self.text(page));
        let (policy, state, socket) =
            (self.text("sample.toml"), self.text("vm.epoch"), self.text("agent.sock"));
        let own = self.text("agent.key");
        let mut words = vec!["agent", "run", "--tenant", "alice", "--vm", "web", "--key", &key];
        words.extend([
            "--info-page",
            &info,
            "--handshake-page",
            &page,
            "--state",
            &state,
            "--socket",
            &socket,
        ]);
        for (option, value) in [("--policy", &*policy), ("--agent-key", &*own)] {
            if !more.contains(&option) {
                words.extend([option, value]);
            }
        }
        words.extend(more);
        start(&words, &self.at("agent.log"))
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).unwrap_or_default()
    }

    fn status(&self, more: &[&str]) -> String {
        stdout(&p4shield(&[&["status", "--socket", &self.text("daemon.sock")], more].concat()))
    }

    /// Returns the status of the VM `web`.
    fn web(&self) -> Value {
        let status: Value = serde_json::from_str(&self.status(&["--json"])).unwrap_or_default();
        status["tenants"][0]["vms"][0].clone()
    }

    fn accepted(&self) -> u64 {
        self.web()["info"]["accepted"].as_u64().unwrap_or(0)
    }

    fn transcript(&self) -> Option<String> {
        self.web()["handshake"]["session"]["transcript"].as_str().map(str::to_owned)
    }

    fn agent_status(&self) -> Value {
        let status = p4shield(&["agent", "status", "--json", "--socket", &self.text("agent.sock")]);
        serde_json::from_str(&stdout(&status)).unwrap_or_default()
    }
}

fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(90);
    while !happened() {
        assert!(Instant::now() < end, "{what} never came");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn agent_and_p4_vm_agree_on_keys_and_say_with_whom() {
    let world = World::of_known_agent();
    wait_for("the problem", || world.status(&[]).contains("has not agreed on keys with the P4 VM yet"));
    let _agent = world.agent("web.handshake", &[]);
    wait_for("information", || world.accepted() > 5);
    let agent = world.agent_status();
    let transcript = world.transcript().unwrap();
    assert_eq!(agent["handshake"]["session"]["transcript"], *transcript, "both log the same session");
    assert_eq!(agent["key"], world.web()["keys"]["key"]);
    let status = world.status(&[]);
    assert!(
        status.contains(&format!("session {}: not attested, known agent", &transcript[..16])),
        "{status}"
    );
    assert!(!status.contains("has not agreed on keys"), "{status}");
    wait_for("log records", || world.web()["log_records"].as_u64() > Some(2));
    // The auditor finds the key and the note where the agent left them.
    let id = stdout(&p4shield(&["key", "id", &world.text("vm.key")]));
    assert_eq!(agent["key"], id.trim());
    let note = world.log("vm.key.session");
    assert!(note.contains(&transcript) && note.contains("not attested"), "{note}");
    let log = world.log("agent.log");
    assert!(log.contains("session_agreed") && log.contains("not attested"), "{log}");
}

#[test]
fn restarts_of_either_side_agree_on_new_keys() {
    let world = World::of_known_agent();
    let agent = world.agent("web.handshake", &[]);
    wait_for("information", || world.accepted() > 5);
    let first = world.transcript().unwrap();
    let key = world.agent_status()["key"].clone();
    // The agent restarts, and the P4 VM goes on.
    drop(agent);
    let _agent = world.agent("web.handshake", &[]);
    wait_for("a session", || world.transcript().is_some_and(|t| t != first));
    let (second, before) = (world.transcript().unwrap(), world.accepted());
    wait_for("information", || world.accepted() > before + 5);
    assert_ne!(world.agent_status()["key"], key);
    assert_eq!(world.web()["info"]["replayed"], 0);
    // The P4 VM is killed, and the agent goes on.
    let status: Value = serde_json::from_str(&world.status(&["--json"])).unwrap();
    let pid = status["tenants"][0]["pid"].as_i64().unwrap();
    let killed = Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
    assert!(killed.success());
    wait_for("a third session", || world.transcript().is_some_and(|t| t != first && t != second));
    wait_for("information", || world.accepted() > 5);
    assert_eq!(world.agent_status()["handshake"]["agreed"], 2);
}

/// Starts an agent with these options, and waits until it has failed for this reason.
fn agrees_on_nothing(world: &World, options: &[&str], why: &str) -> Running {
    let agent = world.agent("web.handshake", options);
    wait_for(why, || world.log("agent.log").contains(why));
    assert_eq!((world.transcript(), world.accepted()), (None, 0), "{options:?}");
    assert!(!world.at("vm.key").exists(), "no key was left to an auditor");
    agent
}

#[test]
fn parties_that_are_not_expected_agree_on_nothing() {
    // A party that waits for an answer does so for seconds: all cases at once.
    std::thread::scope(|cases| {
        // The agent's key is part of the terms, so that the first message does not authenticate.
        let why = "the peer has another tenant, VM or configuration";
        cases.spawn(move || {
            let world = World::of_known_agent();
            agrees_on_nothing(&world, &["--agent-key", &world.text("other.key")], why);
        });
        for options in [["--age-limit-ms", "900"], ["--no-program", "drop"]] {
            cases.spawn(move || agrees_on_nothing(&World::of_known_agent(), &options, why));
        }
        cases.spawn(|| {
            let world = World::of_known_agent();
            let policy = "[sev-snp]\nany_measurement = true\nunchecked_revocation = true\n";
            std::fs::write(world.at("snp.toml"), policy).unwrap();
            let why = "the peer is not attested, and this party's configuration demands it";
            let _agent = agrees_on_nothing(&world, &["--policy", &world.text("snp.toml")], why);
            wait_for("the P4 VM's reason", || world.status(&[]).contains("none that attests it"));
        });
    });
}

/// What a host does with a message.
type Move = fn(u8, &[u8]) -> Option<Vec<u8>>;

/// Relays messages between the pages of agent and P4 VM, as a host does that attacks each first message of a
/// kind.
fn relay(world: &World, attack: Move, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let open = |name| SharedMemory::open_file(&world.at(name), HANDSHAKE_PAGE_SIZE).unwrap();
    let mut agent = HandshakePage::of_p4_vm(open("vm.handshake")).unwrap();
    let mut p4vm = HandshakePage::of_user_vm(open("web.handshake")).unwrap();
    std::thread::spawn(move || {
        let mut attacked = [false; 8];
        let mut passed = |message: &[u8]| {
            let number = message.get(4).copied().unwrap_or(0) & 7;
            if std::mem::replace(&mut attacked[usize::from(number)], true) || message.is_empty() {
                return Some(message.to_vec());
            }
            attack(number, message)
        };
        while !stop.load(Ordering::Relaxed) {
            if let Ok(Some(message)) = agent.receive().map(|m| m.map(<[u8]>::to_vec)) {
                passed(&message).into_iter().for_each(|m| p4vm.send(&m).unwrap());
            }
            if let Ok(Some(message)) = p4vm.receive().map(|m| m.map(<[u8]>::to_vec)) {
                passed(&message).into_iter().for_each(|m| agent.send(&m).unwrap());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    })
}

#[test]
fn a_host_that_attacks_each_message_gains_delay_only() {
    let attacks: [(&str, Move); 4] = [
        ("edits the last byte", |_, m| {
            let mut m = m.to_vec();
            *m.last_mut()? ^= 1;
            Some(m)
        }),
        ("edits the header", |n, m| {
            let mut m = m.to_vec();
            m[usize::from(n) % 5] ^= 0x40;
            Some(m)
        }),
        ("cuts", |n, m| Some(m[..m.len() * usize::from(n) / 8].to_vec())),
        ("keeps", |_, _| None),
    ];
    let world = World::of_known_agent();
    for (name, attack) in attacks {
        let page = SharedMemory::create_file(&world.at("vm.handshake"), HANDSHAKE_PAGE_SIZE, 0o600).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let relay = relay(&world, attack, Arc::clone(&stop));
        let before = world.transcript();
        let agent = world.agent("vm.handshake", &[]);
        wait_for(name, || world.transcript() != before);
        wait_for(name, || world.agent_status()["handshake"]["session"].is_object());
        let (agents, p4vms) = (world.agent_status(), world.transcript().unwrap());
        assert_eq!(agents["handshake"]["session"]["transcript"], *p4vms, "{name}");
        assert_eq!(agents["key"], world.web()["keys"]["key"], "{name}");
        stop.store(true, Ordering::Relaxed);
        relay.join().unwrap();
        drop((agent, page));
        std::fs::remove_file(world.at("vm.handshake")).unwrap();
    }
}

#[test]
fn a_host_that_keeps_messages_causes_named_errors() {
    let world = World::of_known_agent();
    // No relay: the agent's page is not the P4 VM's.
    let page = SharedMemory::create_file(&world.at("vm.handshake"), HANDSHAKE_PAGE_SIZE, 0o600).unwrap();
    let _agent = world.agent("vm.handshake", &[]);
    let why = "timed out while it waited for the P4 VM's answer";
    wait_for(why, || world.agent_status()["handshake"]["error"].as_str().is_some_and(|e| e.contains(why)));
    let shown = stdout(&p4shield(&["agent", "status", "--socket", &world.text("agent.sock")]));
    assert!(shown.contains("no session with the P4 VM: the handshake timed out"), "{shown}");
    drop(page);
}

/// Reads the memory of a process, except for what cannot be read.
pub(crate) fn memory_of(pid: u32) -> Vec<u8> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut all = Vec::new();
    for line in maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|p| p.starts_with("rw"))) {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [from, to] = [from, to].map(|n| u64::from_str_radix(n, 16).unwrap());
        let mut part = Vec::new();
        if memory.seek(SeekFrom::Start(from)).is_ok() {
            // An error ends what can be read of this mapping.
            let _ = (&mut memory).take(to - from).read_to_end(&mut part);
        }
        all.extend(part);
    }
    all
}

/// Returns where the host sees `secret`: the daemon's memory, and all files but those of the VM itself.
fn places_of(world: &World, secret: &[u8]) -> Vec<String> {
    let contains = |bytes: &[u8]| bytes.windows(secret.len()).any(|window| window == secret);
    let mut found = Vec::new();
    if contains(&memory_of(world.daemon.0.id())) {
        found.push("the daemon's memory".to_owned());
    }
    let mut folders = vec![world.folder.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let is_vms = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("vm."));
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && !is_vms && contains(&std::fs::read(&path).unwrap()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[test]
fn the_host_sees_a_key_only_if_it_is_in_a_file() {
    let world = World::of_known_agent();
    let _agent = world.agent("web.handshake", &[]);
    wait_for("information", || world.accepted() > 5);
    // A value that programs may read, which no other part of the machine has.
    let value = 0x5a17_c0de_1234_9876_u64;
    let set = ["agent", "set", "3", &value.to_string(), "--socket", &world.text("agent.sock")];
    assert_eq!(code(&p4shield(&set)), 0);
    let before = world.accepted();
    wait_for("information with the value", || world.accepted() > before + 5);
    let key = std::fs::read(world.at("vm.key")).unwrap();
    for secret in [&key[..], &value.to_le_bytes(), &value.to_be_bytes()] {
        assert_eq!(places_of(&world, secret), [""; 0]);
    }
    // The same search finds the key of a file at once.
    let world = World::new("key_file = \"file.key\"", "");
    wait_for("the P4 VM", || world.web()["keys"].is_object());
    let places = places_of(&world, &std::fs::read(world.at("file.key")).unwrap());
    assert!(places.iter().any(|p| p == "the daemon's memory"), "{places:?}");
    assert!(places.iter().any(|p| p.ends_with("file.key")), "{places:?}");
}
