//! `p4shield exec`: a command in a tenant's switch compartment.

use crate::scene::Scene;
use crate::two_tenants;
use p4shield_testbed::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Output, Stdio};

/// Runs a shell's script in a tenant's compartment.
pub(crate) fn sh(scene: &Scene, tenant: &str, script: &str) -> Output {
    scene.exec(tenant).args(["sh", "-c", script]).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}

#[test]
fn a_command_runs_in_the_switch_that_serves_the_tenant() {
    let Some(scene) = two_tenants() else { return };
    scene.topology("apply");
    let bob = sh(&scene, "bob", "hostname; ovs-vsctl list-ports br0");
    assert_eq!(text(&bob.stdout), "bob\ngw-2\ninout", "{}", text(&bob.stderr));
    scene.configure("1", &["alice", "bob"]);
    scene.topology("apply");
    let all = sh(&scene, "bob", "hostname; ovs-vsctl list-ports br0");
    assert_eq!(text(&all.stdout), "all\ngw-1\ngw-2\ninout", "{}", text(&all.stderr));
}

#[test]
fn exit_codes_input_and_outputs_are_the_commands() {
    let Some(scene) = two_tenants() else { return };
    scene.topology("apply");
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137)] {
        assert_eq!(sh(&scene, "alice", script).status.code(), Some(code), "{script}");
    }
    for (program, code) in [("no-such-program", 127), ("/usr", 126)] {
        let Output { status, stderr, .. } = scene.exec("alice").arg(program).output().unwrap();
        assert_eq!((status.code(), text(&stderr).contains(program)), (Some(code), true), "{stderr:?}");
    }
    let mut cat = scene.exec("alice");
    cat.args(["sh", "-c", "cat; echo end >&2"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut cat = cat.stderr(Stdio::piped()).spawn().unwrap();
    let bytes: Vec<u8> = (0..1 << 20).map(|n: u32| n.to_le_bytes()[0]).collect();
    let mut input = cat.stdin.take().unwrap();
    let sent = bytes.clone();
    let feed = std::thread::spawn(move || input.write_all(&sent).unwrap());
    let output = cat.wait_with_output().unwrap();
    feed.join().unwrap();
    assert_eq!((output.stdout == bytes, text(&output.stderr)), (true, "end".to_owned()));
}

#[test]
fn a_command_has_no_environment_and_descriptor_of_the_host() {
    let Some(scene) = two_tenants() else { return };
    scene.topology("apply");
    let names = |output: Output| {
        let mut names: Vec<_> =
            text(&output.stdout).lines().filter_map(|l| Some(l.split_once('=')?.0.to_owned())).collect();
        names.sort();
        names
    };
    let mut env = scene.exec("alice");
    env.arg("env").env("SECRET", "of the host").env("TERM", "xterm");
    let given = ["OVS_DBDIR", "OVS_LOGDIR", "OVS_RUNDIR", "OVS_SYSCONFDIR", "PATH", "TERM"];
    assert_eq!(names(env.output().unwrap()), given);
    // A shell starts both with a file of the host open.
    let inherits = |command: &Command| {
        let words: Vec<_> = command.get_args().map(|a| a.to_str().unwrap()).collect();
        let run = format!("exec 9</etc/passwd; {} {}", command.get_program().display(), words.join(" "));
        scene.host.command("sh").arg("-c").arg(run).output().unwrap()
    };
    let read = "'read -r line <&9; echo $line'";
    let (mut inside, mut outside) = (scene.exec("alice"), Command::new("env"));
    let (inside, outside) =
        (inherits(inside.args(["sh", "-c", read])), inherits(outside.args(["sh", "-c", read])));
    assert!(text(&outside.stdout).contains("root"), "the shell passes it on: {outside:?}");
    assert_eq!(text(&inside.stdout), "");
    assert!(text(&inside.stderr).contains("9: Bad file descriptor"), "{inside:?}");
}

#[test]
fn a_command_that_cannot_be_served_is_refused_with_a_remedy() {
    let Some(scene) = two_tenants() else { return };
    let refused = |tenant: &str, code: i32, says: &str| {
        let Output { status, stderr, .. } = sh(&scene, tenant, "true");
        assert_eq!((status.code(), text(&stderr).contains(says)), (Some(code), true), "{}", text(&stderr));
    };
    refused("alice", 1, "no topology was applied: run p4shield topology apply");
    scene.topology("apply");
    refused("carol", 3, "no tenant carol, but alice, bob");
    for (pid, _) in scene.processes(1) {
        let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
    }
    wait_until("the compartment's end", 10, || scene.processes(1).is_empty()).unwrap();
    refused("alice", 1, "the switch compartment alice does not run: run p4shield topology apply");
}

#[test]
fn signals_reach_the_command_and_its_end_ends_it_all() {
    let Some(scene) = two_tenants() else { return };
    scene.topology("apply");
    let started = |script: &str| {
        let mut command = scene.exec("alice");
        command.args(["sh", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let pid = Pid::from_child(&child);
        (child, pid)
    };
    // The child is there before the signal: one that the shell starts afterwards would get none.
    let script = "sleep 60 & child=$!; trap 'wait $child; exit $?' TERM; echo ready; wait";
    let (mut child, pid) = started(script);
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15), "its children got the signal, too");
    assert_eq!(text(&sh(&scene, "alice", "sleep 1001 & echo left").stdout), "left", "does not wait for it");
    let children = || {
        let uid = scene.uid(1).to_string();
        let listed = Command::new("ps").args(["-o", "stat=,args=", "--user", &uid]).output().unwrap();
        text(&listed.stdout)
    };
    wait_until("its child's end", 10, || !children().contains("sleep 1001")).unwrap();
    wait_until("no defunct process", 10, || !children().lines().any(|l| l.starts_with('Z'))).unwrap();
    let (mut child, _) = started("echo ready; sleep 1000; echo");
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the end of the shell", 10, || !scene.processes(1).iter().any(|(_, p)| p == "sh")).unwrap();
}

#[test]
fn a_command_gets_no_terminal_and_sends_it_no_controls() {
    let Some(scene) = two_tenants() else { return };
    scene.topology("apply");
    let script = r"printf 'a\033[2Jb\n'; for n in 0 1 2; do test -t $n && echo terminal; done; true";
    let on_a_terminal = |run: Command| {
        let words = std::iter::once(run.get_program()).chain(run.get_args());
        let words: Vec<_> =
            words.map(|w| format!("'{}'", w.to_str().unwrap().replace('\'', r"'\''"))).collect();
        let mut terminal = scene.host.command("script");
        terminal.args(["-qec", &words.join(" "), "/dev/null"]).stdin(Stdio::null());
        text(&terminal.output().unwrap().stdout)
    };
    let mut outside = Command::new("sh");
    outside.args(["-c", script]);
    let outside = on_a_terminal(outside);
    assert!(outside.contains("\x1b[2J") && outside.contains("terminal"), "{outside:?}");
    let mut inside = scene.exec("alice");
    inside.args(["sh", "-c", script]);
    assert_eq!(on_a_terminal(inside), "a\u{fffd}[2Jb");
}

/// The rights of a process, as the kernel says: status, limits, namespaces, cgroup.
fn rights(pid: i32) -> BTreeMap<String, String> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
    let mut rights = BTreeMap::new();
    for line in read("status").lines() {
        let (field, value) = line.split_once(':').unwrap();
        let is_right = ["Uid", "Gid", "Groups", "NoNewPrivs", "Cpus_allowed"].contains(&field);
        if is_right || field.starts_with("Cap") || field.starts_with("Seccomp") {
            rights.insert(field.to_owned(), value.trim().to_owned());
        }
    }
    for line in read("limits").lines().skip(1) {
        rights.insert(line[..25].trim_end().to_owned(), line[25..].to_owned());
    }
    for kind in ["user", "mnt", "net", "ipc", "uts", "pid", "cgroup"] {
        let inode = fs::metadata(format!("/proc/{pid}/ns/{kind}")).unwrap().ino();
        rights.insert(format!("namespace {kind}"), inode.to_string());
    }
    rights.insert("cgroup".to_owned(), read("cgroup"));
    rights
}

#[test]
fn a_command_has_what_the_switch_has() {
    let Some(scene) = two_tenants() else { return };
    scene.topology("apply");
    let mut command = scene.exec("alice");
    let mut child = command.args(["sleep", "1000"]).stdin(Stdio::null()).spawn().unwrap();
    let pid_of = |name: &str| scene.processes(1).into_iter().find(|(_, p)| p == name).map(|(pid, _)| pid);
    wait_until("the command", 20, || pid_of("sleep").is_some()).unwrap();
    let (command, switch) = (pid_of("sleep").unwrap(), pid_of("ovs-vswitchd").unwrap());
    assert_eq!(rights(command), rights(switch));
    assert_ne!(rights(command), rights(std::process::id().cast_signed()), "the host has others");
    let open = fs::read_dir(format!("/proc/{command}/fd")).unwrap();
    let open: BTreeMap<_, _> = open
        .map(|fd| fd.unwrap())
        .map(|fd| (fd.file_name(), fs::read_link(fd.path()).unwrap().display().to_string()))
        .collect();
    assert!(open.len() == 3 && open.values().all(|to| to.starts_with("pipe:")), "{open:?}");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
}
