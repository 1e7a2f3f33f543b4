//! No frame bypasses the wire: not through the host's own stack, and not after the forwarding process is
//! killed.

mod common;

use std::process::{Command, Stdio};

use common::{VM, VM4, loop_config, usable};
use p4shield_attach_wire::{Guard, WireConfig, WireLoop};
use p4shield_mediator::FailPolicy;
use p4shield_testbed::process::{Guarded, run};
use p4shield_testbed::{NetNs, wait_until};
use rustix::process::{Signal, kill_process};

const CHILD: &str = "P4SHIELD_TEST_WIRE_CHILD";

/// Not a test by itself: the process that the tests kill.
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

struct ClosedScene {
    child: Guarded,
    vm: NetNs,
    peer: NetNs,
    host: NetNs,
}

/// A VM and a remote peer on the two sides of a wire. The host has an address on the VM's interface, as
/// an operator may configure by mistake.
fn scene(guard: &str) -> ClosedScene {
    let [host, vm, peer] = ["closed", "closedvm", "closedfar"].map(|n| NetNs::create(n).unwrap());
    host.veth("vm0", &vm, "eth0").unwrap();
    host.veth("sw0", &peer, "eth0").unwrap();
    vm.ip(&format!("addr add {VM4}/24 dev eth0")).unwrap();
    peer.ip("addr add 10.7.0.1/24 dev eth0").unwrap();
    host.ip("addr add 10.7.0.50/24 dev vm0").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_that_forwards"]).stdout(Stdio::null());
    command.env(CHILD, format!("/run/netns/{} {guard}", host.name()));
    ClosedScene { child: Guarded::spawn(&mut command).unwrap(), vm, peer, host }
}

impl ClosedScene {
    fn kill(&mut self) {
        kill_process(self.child.pid(), Signal::KILL).unwrap();
        wait_until("the end of the process", 5, || self.child.ended().is_some()).unwrap();
        // The kernel removes the programs a little later.
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
    wait_until("a ping through the child's wire", 10, || pings(&s.peer, VM4)).unwrap();
    assert!(!pings(&s.vm, "10.7.0.50"), "the VM cannot reach the host's own stack");
    assert!(!pings(&s.host, VM4), "the host's own stack cannot reach the VM");
    s.kill();
    assert!(!pings(&s.peer, VM4), "no process forwards");
    assert!(
        !pings(&s.vm, "10.7.0.50") && !pings(&s.host, VM4),
        "the interfaces stay closed without the process"
    );
    assert!(has_filter(&s.host));
    // The next process takes over, and opens the interfaces of a removed wire.
    let mut config = loop_config(FailPolicy::Pass);
    config.netns = Some(format!("/run/netns/{}", s.host.name()).into());
    let wire = WireLoop::spawn(config).unwrap();
    let id = wire.add_wire(WireConfig::new("vm0", "sw0", VM)).unwrap();
    wait_until("a ping through the next process", 10, || pings(&s.peer, VM4)).unwrap();
    wire.remove_wire(id, true).unwrap();
    assert!(!has_filter(&s.host));
    wait_until("a ping to the host", 10, || pings(&s.vm, "10.7.0.50")).unwrap();
}

/// Without the guard the very same frames get through.
#[test]
fn without_the_guard_the_host_is_reached() {
    if !usable() {
        return;
    }
    let mut s = scene("off");
    wait_until("a ping through the child's wire", 10, || pings(&s.peer, VM4)).unwrap();
    s.kill();
    wait_until("a ping to the host", 10, || pings(&s.vm, "10.7.0.50")).unwrap();
}
