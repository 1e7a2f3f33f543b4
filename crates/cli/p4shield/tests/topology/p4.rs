//! P4 switches as the tenants' switches.

use super::daemon::{Daemon, wait_for_pings};
use super::levels::{AWAY, Stream};
use super::scene::{Scene, pings};
use super::{VMS, nic_switches, two_tenants};
use p4shield_testbed::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Writes a configuration with P4 switches.
fn configure(scene: &Scene, level: &str, tenants: &[&str]) {
    scene.configure(level, tenants);
    let text = std::fs::read_to_string(scene.config()).unwrap();
    std::fs::write(scene.config(), text.replacen("[topology]\n", "[topology]\nswitch = \"p4\"\n", 1))
        .unwrap();
}

fn go_where_the_policy_says(scene: &Scene, level: &str) {
    let [web, db, bob] = &scene.vms[..] else { unreachable!() };
    assert_eq!(pings(&web.ns, db.address), 10, "VMs of a tenant reach each other at level {level}");
    assert_eq!(pings(&web.ns, "10.0.0.1"), 10, "and the outside");
    assert_eq!((pings(&scene.outside, web.address), pings(&scene.outside, bob.address)), (10, 10));
    assert_eq!(pings(&web.ns, bob.address), 0, "another tenant only through the outside's router");
}

#[test]
fn p4_switches_go_with_each_level() {
    let Some(scene) = Scene::create(&VMS) else { return };
    for (level, switches) in [("2", 2), ("1", 1), ("3", 2), ("baseline", 1)] {
        configure(&scene, level, &["alice", "bob"]);
        let applied = scene.topology("apply");
        assert_eq!(applied["started"].as_array().unwrap().len(), if level == "3" { 2 } else { switches });
        go_where_the_policy_says(&scene, level);
        let applied = scene.topology("apply");
        let nothing = applied.as_object().unwrap().values().all(|names| names.as_array().unwrap().is_empty());
        assert!(nothing, "level {level}: {applied}");
        let status = scene.topology("status");
        assert_eq!(status["switches"].as_array().unwrap().len(), switches, "{status}");
    }
    scene.topology("delete");
    assert_eq!(scene.leftovers(), Vec::<String>::new());
    assert_eq!(pings(&scene.outside, scene.vms[0].address), 0);
}

#[test]
fn p4_switches_go_with_each_hook() {
    let Some(scene) = two_tenants() else { return };
    configure(&scene, "2", &["alice", "bob"]);
    for (key, kind) in [(None, "xdp"), (Some("tc"), "tc")] {
        nic_switches::configure(&scene, key);
        assert_eq!(scene.topology("plan")["nic_switch"], kind);
        scene.topology("apply");
        go_where_the_policy_says(&scene, "2");
    }
}

#[test]
fn tenants_keep_their_network_while_the_switch_changes() {
    let Some(scene) = two_tenants() else { return };
    scene.topology("apply");
    let [web, db, bob] = &scene.vms[..] else { unreachable!() };
    assert_eq!((pings(&scene.outside, web.address), pings(&scene.outside, bob.address)), (10, 10));
    // Level 1 has other compartments than level 2, so the old ones serve meanwhile.
    for (level, is_p4) in [("1", true), ("2", false), ("baseline", true)] {
        let streams = [
            ("alice to the outside", Stream::start(&web.ns, "10.0.0.1")),
            ("among alice", Stream::start(&web.ns, db.address)),
            ("the outside to bob", Stream::start(&scene.outside, bob.address)),
        ];
        if is_p4 {
            configure(&scene, level, &["alice", "bob"]);
        } else {
            scene.configure(level, &["alice", "bob"]);
        }
        scene.topology("apply");
        go_where_the_policy_says(&scene, level);
        for (who, stream) in streams {
            let gap = stream.longest_gap();
            assert!(gap < AWAY, "{who}, level {level}: {gap} pings in a row were lost");
        }
    }
}

