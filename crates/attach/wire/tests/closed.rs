//! Nothing gets past the wire: not by the host's own stack, and not when the process that forwards is killed.

mod common;

use std::process::{Command, Stdio};

use common::{VM, VM4, loop_config, usable};
use p4shield_attach_wire::{Guard, WireConfig, WireLoop};
use p4shield_mediator::FailPolicy;
use p4shield_testbed::process::{Guarded, run};
use p4shield_testbed::{NetNs, wait_until};
use rustix::process::{Signal, kill_process};

const CHILD: &str = "P4SHIELD_TEST_WIRE_CHILD";

/// Not a test by itself: what the killed process runs.
#[test]
fn child_that_forwards() {
    let Some(argument) = std::env::var_os(CHILD) else { return };
    let argument = argument.into_string().unwrap();
    let (netns, guard) = argument.split_once(' ').unwrap();
    let mut config = loop_config(FailPolicy::Pass);
    config.netns = Some(netns.into());
    config.guard = if guard == "off" { Guard::Off } else { Guard::Required };
    let wire = WireLoop::spawn(config).unwrap();
    wire.add_wire(WireConfig::new("vm0", "sw0", VM)).unwrap();
    loop {
        std::thread::park();
    }
}

struct Scene {
    child: Guarded,
    vm: NetNs,
    far: NetNs,
    host: NetNs,
}

/// A VM and a far end on both sides of a wire; the host has an address on the VM's interface, as a careless operator
/// may give it.
fn scene(guard: &str) -> Scene {
    let [host, vm, far] = ["closed", "closedvm", "closedfar"].map(|n| NetNs::create(n).unwrap());
    host.veth("vm0", &vm, "eth0").unwrap();
    host.veth("sw0", &far, "eth0").unwrap();
    vm.ip(&format!("addr add {VM4}/24 dev eth0")).unwrap();
    far.ip("addr add 10.7.0.1/24 dev eth0").unwrap();
    host.ip("addr add 10.7.0.50/24 dev vm0").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_that_forwards"]).stdout(Stdio::null());
    command.env(CHILD, format!("/run/netns/{} {guard}", host.name()));
    Scene { child: Guarded::spawn(&mut command).unwrap(), vm, far, host }
}

impl Scene {
    fn kill(&mut self) {
        kill_process(self.child.pid(), Signal::KILL).unwrap();
        wait_until("the end of the process", 5, || self.child.ended().is_some()).unwrap();
        // The kernel takes its programs away a little later.
        let gone = || !self.host.ip("link show vm0").unwrap().contains("xdp");
        wait_until("the end of the XDP program", 5, gone).unwrap();
    }
}

fn pings(from: &NetNs, to: &str) -> bool {
    run(from.command("ping").args(["-c2", "-i0.1", "-W1", to])).is_ok()
}

fn has_filter(host: &NetNs) -> bool {
    let show = ["filter", "show", "dev", "vm0", "ingress"];
    run(host.command("tc").args(show)).unwrap().contains("wire_guard")
}

#[test]
fn frames_stop_when_the_process_is_killed() {
    if !usable() {
        return;
    }
    let mut s = scene("on");
    wait_until("a ping through the child's wire", 10, || pings(&s.far, VM4)).unwrap();
    assert!(!pings(&s.vm, "10.7.0.50"), "the host's own stack is out of the VM's reach");
    assert!(!pings(&s.host, VM4), "and the VM out of its");
    s.kill();
    assert!(!pings(&s.far, VM4), "nobody forwards");
    assert!(!pings(&s.vm, "10.7.0.50") && !pings(&s.host, VM4), "closed without the process, too");
    assert!(has_filter(&s.host));
    // Whoever comes next takes over, and opens what is not to be a wire any more.
    let mut config = loop_config(FailPolicy::Pass);
    config.netns = Some(format!("/run/netns/{}", s.host.name()).into());
    let wire = WireLoop::spawn(config).unwrap();
    let id = wire.add_wire(WireConfig::new("vm0", "sw0", VM)).unwrap();
    wait_until("a ping through the next one", 10, || pings(&s.far, VM4)).unwrap();
    wire.remove_wire(id, true).unwrap();
    assert!(!has_filter(&s.host));
    wait_until("a ping to the host", 10, || pings(&s.vm, "10.7.0.50")).unwrap();
}

/// What the guard is for: without it the very same frames get through.
#[test]
fn without_the_guard_the_host_is_reached() {
    if !usable() {
        return;
    }
    let mut s = scene("off");
    wait_until("a ping through the child's wire", 10, || pings(&s.far, VM4)).unwrap();
    s.kill();
    wait_until("a ping to the host", 10, || pings(&s.vm, "10.7.0.50")).unwrap();
}
