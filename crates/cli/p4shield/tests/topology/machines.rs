//! Switches of tenants in virtual machines.

use super::daemon::{Daemon, wait_for_pings};
use super::scene::{Scene, pings};
use super::two_tenants;
use p4shield_testbed::guest::tenant_switch_image;
use p4shield_testbed::{Guest, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;

const QEMU: &str = "qemu-system-x86";

/// Two tenants whose switches are to be in virtual machines; `None` where there are none.
fn two_machines() -> Option<Scene> {
    if let Err(why) = Guest::usable() {
        p4shield_need::skip("qemu", why);
        return None;
    }
    let scene = two_tenants()?;
    configure(&scene, "vm");
    Some(scene)
}

/// Writes a configuration with switches in these compartments.
fn configure(scene: &Scene, compartment: &str) {
    scene.configure("2", &["alice", "bob"]);
    let text = fs::read_to_string(scene.config()).unwrap();
    let image = match compartment {
        "vm" => format!("image = {:?}\n", tenant_switch_image().unwrap()),
        _ => String::new(),
    };
    let keys =
        format!("[machine]\naccelerator = \"tcg\"\n[topology]\ncompartment = \"{compartment}\"\n{image}");
    fs::write(scene.config(), text.replacen("[topology]\n", &keys, 1)).unwrap();
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
fn the_daemon_changes_switches_into_machines_and_back() {
    let Some(scene) = two_machines() else { return };
    configure(&scene, "process");
    let daemon = Daemon::start(&scene);
    wait_for_pings(&scene);
    configure(&scene, "vm");
    daemon.ask(&["reload"]);
    wait_until("machines", 180, || {
        [1, 2].iter().all(|n| scene.processes(*n).iter().any(|(_, program)| program.starts_with(QEMU)))
    })
    .unwrap();
    wait_until("their switches", 180, || pings(&scene.outside, scene.vms[2].address) == 10).unwrap();
    wait_for_pings(&scene);
    wait_until("no problem", 30, || daemon.problems().is_empty()).unwrap();
    // One that ends is started again.
    kill_process(Pid::from_raw(qemu(&scene, 2)).unwrap(), Signal::KILL).unwrap();
    wait_until("its end", 10, || scene.processes(2).is_empty()).unwrap();
    wait_until("its next start", 180, || pings(&scene.outside, scene.vms[2].address) == 10).unwrap();
    let mut exec = scene.exec("alice");
    let refused = exec.args(["ovs-vsctl", "show"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(text.contains("the switch of tenant alice is in a virtual machine"), "{text}");
    configure(&scene, "process");
    daemon.ask(&["reload"]);
    wait_until("processes", 60, || scene.processes(1).iter().any(|(_, program)| program == "ovs-vswitchd"))
        .unwrap();
    wait_for_pings(&scene);
    assert!(!scene.processes(1).iter().any(|(_, program)| program.starts_with(QEMU)));
}