#[test]
fn a_dead_p4_switch_costs_its_own_tenant_only() {
    let Some(scene) = Scene::create(&VMS) else { return };
    configure(&scene, "2", &["alice", "bob"]);
    scene.topology("apply");
    let [web, _, bob] = &scene.vms[..] else { unreachable!() };
    let stream = Stream::start(&web.ns, "10.0.0.1");
    for (pid, _) in scene.processes(2) {
        let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
    }
    wait_until("the compartment's end", 10, || scene.processes(2).is_empty()).unwrap();
    assert_eq!(pings(&bob.ns, "10.0.0.1"), 0);
    assert_eq!(scene.command("status").output().unwrap().status.code(), Some(1));
    assert_eq!(scene.topology("apply")["started"].as_array().unwrap()[0], "bob");
    wait_until("bob's pings", 20, || pings(&bob.ns, "10.0.0.1") == 10).unwrap();
    assert_eq!(stream.longest_gap(), 0, "alice lost packets");
    // A command beside it has no place.
    let refused = scene.exec("bob").args(["ovs-vsctl", "show"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(3));
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    let socket = why.split("--socket ").nth(1).unwrap_or_else(|| panic!("{why}")).trim();
    let mut status = Command::new(env!("CARGO_BIN_EXE_p4shield"));
    let status = status.args(["switch", "status", "--json", "--socket", socket]).output().unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["placement"], "pipeline");
}

#[test]
fn the_daemon_starts_dead_p4_switches() {
    let Some(scene) = Scene::create(&VMS) else { return };
    configure(&scene, "2", &["alice", "bob"]);
    let daemon = Daemon::start(&scene);
    wait_for_pings(&scene);
    let stream = Stream::start(&scene.vms[0].ns, "10.0.0.1");
    let killed: Vec<_> = scene.processes(2).into_iter().map(|(pid, _)| pid).collect();
    assert!(!killed.is_empty());
    for pid in &killed {
        let _ = kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL);
    }
    wait_until("another switch", 60, || {
        let now = scene.processes(2);
        !now.is_empty() && now.iter().all(|(pid, _)| !killed.contains(pid))
    })
    .unwrap();
    wait_for_pings(&scene);
    wait_until("no problem", 20, || daemon.has_problems(&[])).unwrap();
    assert_eq!(stream.longest_gap(), 0, "alice lost packets");
}

#[test]
fn a_p4_switch_has_nothing_of_the_host() {
    let Some(scene) = Scene::create(&VMS) else { return };
    configure(&scene, "2", &["alice", "bob"]);
    scene.topology("apply");
    let own = |kind: &str| std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
    let pids = [1, 2].map(|number| scene.processes(number).iter().map(|(pid, _)| *pid).min().unwrap());
    for (number, (pid, other)) in [(1, (pids[0], pids[1])), (2, (pids[1], pids[0]))] {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let has = |line: &str| assert!(status.contains(line), "{line}: {status}");
        let uid = scene.uid(number).to_string();
        has(&format!("Uid:\t{}", [&*uid; 4].join("\t")));
        for set in ["CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            has(&format!("{set}:\t0000000000000000"));
        }
        has("NoNewPrivs:\t1");
        has("Seccomp:\t2");
        for kind in ["net", "user", "pid", "mnt", "ipc", "uts"] {
            let of = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
            assert!(of(pid) != own(kind) && of(pid) != of(other), "{kind}");
        }
        assert_eq!(std::fs::read_dir(format!("/proc/{pid}/root")).unwrap().count(), 0, "its root is empty");
    }
    let links = scene.host.ip("-br link").unwrap();
    assert!(!links.contains("inout") && links.contains("p4s1io"), "its interfaces are its own: {links}");
}

#[test]
fn an_apply_of_p4_switches_that_was_killed_is_completed() {
    let Some(scene) = Scene::create(&VMS) else { return };
    for round in 0..p4shield_need::extent(3_u64, 60) {
        configure(&scene, if round % 2 == 0 { "2" } else { "baseline" }, &["alice", "bob"]);
        let mut apply = scene.command("apply").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(700 + round * 1_370 % 3_000));
        let _ = apply.kill();
        apply.wait().unwrap();
        if round % 3 == 2 {
            scene.topology("apply");
            go_where_the_policy_says(&scene, "2");
            scene.topology("delete");
            assert_eq!(scene.leftovers(), Vec::<String>::new());
        }
    }
}
