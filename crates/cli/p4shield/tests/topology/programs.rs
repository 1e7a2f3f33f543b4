//! P4 programs at VMs' wires, before tenants' switches of each level.

use super::daemon::{Daemon, wait_for_pings};
use super::machines::image_within_reach;
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

/// A row of the table of P4 programs before tenants' switches, and a column.
#[derive(Clone, Copy)]
struct Cell {
    level: &'static str,
    /// Keys of `[topology]`.
    switch: &'static str,
    /// That of alice's P4 VM.
    compartment: &'static str,
}

/// Open vSwitch in a virtual machine.
const MACHINE: &str = "compartment = \"vm\"\n";
const OVS: &str = "switch = \"ovs\"\n";
const P4: &str = "switch = \"p4\"\n";
/// Each level with each switch in a process. Neighbours differ in their level; the first four have all.
const IN_PROCESSES: [(&str, &str); 8] = [
    ("2", OVS),
    ("baseline", P4),
    ("3", OVS),
    ("1", P4),
    ("baseline", OVS),
    ("2", P4),
    ("1", OVS),
    ("3", P4),
];

/// Writes a configuration in which the program judges what alice's VM web receives.
fn configure(scene: &Scene, Cell { level, switch, compartment }: Cell) {
    scene.configure(level, &["alice", "bob"]);
    let mut text = std::fs::read_to_string(scene.config()).unwrap();
    let mut put = |old: &str, new: &str| {
        assert!(text.contains(old), "{text}");
        text = text.replacen(old, new, 1);
    };
    put("interface = \"alice-web\"\n", "interface = \"alice-web\"\ningress = [\"deny.o\"]\n");
    put("[topology]\n", &format!("[topology]\n{switch}"));
    // A P4 VM that has no core for a while answers all the same: a missed deadline is a problem for minutes.
    put("name = \"alice\"\n", "name = \"alice\"\ndeadline = \"10s\"\n");
    if compartment == "vm" {
        let machine = format!("[machine]\nimage = {:?}\n[topology]\n", p4vm_image().unwrap());
        put("[topology]\n", &machine);
        put("name = \"alice\"\n", "name = \"alice\"\ncompartment = \"vm\"\nmemory = \"256MiB\"\n");
    }
    if switch == MACHINE {
        put(MACHINE, &format!("{MACHINE}image = {:?}\n", image_within_reach(scene)));
    }
    std::fs::write(scene.config(), text).unwrap();
}

/// Waits until the daemon has applied a level, and checks that the program judges before its switches.
fn judges_at(scene: &Scene, daemon: &Daemon<'_>, Cell { level, switch, compartment }: Cell) {
    let cell = format!("level {level}, {switch:?}, P4 VM in a {compartment}");
    wait_until(&cell, 120, || {
        let status = daemon.status();
        status["topology"]["level"] == level && status["tenants"][0]["state"] == "running"
    })
    .unwrap();
    wait_for_the_program(scene);
    wait_until("no problem", 20, || daemon.has_problems(&[]))
        .unwrap_or_else(|e| panic!("{cell}: {e}: {}", daemon.ask(&["status"])));
    let alice = &daemon.status()["tenants"][0];
    assert_eq!(alice["compartment"], compartment, "{cell}");
    let ingress = &alice["vms"][0]["ingress"];
    assert!(ingress["judged"].as_u64().unwrap() >= 20, "{cell}: {ingress}");
    let dropped = ingress["dropped"].as_array().unwrap().iter().map(|d| d[1].as_u64().unwrap());
    assert!(dropped.sum::<u64>() >= 10, "{cell}: {ingress}");
}

/// Returns the cells of [`IN_PROCESSES`] with a P4 VM in this compartment.
fn in_processes(compartment: &'static str) -> impl Iterator<Item = Cell> {
    IN_PROCESSES.into_iter().map(move |(level, switch)| Cell { level, switch, compartment })
}

/// Runs the cells one after the other on one host.
fn judges_at_all(scene: &Scene, cells: impl IntoIterator<Item = Cell>) {
    let mut running: Option<Daemon<'_>> = None;
    for cell in cells {
        configure(scene, cell);
        let daemon = match running.take() {
            None => Daemon::start(scene),
            Some(daemon) => {
                daemon.ask(&["reload"]);
                daemon
            }
        };
        judges_at(scene, &daemon, cell);
        running = Some(daemon);
    }
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
    judges_at_all(&scene, in_processes("process").take(p4shield_need::extent(4, 8)));
}

#[test]
fn programs_stay_in_force_without_the_daemon() {
    let Some(scene) = two_tenants() else { return };
    compile(&scene);
    let cell = Cell { level: "2", switch: OVS, compartment: "process" };
    configure(&scene, cell);
    let daemon = Daemon::start(&scene);
    judges_at(&scene, &daemon, cell);
    kill_process(daemon.pid(), Signal::KILL).unwrap();
    wait_for_the_program(&scene);
    drop(daemon);
    // Bob has no program, and no wire.
    let plan = scene.topology("plan");
    assert!(plan["compartments"][1]["tenants"][0]["vms"][0]["wire"].is_null(), "{plan}");
    let daemon = Daemon::start(&scene);
    wait_until("the next daemon", 30, || daemon.has_problems(&[])).unwrap();
    let load = ["program", "load", "bob", "web", "ingress", &scene.path("deny.o").display().to_string()];
    let refused = daemon.ask(&load);
    assert!(
        refused.contains("this VM has no wire between its interface and its tenant's switch"),
        "{refused}"
    );
    // Without the program in the configuration, the VM's own interface is the port again.
    scene.configure("2", &["alice", "bob"]);
    let answer = daemon.ask(&["reload"]);
    assert!(!answer.contains("nothing was changed"), "{answer}");
    wait_for_pings(&scene);
    wait_until("no interface of a wire", 20, || !scene.host.ip("-br link").unwrap().contains("p4sw"))
        .unwrap();
}

#[test]
fn a_wire_without_its_daemon_carries_nothing() {
    let Some(scene) = two_tenants() else { return };
    compile(&scene);
    configure(&scene, Cell { level: "2", switch: OVS, compartment: "process" });
    scene.topology("apply");
    let [web, db, bob] = &scene.vms[..] else { unreachable!() };
    assert_eq!((pings(&db.ns, "10.0.0.1"), pings(&bob.ns, "10.0.0.1")), (10, 10));
    assert_eq!((pings(&web.ns, db.address), pings(&web.ns, "10.0.0.1")), (0, 0));
    scene.topology("delete");
    assert_eq!(scene.leftovers(), Vec::<String>::new());
}

#[test]
fn p4_vms_in_machines_judge_before_each_level() {
    if let Err(why) = Guest::usable() {
        return p4shield_need::skip("qemu", why);
    }
    let Some(scene) = two_tenants() else { return };
    compile(&scene);
    judges_at_all(&scene, in_processes("vm").take(p4shield_need::extent(2, 8)));
}

#[test]
fn programs_judge_before_switches_in_machines() {
    if let Err(why) = Guest::usable() {
        return p4shield_need::skip("qemu", why);
    }
    let Some(scene) = two_tenants() else { return };
    compile(&scene);
    // At level 1, to have no more than two machines at once.
    let cells = [("1", "vm"), ("2", "process")];
    for (level, compartment) in cells.into_iter().take(p4shield_need::extent(1, 2)) {
        judges_at_all(&scene, [Cell { level, switch: MACHINE, compartment }]);
        scene.topology("delete");
    }
}
