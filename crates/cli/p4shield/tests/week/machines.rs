//! A tenant whose P4 VM is a virtual machine, beside one whose P4 VM is a process: start, reloads, kills
//! of QEMU, of the daemon and upgrades, and an end without a trace.

use crate::cloud::{Cloud, ONE, usable};
use crate::configuration::{Attachment, Configuration};
use crate::upgrades::runs;
use p4shield_need::extent;
use p4shield_testbed::{Guest, OpenVswitch, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

const MACHINE: Configuration = Configuration { machine: true, ..Configuration::START };

impl Cloud {
    fn alice(&self) -> Value {
        let status: Value = serde_json::from_str(&self.p4shield("status", &["--json"]).1).unwrap_or_default();
        let tenants = status["tenants"].as_array().cloned().unwrap_or_default();
        tenants.into_iter().find(|t| t["name"] == "alice").unwrap_or_default()
    }

    /// Returns the processes of alice's P4 VM: the one that the daemon started, and QEMU.
    fn machine(&self) -> [i64; 2] {
        let pid = self.alice()["pid"].as_i64().expect("alice's P4 VM runs");
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let children = tasks.map(|t| std::fs::read_to_string(t.path().join("children")).unwrap_or_default());
        let qemu = children.collect::<String>().split_whitespace().find_map(|c| c.parse().ok());
        [pid, qemu.expect("QEMU runs")]
    }

    /// Ends alice's P4 VM in some way, and waits until another one judges. Returns bob's pings.
    fn replace_machine(&self, how: impl FnOnce([i64; 2])) -> (usize, usize) {
        let (bob, old) = (self.pings("10.9.6.3"), self.machine());
        how(old);
        wait_until("the end of the machine", 60, || !old.iter().any(|pid| runs(*pid))).unwrap();
        self.wait("another machine", || self.alice()["pid"].as_i64().is_some_and(|pid| pid != old[0]));
        self.wait("a ping through it", || self.ping("10.9.6.1"));
        bob.end()
    }
}

fn kill(pid: i64) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, Signal::KILL).unwrap();
}

/// Asserts that QEMU runs as a user without privileges, in a network of its own.
fn is_confined([_, qemu]: [i64; 2]) {
    let status = std::fs::read_to_string(format!("/proc/{qemu}/status")).unwrap();
    for expected in
        ["NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "Seccomp:\t2"]
    {
        assert!(status.contains(expected), "{expected} is missing:\n{status}");
    }
    assert!(!status.contains("Uid:\t0"), "{status}");
    let network = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/net")).unwrap();
    assert_ne!(network(&qemu.to_string()), network("self"));
}

/// Returns the share of a core that a machine without packets takes.
fn idle([_, qemu]: [i64; 2]) -> f64 {
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{qemu}/stat")).unwrap();
        let fields: Vec<_> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()
    };
    let (start, before) = (Instant::now(), ticks());
    std::thread::sleep(Duration::from_secs(4));
    (ticks() - before) / rustix::param::clock_ticks_per_second() as f64 / start.elapsed().as_secs_f64()
}

/// What a tenant and its neighbour see while the machine and the daemon change.
#[allow(clippy::print_stdout, reason = "the figures are of interest")]
fn machines(attachment: Attachment) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cloud = Cloud::start(attachment, &MACHINE);
    let first = cloud.machine();
    is_confined(first);
    assert_eq!(cloud.alice()["compartment"], "vm");
    let share = idle(first);
    println!("{attachment:?}, share of a core of an idle machine: {share:.3}");
    assert!(share < 0.5, "an idle machine takes {share} of a core");

    let mut changed = Configuration { program: 1, app: true, alias: true, ..MACHINE };
    cloud.reload(&changed);
    cloud.wait("a ping of a new VM", || cloud.ping("10.9.6.2"));
    assert_eq!(cloud.machine(), first, "programs and VMs change while the machine runs");
    cloud.agrees(&changed);

    let mut bobs = (0..3).map(|_| {
        changed.budget += 1;
        let bob = [
            cloud.replace_machine(|[_, qemu]| kill(qemu)),
            cloud.replace_machine(|[p4vm, _]| kill(p4vm)),
            cloud.replace_machine(|_| cloud.reload(&changed)),
        ];
        println!("{attachment:?}, pings of the neighbour while machines end: {bob:?}");
        bob
    });
    // A machine that is busy with other work loses pings without the daemon's doing.
    assert!(
        bobs.any(|bob| bob.iter().all(|(answered, lost)| *answered > 0 && *lost == 0)),
        "pings were lost"
    );

    let phase = cloud.replace_daemon_often(extent(2, 10));
    println!("{attachment:?}, killed and upgraded: {phase:?}");
    assert_eq!(phase.drops, ["", ""], "a policy judged packets");
    let last = cloud.machine();
    cloud.stops_without_a_trace();
    wait_until("the end of QEMU", 60, || !last.iter().any(|pid| runs(*pid))).unwrap();
}

fn machines_are_usable(switch: Result<(), String>) -> bool {
    let qemu = Guest::usable().map_err(|why| p4shield_need::skip("qemu", why)).is_ok();
    qemu && usable(switch)
}

#[test]
fn p4_vms_in_machines_serve_af_xdp_switches() {
    if machines_are_usable(OpenVswitch::usable()) {
        machines(Attachment::Xsk);
    }
}

#[test]
fn p4_vms_in_machines_serve_dpdk_switches() {
    if machines_are_usable(OpenVswitch::usable()) {
        machines(Attachment::Dpdk);
    }
}

#[test]
fn p4_vms_in_machines_serve_wires() {
    if machines_are_usable(p4shield_testbed::usable()) {
        machines(Attachment::Wire);
    }
}

/// Descriptors and memory mappings of the daemon, and files of its folder.
fn held(cloud: &Cloud) -> [usize; 3] {
    let daemon = cloud.daemon.pid().as_raw_pid();
    let maps = std::fs::read_to_string(format!("/proc/{daemon}/maps")).unwrap();
    let entries = |folder: &Path| std::fs::read_dir(folder).unwrap().count();
    let files = entries(cloud.folder.path()) + entries(&cloud.folder.path().join("p4shield.sock.p4vms"));
    [entries(Path::new(&format!("/proc/{daemon}/fd"))), maps.lines().count(), files]
}

#[test]
fn machines_that_come_and_go_leave_no_trace() {
    if !machines_are_usable(p4shield_testbed::usable()) {
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cloud = Cloud::start(Attachment::Wire, &MACHINE);
    let mut configuration = MACHINE;
    let mut restart = |cloud: &Cloud| {
        configuration.budget += 1;
        cloud.replace_machine(|_| cloud.reload(&configuration));
    };
    restart(&cloud);
    let before = held(&cloud);
    (0..extent(2, 20)).for_each(|_| restart(&cloud));
    let after = held(&cloud);
    assert_eq!((before[0], before[2]), (after[0], after[2]), "descriptors or files are left over");
    assert!(after[1] <= before[1] + 8, "mappings are left over: {before:?}, {after:?}");
    cloud.stops_without_a_trace();
}
