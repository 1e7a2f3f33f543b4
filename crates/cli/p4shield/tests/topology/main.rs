//! Tenant switches: stock Open vSwitches in compartments behind the NIC switch, with tenants' VMs, an
//! uplink and the network outside in network namespaces.

mod bridge;
mod buffers;
mod card;
mod controllers;
mod daemon;
mod exec;
mod host_stack;
mod in_guest;
mod levels;
mod machines;
mod nic_switches;
mod p4;
mod programs;
mod sandbox;
mod scale;
mod scene;
mod usage;

use levels::Stream;
use p4shield_testbed::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use scene::{Scene, pings};
use std::process::Stdio;
use std::time::Duration;

const VMS: [(&str, &str, &str); 3] =
    [("alice", "web", "10.0.1.2"), ("alice", "db", "10.0.1.3"), ("bob", "web", "10.0.2.2")];

/// Two tenants at level 2.
fn two_tenants() -> Option<Scene> {
    let scene = Scene::create(&VMS)?;
    scene.configure("2", &["alice", "bob"]);
    Some(scene)
}

#[test]
fn pings_go_where_the_policy_says() {
    let Some(scene) = two_tenants() else { return };
    let applied = scene.topology("apply");
    assert_eq!(applied["started"].as_array().unwrap().len(), 2, "{applied}");
    let [web, db, bob] = &scene.vms[..] else { unreachable!() };
    assert_eq!(pings(&web.ns, db.address), 10, "VMs of a tenant reach each other");
    assert_eq!(pings(&web.ns, "10.0.0.1"), 10, "and the outside");
    assert_eq!((pings(&scene.outside, web.address), pings(&scene.outside, bob.address)), (10, 10));
    assert_eq!(pings(&web.ns, bob.address), 0, "another tenant only through the outside's router");
    let forward = || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1");
    scene.outside.inside(forward).unwrap();
    assert_eq!(pings(&web.ns, bob.address), 10, "which decides about them");
    // Directly to a port of another tenant, past the own switch.
    web.ns.ip("neigh replace 10.0.2.2 lladdr 02:00:00:00:00:03 dev eth0").unwrap();
    assert_eq!(pings(&web.ns, bob.address), 0);
    let dropped = scene.port("alice-web")["dropped"]["destination"].as_u64().unwrap();
    assert!(dropped >= 10, "{dropped}");
    assert_eq!(scene.topology("apply")["started"].as_array().unwrap().len(), 0, "nothing changed");
    assert_eq!(pings(&scene.outside, web.address), 10);
    scene.topology("delete");
    assert_eq!(scene.leftovers(), Vec::<String>::new());
    assert_eq!(pings(&scene.outside, web.address), 0);
}

#[test]
fn one_compartment_serves_all_tenants_at_level_1() {
    let Some(scene) = two_tenants() else { return };
    scene.configure("1", &["alice", "bob"]);
    assert_eq!(scene.topology("apply")["started"].as_array().unwrap().len(), 1);
    let [web, db, bob] = &scene.vms[..] else { unreachable!() };
    assert_eq!((pings(&web.ns, db.address), pings(&bob.ns, "10.0.0.1")), (10, 10));
    assert_eq!(pings(&web.ns, bob.address), 0);
}

#[test]
fn a_dead_compartment_costs_its_own_tenant_only() {
    let Some(scene) = two_tenants() else { return };
    scene.topology("apply");
    let [web, _, bob] = &scene.vms[..] else { unreachable!() };
    let stream = Stream::start(&web.ns, "10.0.0.1");
    for (pid, _) in scene.processes(2) {
        let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
    }
    wait_until("the compartment's end", 10, || scene.processes(2).is_empty()).unwrap();
    assert_eq!(pings(&bob.ns, "10.0.0.1"), 0);
    let status = scene.command("status").output().unwrap();
    assert_eq!(status.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&status.stdout).contains("apply the topology again"));
    let applied = scene.topology("apply");
    assert_eq!(applied["started"].as_array().unwrap()[0], "bob");
    // The VM's kernel asks for the router's address once a second, and begins anew after the third question.
    wait_until("bob's pings", 20, || pings(&bob.ns, "10.0.0.1") == 10).unwrap();
    assert_eq!(stream.longest_gap(), 0, "alice lost packets");
}

#[test]
fn a_switch_that_ends_is_started_again_with_its_rules() {
    let Some(scene) = two_tenants() else { return };
    scene.topology("apply");
    let web = &scene.vms[0];
    for program in ["ovs-vswitchd", "ovsdb-server"] {
        let (pid, _) = scene.processes(1).into_iter().find(|(_, p)| p == program).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        wait_until("its successor", 20, || scene.processes(1).iter().any(|(p, n)| n == program && *p != pid))
            .unwrap();
        wait_until("its rules", 20, || pings(&web.ns, "10.0.0.1") == 10).unwrap();
    }
    assert_eq!(scene.topology("status")["switches"][0]["restarts"], 2);
}

#[test]
fn another_tenant_costs_the_first_ones_no_packet() {
    let Some(scene) = two_tenants() else { return };
    scene.configure("2", &["bob"]);
    scene.topology("apply");
    let [web, _, bob] = &scene.vms[..] else { unreachable!() };
    let stream = Stream::start(&bob.ns, "10.0.0.1");
    // Before bob in the order of names, which changes no number of his.
    scene.configure("2", &["alice", "bob"]);
    let applied = scene.topology("apply");
    assert_eq!(applied["started"].as_array().unwrap().len(), 1, "{applied}");
    assert_eq!(pings(&web.ns, "10.0.0.1"), 10);
    scene.configure("2", &["bob"]);
    assert_eq!(scene.topology("apply")["removed"][0], "alice");
    assert_eq!(pings(&web.ns, "10.0.0.1"), 0);
    assert_eq!(stream.longest_gap(), 0, "bob lost packets");
}

#[test]
fn an_apply_that_was_killed_is_completed_by_the_next() {
    let Some(scene) = two_tenants() else { return };
    for round in 0..p4shield_need::extent(6_u64, 100) {
        let mut apply = scene.command("apply").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // An apply takes about 400 ms; the next one of a round starts where the last one was killed.
        std::thread::sleep(Duration::from_millis(round * 137 % 500));
        let _ = apply.kill();
        apply.wait().unwrap();
        if round % 3 == 2 {
            scene.topology("apply");
            let [web, db, bob] = &scene.vms[..] else { unreachable!() };
            assert_eq!(pings(&web.ns, db.address), 10);
            assert_eq!(pings(&scene.outside, bob.address), 10);
            scene.topology("delete");
            assert_eq!(scene.leftovers(), Vec::<String>::new());
        }
    }
}
