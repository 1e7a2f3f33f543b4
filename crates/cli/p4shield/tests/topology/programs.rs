//! P4 programs at VMs' wires, before tenants' switches of each level.

use super::daemon::{Daemon, wait_for_pings};
use super::scene::{Scene, pings};
use super::two_tenants;
use p4shield_testbed::guest::p4vm_image;
use p4shield_testbed::{Guest, wait_until};
use rustix::process::{Signal, kill_process};
use std::path::PathBuf;
use std::process::Command;

/// Drops what has this source address.
const PROGRAM: &str = "#include <ubpf_model.p4>
header ethernet_t { bit<96> addresses; bit<16> type; }
header ipv4_t { bit<96> rest; bit<32> source; bit<32> destination; }
struct headers_t { ethernet_t ethernet; ipv4_t ipv4; }
struct metadata_t {}
parser p(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) { 0x800: ip; default: accept; }
    }
    state ip { packet.extract(hdr.ipv4); transition accept; }
}
control c(inout headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    apply { if (hdr.ipv4.isValid() && hdr.ipv4.source == 0x0a000001) { mark_to_drop(); } }
}
control d(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.ethernet); packet.emit(hdr.ipv4); } }
ubpf(p(), c(), d()) main;
";

/// Compiles the program, which VMs get by [`configure`].
fn compile(scene: &Scene) -> PathBuf {
    let [source, object] = ["deny.p4", "deny.o"].map(|name| scene.path(name));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut compile = Command::new(env!("CARGO_BIN_EXE_p4shield"));
    let output = compile.arg("compile").arg(source).arg("-o").arg(&object).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    object
}

/// Writes a configuration in which the program judges what alice's VM web receives.
fn configure(scene: &Scene, level: &str) {
    scene.configure(level, &["alice", "bob"]);
    let text = std::fs::read_to_string(scene.config()).unwrap();
    let web = "interface = \"alice-web\"\n";
    assert!(text.contains(web), "{text}");
    std::fs::write(scene.config(), text.replacen(web, &format!("{web}ingress = [\"deny.o\"]\n"), 1)).unwrap();
}

/// Waits until the program is in force: web does not reach the outside, and the others are as without it.
fn wait_for_the_program(scene: &Scene) {
    let [web, db, bob] = &scene.vms[..] else { unreachable!() };
    wait_until("pings", 60, || {
        pings(&web.ns, db.address) == 10 && [db, bob].iter().all(|vm| pings(&vm.ns, "10.0.0.1") == 10)
    })
    .unwrap();
    assert_eq!((pings(&web.ns, "10.0.0.1"), pings(&scene.outside, web.address)), (0, 0));
}

#[test]
fn programs_judge_before_switches_of_each_level() {
    let Some(scene) = two_tenants() else { return };
    compile(&scene);
    configure(&scene, "2");
    let daemon = Daemon::start(&scene);
    for (level, next) in [("2", "3"), ("3", "1"), ("1", "baseline"), ("baseline", "2"), ("2", "2")] {
        wait_until("the level", 60, || daemon.status()["topology"]["level"] == level).unwrap();
        wait_for_the_program(&scene);
        let status = daemon.status();
        assert_eq!(status["problems"], serde_json::json!([]), "{level}: {}", daemon.ask(&["status"]));
        let ingress = &status["tenants"][0]["vms"][0]["ingress"];
        assert!(ingress["judged"].as_u64().unwrap() >= 20, "{level}: {ingress}");
        let dropped = ingress["dropped"].as_array().unwrap().iter().map(|d| d[1].as_u64().unwrap());
        assert!(dropped.sum::<u64>() >= 10, "{level}: {ingress}");
        configure(&scene, next);
        daemon.ask(&["reload"]);
    }
    // Without the daemon programs stay in force.
    kill_process(daemon.pid(), Signal::KILL).unwrap();
    wait_for_the_program(&scene);
    drop(daemon);
    // Bob has no program, and no wire.
    let plan = scene.topology("plan");
    assert!(plan["compartments"][1]["tenants"][0]["vms"][0]["wire"].is_null(), "{plan}");
    let daemon = Daemon::start(&scene);
    wait_until("the next daemon", 30, || daemon.problems().is_empty()).unwrap();
    let load = ["program", "load", "bob", "web", "ingress", &scene.path("deny.o").display().to_string()];
    let refused = daemon.ask(&load);
    assert!(
        refused.contains("this VM has no wire between its interface and its tenant's switch"),
        "{refused}"
    );
    // Without the program in the configuration, the VM's own interface is the port again.
    scene.configure("2", &["alice", "bob"]);
    daemon.ask(&["reload"]);
    wait_for_pings(&scene);
    wait_until("no interface of a wire", 20, || !scene.host.ip("-br link").unwrap().contains("p4sw"))
        .unwrap();
}

#[test]
fn a_wire_without_its_daemon_carries_nothing() {
    let Some(scene) = two_tenants() else { return };
    compile(&scene);
    configure(&scene, "2");
    scene.topology("apply");
    let [web, db, bob] = &scene.vms[..] else { unreachable!() };
    assert_eq!((pings(&db.ns, "10.0.0.1"), pings(&bob.ns, "10.0.0.1")), (10, 10));
    assert_eq!((pings(&web.ns, db.address), pings(&web.ns, "10.0.0.1")), (0, 0));
    scene.topology("delete");
    assert_eq!(scene.leftovers(), Vec::<String>::new());
}

#[test]
fn a_p4_vm_in_a_virtual_machine_judges_before_its_switch() {
    if let Err(why) = Guest::usable() {
        return p4shield_need::skip("qemu", why);
    }
    let Some(scene) = two_tenants() else { return };
    compile(&scene);
    configure(&scene, "2");
    let text = std::fs::read_to_string(scene.config()).unwrap();
    let machine = format!("[machine]\nimage = {:?}\n[topology]\n", p4vm_image().unwrap());
    let alice = "name = \"alice\"\n";
    let text = text.replacen("[topology]\n", &machine, 1);
    let text = text.replacen(alice, &format!("{alice}compartment = \"vm\"\nmemory = \"256MiB\"\n"), 1);
    std::fs::write(scene.config(), text).unwrap();
    let daemon = Daemon::start(&scene);
    let alice = || daemon.status()["tenants"][0].clone();
    wait_until("the virtual machine", 120, || alice()["state"] == "running").unwrap();
    wait_for_the_program(&scene);
    assert_eq!(alice()["compartment"], "vm");
}
