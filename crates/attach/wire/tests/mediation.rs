//! The tenant's program judges packets; without it, the fail policy applies.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::p4vm::{Answer, P4Vm};
use common::raw::{Raw, has_mark, partial_udp};
use common::{Cloud, VM, VM4, tenant, usable};
use p4shield_abi::Direction;
use p4shield_abi::channel::Request;
use p4shield_attach_wire::WireConfig;
use p4shield_mediator::{DirectionCounts, FailPolicy, Reason};
use p4shield_testbed::process::run;
use p4shield_testbed::{Switch, ping, wait_until};
use p4shield_xdp::checksum;

fn tally(cloud: &Cloud, tenant: usize, direction: Direction) -> DirectionCounts {
    cloud.wire.counters().tenants[tenant].vms[0].direction(direction).read()
}

fn is_icmp(header: &[u8]) -> bool {
    header[12..14] == [8, 0] && header[23] == 1
}

#[test]
fn the_program_judges_both_directions() {
    if !usable() {
        return;
    }
    let cloud = Cloud::new(FailPolicy::Pass);
    cloud.wait_forwarding();
    // The direction whose pings it drops.
    let target = Arc::new(AtomicU64::new(9));
    let t = Arc::clone(&target);
    let p4vm = P4Vm::attach(&cloud.wire, 0, move |request: &Request, header| {
        let drops = u64::from(request.direction) == t.load(Ordering::Acquire) && is_icmp(header);
        if drops { Answer::Drop } else { Answer::Pass }
    });
    assert!(cloud.answers(VM4));
    for direction in Direction::ALL {
        let before = tally(&cloud, 0, direction).dropped_for(Reason::Program);
        target.store(direction as u64, Ordering::Release);
        assert!(!cloud.pings(VM4), "{direction:?}");
        let dropped = || tally(&cloud, 0, direction).dropped_for(Reason::Program) - before;
        wait_until("three pings to be dropped", 20, || dropped() >= 3).unwrap();
        assert_eq!(dropped(), 3);
    }
    target.store(9, Ordering::Release);
    assert!(cloud.answers(VM4));
    cloud.check_frames();
    drop(p4vm);
}

/// Tags packets from the VM, untags packets to it.
fn retag(request: &Request, header: &[u8]) -> Answer {
    let tag = [0x81, 0, 0, 42];
    if request.direction == Direction::Egress as u8 {
        Answer::Rewrite([&header[..12], &tag, &header[12..]].concat())
    } else if header[12..16] == tag {
        Answer::Rewrite([&header[..12], &header[16..]].concat())
    } else {
        Answer::Drop
    }
}

#[test]
fn rewrites_grow_and_shrink_packets() {
    if !usable() {
        return;
    }
    let cloud = Cloud::new(FailPolicy::Drop);
    let _p4vm = P4Vm::attach(&cloud.wire, 0, retag);
    let (vm, client) = (Raw::open(&cloud.vm, "eth0"), Raw::open(&cloud.client, "eth0"));
    let whole = |tags: &[(u16, u16)], mark| {
        let mut f = partial_udp(tags, mark);
        assert!(checksum::complete(&mut f));
        f
    };
    let tag = [(0x8100, 42)];
    let forwards = || {
        vm.send(&partial_udp(&[], 1));
        client.find(|f| has_mark(f, 1)).is_some()
    };
    wait_until("the switch to forward", 60, forwards).unwrap();
    for mark in 100..120 {
        vm.send(&partial_udp(&[], mark));
        let grown = client.find(|f| has_mark(f, mark)).expect("the grown packet must arrive");
        assert_eq!(grown, whole(&tag, mark));
        client.send(&partial_udp(&tag, mark + 1000));
        let shrunk = vm.find(|f| has_mark(f, mark + 1000)).expect("the shrunk packet must arrive");
        assert_eq!(shrunk, whole(&[], mark + 1000));
    }
    assert!(tally(&cloud, 0, Direction::Egress).rewritten >= 20);
    assert!(tally(&cloud, 0, Direction::Ingress).rewritten >= 20);
    cloud.check_frames();
}

