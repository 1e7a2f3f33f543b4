//! Switches of tenants in virtual machines.

use super::daemon::{Daemon, wait_for_pings};
use super::scene::{Scene, pings};
use super::two_tenants;
use p4shield_testbed::guest::tenant_switch_image;
use p4shield_testbed::{Guest, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

const PROGRAM: &str = "qemu-system-x86_64";
/// The name of its process, which Linux cuts off.
const QEMU: &str = "qemu-system-x86";

/// Two tenants whose switches are to be in virtual machines; `None` where there are none.
fn two_machines() -> Option<Scene> {
    if let Err(why) = Guest::usable() {
        p4shield_need::skip("qemu", why);
        return None;
    }
    let scene = two_tenants()?;
    configure(&scene, "vm", Path::new(PROGRAM));
    Some(scene)
}

/// Writes a configuration with switches in these compartments, and this program of QEMU.
fn configure(scene: &Scene, compartment: &str, qemu: &Path) {
    scene.configure("2", &["alice", "bob"]);
    let text = fs::read_to_string(scene.config()).unwrap();
    let image = match compartment {
        "vm" => format!("image = {:?}\n", image_within_reach(scene)),
        _ => String::new(),
    };
    let keys = format!(
        "[machine]\naccelerator = \"tcg\"\nqemu = {qemu:?}\n[topology]\ncompartment = \"{compartment}\"\n\
         {image}"
    );
    fs::write(scene.config(), text.replacen("[topology]\n", &keys, 1)).unwrap();
}

/// Returns a copy of the image that compartments' users reach: CI builds below a home folder that is
/// closed to others.
pub(crate) fn image_within_reach(scene: &Scene) -> PathBuf {
    let copy = scene.path("image");
    if !copy.exists() {
        fs::set_permissions(scene.path(""), Permissions::from_mode(0o711)).unwrap();
        fs::create_dir(&copy).unwrap();
        for file in fs::read_dir(tenant_switch_image().unwrap()).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
    }
    copy
}

/// Makes a program of QEMU that hangs in alice's compartment while the folder has a file `hangs`.
fn qemu_that_may_hang(folder: &Path) -> PathBuf {
    fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    let program = folder.join("bin/qemu");
    fs::create_dir(folder.join("bin")).unwrap();
    let text = format!(
        "#!/bin/sh\nif [ -e {}/hangs ] && [ \"$(uname -n)\" = alice ]; then exec sleep 1000; fi\nexec \
         {PROGRAM} \"$@\"\n",
        folder.display()
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    program
}

/// Returns the process that is a compartment's QEMU.
fn qemu(scene: &Scene, compartment: u32) -> i32 {
    let processes = scene.processes(compartment);
    processes
        .iter()
        .find(|(_, program)| program.starts_with(QEMU))
        .unwrap_or_else(|| panic!("{processes:?}"))
        .0
}

/// Checks what QEMU of each compartment has.
fn qemu_has_nothing_of_the_host(scene: &Scene) {
    let own = |kind: &str| fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
    for (number, other) in [(1, 2), (2, 1)] {
        let (pid, other) = (qemu(scene, number), qemu(scene, other));
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("{name}: {status}"))
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(field("Uid:"), [scene.uid(number); 4].map(|uid| uid.to_string()).join(" "));
        for set in ["CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            assert_eq!(field(set), "0000000000000000", "{set}");
        }
        assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1".to_owned(), "2".to_owned()));
        for kind in ["net", "user", "pid", "mnt", "ipc", "uts"] {
            let of = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
            assert!(of(pid) != own(kind) && of(pid) != of(other), "{kind}");
        }
        let visible = fs::read_dir(format!("/proc/{pid}/root")).unwrap();
        let mut visible: Vec<_> = visible.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        visible.retain(|name| ["etc", "home", "root", "proc", "sys", "boot"].contains(&name.as_str()));
        // The linker's cache is there.
        assert_eq!(visible, ["etc"]);
        assert!(!fs::exists(format!("/proc/{pid}/root/etc/passwd")).unwrap());
        assert!(!fs::exists(format!("/proc/{pid}/root/dev/net/tun")).unwrap());
    }
}

/// Checks `p4shield exec`.
fn commands_run_in_the_machine(scene: &Scene) {
    let run = |words: &[&str], input: &str| {
        let mut exec = scene.exec("alice");
        exec.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = exec.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        let text = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        (status.code().unwrap(), text)
    };
    let (code, [shown, _]) = run(&["ovs-vsctl", "show"], "");
    assert!(code == 0 && shown.contains("Bridge br0") && shown.contains("gw-1"), "{shown}");
    let rule = "table=7,priority=1,actions=drop\n";
    assert_eq!(run(&["ovs-ofctl", "add-flows", "br0", "-"], rule).0, 0);
    let (_, [flows, _]) = run(&["ovs-ofctl", "dump-flows", "br0", "table=7"], "");
    assert!(flows.contains("actions=drop"), "{flows}");
    let (code, [_, why]) = run(&["cat", "/etc/passwd"], "");
    assert!(code == 127 && why.contains("cannot run cat in the virtual machine"), "{code} {why}");
    assert_eq!(run(&["ovs-vsctl", "no-such-command"], "").0, 1);
}

#[test]
fn switches_in_virtual_machines_go_where_the_policy_says() {
    let Some(scene) = two_machines() else { return };
    let applied = scene.topology("apply");
    assert_eq!(applied["started"].as_array().unwrap().len(), 2, "{applied}");
    let [web, db, bob] = &scene.vms[..] else { unreachable!() };
    assert_eq!(pings(&web.ns, db.address), 10, "VMs of a tenant reach each other");
    assert_eq!((pings(&scene.outside, web.address), pings(&scene.outside, bob.address)), (10, 10));
    assert_eq!(pings(&web.ns, bob.address), 0, "another tenant only through the outside's router");
    let applied = scene.topology("apply");
    assert!(
        applied.as_object().unwrap().values().all(|names| names.as_array().unwrap().is_empty()),
        "{applied}"
    );
    qemu_has_nothing_of_the_host(&scene);
    commands_run_in_the_machine(&scene);
    // The compartment ends with its machine, which takes its tenant's network along.
    kill_process(Pid::from_raw(qemu(&scene, 1)).unwrap(), Signal::KILL).unwrap();
    wait_until("its end", 10, || scene.processes(1).is_empty()).unwrap();
    assert_eq!((pings(&scene.outside, web.address), pings(&scene.outside, bob.address)), (0, 10));
    let applied = scene.topology("apply");
    assert_eq!(applied["started"], serde_json::json!(["alice"]));
    assert_eq!(pings(&scene.outside, web.address), 10);
    scene.topology("delete");
    assert_eq!(scene.leftovers(), Vec::<String>::new());
}

#[test]
fn the_daemon_keeps_machines_and_changes_back() {
    let Some(scene) = two_machines() else { return };
    let folder = tempfile::tempdir().unwrap();
    let qemu_program = qemu_that_may_hang(folder.path());
    configure(&scene, "process", &qemu_program);
    let daemon = Daemon::start(&scene);
    wait_for_pings(&scene);
    configure(&scene, "vm", &qemu_program);
    daemon.ask(&["reload"]);
    wait_until("machines", 180, || {
        [1, 2].iter().all(|n| scene.processes(*n).iter().any(|(_, program)| program.starts_with(QEMU)))
    })
    .unwrap();
    wait_until("their switches", 180, || pings(&scene.outside, scene.vms[2].address) == 10).unwrap();
    wait_for_pings(&scene);
    wait_until("no problem", 30, || daemon.has_problems(&[])).unwrap();
    // Alice's next machine hangs, which delays no other tenant's.
    fs::write(folder.path().join("hangs"), "").unwrap();
    kill_process(Pid::from_raw(qemu(&scene, 1)).unwrap(), Signal::KILL).unwrap();
    let is_hanging =
        || scene.processes(1).iter().find(|(_, program)| program == "sleep").map(|(pid, _)| *pid);
    wait_until("a machine that hangs", 60, || is_hanging().is_some()).unwrap();
    kill_process(Pid::from_raw(qemu(&scene, 2)).unwrap(), Signal::KILL).unwrap();
    wait_until("its end", 10, || !scene.processes(2).iter().any(|(_, p)| p.starts_with(QEMU))).unwrap();
    wait_until("its next start", 120, || pings(&scene.outside, scene.vms[2].address) == 10).unwrap();
    assert!(is_hanging().is_some());
    fs::remove_file(folder.path().join("hangs")).unwrap();
    kill_process(Pid::from_raw(is_hanging().unwrap()).unwrap(), Signal::KILL).unwrap();
    wait_for_pings(&scene);
    configure(&scene, "process", &qemu_program);
    daemon.ask(&["reload"]);
    wait_until("processes", 60, || scene.processes(1).iter().any(|(_, program)| program == "ovs-vswitchd"))
        .unwrap();
    wait_for_pings(&scene);
    assert!(!scene.processes(1).iter().any(|(_, program)| program.starts_with(QEMU)));
}
