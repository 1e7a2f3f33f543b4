//! A VM behind a tap device.

mod common;

use common::raw::{Raw, has_mark, partial_udp};
use common::tap::Tap;
use common::{VM, loop_config, usable};
use p4shield_attach_wire::{WireConfig, WireId, WireLoop, WireSide};
use p4shield_mediator::FailPolicy;
use p4shield_testbed::{NetNs, wait_until};
use p4shield_xdp::checksum::is_right;

/// A wire between the tap `tap0` of a host and a peer.
fn wire(name: &str, several: bool) -> (NetNs, NetNs, Tap, WireLoop, WireId) {
    let [host, peer] = [name.to_owned(), format!("{name}far")].map(|n| NetNs::create(&n).unwrap());
    host.veth("sw0", &peer, "eth0").unwrap();
    let tap = Tap::create(&host, "tap0", several);
    let mut config = loop_config(FailPolicy::Pass);
    config.netns = Some(format!("/run/netns/{}", host.name()).into());
    let wire = WireLoop::spawn(config).unwrap();
    let id = wire.add_wire(WireConfig::new("tap0", "sw0", VM)).unwrap();
    (host, peer, tap, wire, id)
}

#[test]
fn a_guest_on_a_tap_uses_the_wire() {
    if !usable() {
        return;
    }
    let (host, peer, mut tap, wire, id) = wire("tap", false);
    let status = || wire.status().unwrap().into_iter().find(|w| w.id == id).unwrap();
    wait_until("attaching the tap", 10, || status().is_whole())
        .unwrap_or_else(|e| panic!("{e}: {:#?}", status()));
    let raw = Raw::open(&peer, "eth0");
    for (mark, tags) in [(0xa1a1_0001u64, &[][..]), (0xa1a1_0002, &[(0x8100, 9)])] {
        // From the guest, with a partial checksum, and to it.
        let at = 14 + 4 * tags.len() as u16 + 20;
        tap.send(&partial_udp(tags, mark), at, at + 6);
        let frame =
            raw.find(|f| has_mark(f, mark)).unwrap_or_else(|| panic!("{tags:x?} did not leave the guest"));
        assert_eq!(is_right(&frame), Some(true));
        raw.send(&partial_udp(tags, mark + 16));
        let frame =
            tap.find(|f| has_mark(f, mark + 16)).unwrap_or_else(|| panic!("{tags:x?} did not reach it"));
        assert_eq!(is_right(&frame), Some(true));
        assert_eq!(frame.len(), partial_udp(tags, mark).len());
    }
    // A packet from a guest with segmentation offload is dropped and counted.
    let mut long = partial_udp(&[], 7);
    long.resize(9000, 0);
    tap.send(&long, 34, 40);
    let oversize = || status().sides[WireSide::Vm as usize].attached.unwrap().kernel.xdp.oversize;
    wait_until("the count of too large frames", 5, || oversize() == 1).unwrap();
    // The virtual machine monitor ends and starts again.
    drop(tap);
    wait_until("the loss of the tap", 5, || status().sides[WireSide::Vm as usize].attached.is_none())
        .unwrap();
    let mut tap = Tap::create(&host, "tap0", false);
    wait_until("its return", 5, || status().is_whole()).unwrap();
    tap.send(&partial_udp(&[], 0xb2b2), 34, 40);
    assert!(raw.find(|f| has_mark(f, 0xb2b2)).is_some(), "no packet arrived after the return");
}

#[test]
fn later_queues_get_sockets() {
    if !usable() {
        return;
    }
    let (host, peer, mut first, wire, _) = wire("tapq", true);
    let queues = || wire.status().unwrap()[0].sides[WireSide::Vm as usize].attached.map(|a| a.queues);
    wait_until("attaching the tap", 10, || queues() == Some(1)).unwrap();
    // A virtual machine monitor also creates the device before its other queues.
    let mut second = Tap::create(&host, "tap0", true);
    let raw = Raw::open(&peer, "eth0");
    let mut mark = 0xc3c3_0000;
    for tap in [&mut first, &mut second] {
        let arrives = || {
            mark += 1;
            tap.send(&partial_udp(&[], mark), 34, 40);
            (0..5).any(|_| raw.receive().is_some_and(|f| has_mark(&f, mark)))
        };
        wait_until("frames from each queue", 10, arrives).unwrap();
    }
    assert_eq!(queues(), Some(2));
}
