//! A tenant whose P4 VM is a virtual machine, beside one whose P4 VM is a process: start, reloads, kills
//! of QEMU, of the daemon and upgrades, and an end without a trace.

use crate::cloud::{Cloud, ONE, usable};
use crate::configuration::{Attachment, Configuration};
use crate::upgrades::runs;
use p4shield_need::extent;
use p4shield_testbed::{Guest, OpenVswitch, process, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

pub(crate) const MACHINE: Configuration = Configuration { machine: true, ..Configuration::START };

impl Cloud {
    fn alice(&self) -> Value {
        let status: Value = serde_json::from_str(&self.p4shield("status", &["--json"]).1).unwrap_or_default();
        let tenants = status["tenants"].as_array().cloned().unwrap_or_default();
        tenants.into_iter().find(|t| t["name"] == "alice").unwrap_or_default()
    }

    /// Returns the processes of alice's P4 VM: the one that the daemon started, and QEMU.
    fn machine(&self) -> [i64; 2] {
        let pid = self.alice()["pid"].as_i64().expect("alice's P4 VM runs");
        let qemu = process::children(pid).first().copied();
        [pid, qemu.expect("QEMU runs")]
    }

    /// Ends alice's P4 VM in some way, and waits until another one judges. Returns bob's pings.
    pub(crate) fn replace_machine(&self, how: impl FnOnce([i64; 2])) -> (usize, usize) {
        let (bob, old) = (self.pings("10.9.6.3"), self.machine());
        how(old);
        wait_until("the end of the machine", 60, || !old.iter().any(|pid| runs(*pid))).unwrap();
        self.wait("another machine", || self.alice()["pid"].as_i64().is_some_and(|pid| pid != old[0]));
        self.wait("a ping through it", || self.ping("10.9.6.1"));
        bob.end()
    }
}

pub(crate) fn kill(pid: i64) {
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

/// Returns the share of a core that a machine without packets takes in some seconds: QEMU, and the process
/// above it.
fn idle(processes: [i64; 2], seconds: u64) -> f64 {
    let ticks = |pid: &i64| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<_> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()
    };
    let ticks = || processes.iter().map(ticks).sum::<f64>();
    let (start, before) = (Instant::now(), ticks());
    std::thread::sleep(Duration::from_secs(seconds));
    (ticks() - before) / rustix::param::clock_ticks_per_second() as f64 / start.elapsed().as_secs_f64()
}

#[test]
#[allow(clippy::print_stdout, reason = "the figures are of interest")]
fn an_idle_machine_leaves_its_core_to_others() {
    if !machines_are_usable(p4shield_testbed::usable()) {
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cloud = Cloud::start(Attachment::Wire, &MACHINE);
    let machine = cloud.machine();
    let (rounds, seconds) = extent((1, 4), (3, 60));
    for _ in 0..rounds {
        let share = idle(machine, seconds);
        println!("share of a core of an idle machine, over {seconds} s: {share:.4}");
        assert!(share < 0.5, "an idle machine takes {share} of a core");
    }
    cloud.stops_without_a_trace();
}

/// What a tenant and its neighbour see while the machine and the daemon change.
#[allow(clippy::print_stdout, reason = "the figures are of interest")]
fn machines(attachment: Attachment) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cloud = Cloud::start(attachment, &MACHINE);
    let first = cloud.machine();
    is_confined(first);
    assert_eq!(cloud.alice()["compartment"], "vm");

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

pub(crate) fn machines_are_usable(switch: Result<(), String>) -> bool {
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