#[test]
fn without_a_p4_vm_the_fail_policy_applies() {
    if !usable() {
        return;
    }
    let cloud = Cloud::new(FailPolicy::Drop);
    assert!(!cloud.pings(VM4), "nothing passes unjudged");
    wait_until("an unjudged packet", 10, || {
        cloud.pings(VM4);
        tally(&cloud, 0, Direction::Ingress).dropped_for(Reason::NoChannel) > 0
    })
    .unwrap();
    assert!(cloud.wire.counters().unowned.passed.get() > 0, "ARP belongs to no VM and passes");
    let p4vm = P4Vm::attach(&cloud.wire, 0, |_, _| Answer::Pass);
    wait_until("a ping that is judged", 10, || cloud.pings(VM4)).unwrap();
    // The P4 VM ends: its end of the doorbell closes, and the policy applies without further packets.
    drop(p4vm);
    wait_until("the loss of the P4 VM", 10, || {
        cloud.wire.mediate(|m| !m.is_attached(0)).unwrap() || cloud.pings("10.7.0.250")
    })
    .unwrap();
    assert!(!cloud.pings(VM4));
    let _p4vm = P4Vm::attach(&cloud.wire, 0, |_, _| Answer::Pass);
    wait_until("a ping with another P4 VM", 10, || cloud.pings(VM4)).unwrap();
    cloud.check_frames();
}

#[test]
fn a_stopped_p4_vm_costs_other_tenants_nothing() {
    if !usable() {
        return;
    }
    let mut config = common::loop_config(FailPolicy::Drop);
    config.ring = 256;
    config.mediator.tenants.push(tenant("green", &["10.7.0.101"], FailPolicy::Drop));
    let cloud = Cloud::with(config, WireConfig::new("vm0", "sw0", VM), Switch::bridge);
    let (_green, _) = cloud.add_vm(1);
    let blue_p4vm = P4Vm::attach(&cloud.wire, 0, |_, _| Answer::Pass);
    let _green_p4vm = P4Vm::attach(&cloud.wire, 1, |_, _| Answer::Pass);
    wait_until("both tenants' pings", 10, || cloud.pings(VM4) && cloud.pings("10.7.0.101")).unwrap();
    blue_p4vm.frozen.store(true, Ordering::Release);
    // More packets than the tenant may hold, from its VM to its stopped P4 VM.
    let raw = Raw::open(&cloud.vm, "eth0");
    let full = || tally(&cloud, 0, Direction::Egress).dropped_for(Reason::Full);
    wait_until("more than the tenant may hold", 20, || {
        (0..200).for_each(|n| raw.send(&partial_udp(&[], n)));
        full() > 500
    })
    .unwrap();
    let held = cloud.wire.snapshot().unwrap().frames.held;
    // A tenant may hold 1024 packets in each direction; packets to its VM now wait as well.
    assert!((1..=2 * 1024).contains(&held), "{held} frames are held");
    wait_until("answers to most pings", 60, || {
        let pings = run(cloud.client.command("ping").args(["-c100", "-i0.01", "10.7.0.101"]));
        let pings = pings.unwrap_or_default();
        assert_eq!(ping::lost(&pings), 0, "the other tenant lost packets: {pings}");
        ping::answered(&pings).len() > 50
    })
    .unwrap();
    blue_p4vm.frozen.store(false, Ordering::Release);
    wait_until("the stopped P4 VM to continue", 10, || cloud.pings(VM4)).unwrap();
    wait_until("all frames to come back", 10, || cloud.wire.snapshot().unwrap().frames.held == 0).unwrap();
}

#[test]
fn many_wires_share_one_loop() {
    if !usable() {
        return;
    }
    const WIRES: u16 = 12;
    let mut config = common::loop_config(FailPolicy::Pass);
    config.ring = 64;
    config.backlog = 32;
    config.mediator.tenants[0].max_held = 64;
    for n in 1..WIRES {
        let mut t = tenant(&format!("t{n}"), &[&format!("10.7.0.{}", 100 + n)], FailPolicy::Pass);
        t.max_held = 64;
        config.mediator.tenants.push(t);
    }
    let cloud = Cloud::with(config, WireConfig::new("vm0", "sw0", VM), Switch::bridge);
    let vms: Vec<_> = (1..WIRES).map(|n| cloud.add_vm(n)).collect();
    for n in 1..WIRES {
        let target = format!("10.7.0.{}", 100 + n);
        wait_until("a ping through each wire", 10, || cloud.pings(&target)).unwrap();
    }
    // Between two VMs: from one wire through the switch into the other.
    let there = || run(vms[0].0.command("ping").args(["-c1", "-W1", "10.7.0.105"])).is_ok();
    wait_until("a ping between VMs", 10, there).unwrap();
    for n in 0..usize::from(WIRES) {
        assert!(
            tally(&cloud, n, Direction::Ingress).let_through_for(Reason::NoChannel) > 0 || n == 0,
            "wire {n}"
        );
    }
    cloud.check_frames();
    for (_, id) in &vms {
        cloud.wire.remove_wire(*id, false).unwrap();
    }
    assert_eq!(cloud.wire.snapshot().unwrap().wires.len(), 1);
    assert!(cloud.wire.snapshot().unwrap().frames.receive <= 2 * 64);
    cloud.check_frames();
}
