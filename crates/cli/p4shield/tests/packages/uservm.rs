//! Agent and auditor as one static program.

use crate::common::{code, p4shield, stderr};
use object::{Object, ObjectKind};
use p4shield_testbed::guest::uservm_program;
use p4shield_testbed::{Guarded, NetNs, leftover, wait_until};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const CONFIG: &str = r#"
attachment = "dpdk"
[daemon]
socket = "daemon.sock"
attach_socket = "attach.sock"
state = "state"
[[tenant]]
name = "alice"
key_file = "vm.key"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.2"]
info_page = "web.info"
log_page = "web.log"
"#;

/// A user VM whose root file system has nothing but the program, and the folder of its pages.
struct UserVm {
    root: TempDir,
    interfaces: NetNs,
}

impl UserVm {
    fn new(program: &Path) -> Self {
        let root = leftover::folder("uservm").unwrap();
        std::fs::copy(program, root.path().join("p4shield")).unwrap();
        let interfaces = NetNs::create("uservm").unwrap();
        interfaces.ip("link set lo up").unwrap();
        Self { root, interfaces }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Returns a command of the program, whose log is in a file.
    fn command(&self, words: &[&str], log: &str) -> Command {
        let mut command = self.interfaces.command("unshare");
        // The files of the kernel, in mounts that end with the process.
        let mounted = "mkdir -p $0/proc $0/sys && mount -t proc proc $0/proc && mount -t sysfs sys $0/sys && \
                       mount -t bpf bpf $0/sys/fs/bpf; exec chroot $0 /p4shield \"$@\"";
        command.args(["--mount", "sh", "-c", mounted]).arg(self.root.path()).args(words);
        let log = std::fs::File::create(self.at(log)).unwrap();
        command.stdin(Stdio::null()).stderr(log);
        command
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).unwrap_or_default()
    }
}

#[test]
fn one_static_program_publishes_and_audits() {
    let program = uservm_program().unwrap();
    let bytes = std::fs::read(&program).unwrap();
    assert_eq!(object::File::parse(&*bytes).unwrap().kind(), ObjectKind::Executable, "it loads no library");
    let vm = UserVm::new(&program);
    assert!(vm.command(&["keygen", "/vm.key"], "keygen.log").output().unwrap().status.success());
    std::fs::write(vm.at("p4shield.toml"), CONFIG).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_p4shield"));
    run.arg("run").arg("--config").arg(vm.at("p4shield.toml")).stdin(Stdio::null());
    let _daemon = Guarded::spawn(run.stderr(std::fs::File::create(vm.at("run.log")).unwrap())).unwrap();
    let socket = vm.at("daemon.sock").display().to_string();
    let state = || {
        let status = p4shield(&["status", "--json", "--socket", &socket]).stdout;
        serde_json::from_slice::<Value>(&status).unwrap_or_default()["tenants"][0].clone()
    };
    wait_until("the P4 VM", 60, || state()["state"] == "running").unwrap();

    let vm_words = ["--tenant", "alice", "--vm", "web", "--key", "/vm.key", "--interface", "lo"];
    let agent_words = ["--info-page", "/web.info", "--state", "/epoch", "--socket", "/agent.sock"];
    let words = [&["agent", "run"], &vm_words[..], &agent_words].concat();
    let _agent = Guarded::spawn(&mut vm.command(&words, "agent.log")).unwrap();
    let known = wait_until("information", 60, || state()["vms"][0]["info"]["status"] == "known");
    known.unwrap_or_else(|e| panic!("{e}\n{}\n{:#}", vm.log("agent.log"), state()));
    let agent_socket = vm.at("agent.sock").display().to_string();
    let answer = p4shield(&["agent", "set", "3", "1", "--socket", &agent_socket]);
    assert_eq!(code(&answer), 0, "the installed command asks it: {}", stderr(&answer));

    let words = [&["audit", "--json", "--for", "3", "--log-page", "/web.log"], &vm_words[..]].concat();
    let audit = vm.command(&words, "audit.log").output().unwrap();
    let lines = String::from_utf8(audit.stdout).unwrap();
    assert!(lines.contains("\"blind\":\"\""), "it has no tap: {lines}{}", vm.log("audit.log"));
    assert_eq!(audit.status.code(), Some(17), "it proves nothing without packets and programs: {lines}");
}
