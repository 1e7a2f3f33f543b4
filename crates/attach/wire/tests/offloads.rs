//! The work that senders leave to hardware is complete on arrival: checksums and VLAN tags.

mod common;

use common::raw::{Raw, has_mark, partial_udp};
use common::{CLIENT4, CLIENT6, Cloud, VM, VM4, VM6, usable};
use p4shield_attach_wire::{WireConfig, WireSide, XdpMode};
use p4shield_mediator::FailPolicy;
use p4shield_testbed::{NetNs, Switch};
use p4shield_xdp::checksum::is_right;

/// Compares received checksums with those that hardware would compute.
#[test]
fn partial_checksums_arrive_completed() {
    if !usable() {
        return;
    }
    let cloud = Cloud::new(FailPolicy::Pass);
    cloud.wait_forwarding();
    for (from, to, interface, target, source) in
        [(&cloud.client, &cloud.vm, "eth0", VM4, CLIENT4), (&cloud.vm, &cloud.client, "eth0", CLIENT6, VM6)]
    {
        let raw = Raw::open(to, interface);
        let socket = from.inside(|| std::net::UdpSocket::bind((source, 0)).unwrap());
        for len in [0usize, 1, 2, 99, 1400, 1401] {
            socket.send_to(&vec![0x5a; len], (target, 4242)).unwrap();
            let ip = if target.contains(':') { 14 + 40 } else { 14 + 20 };
            let arrived = raw.find(|f| f.len() == ip + 8 + len && f[ip + 2..ip + 4] == 4242u16.to_be_bytes());
            let frame = arrived.unwrap_or_else(|| panic!("{len} bytes to {target} did not arrive"));
            assert_eq!(is_right(&frame), Some(true), "{len} bytes to {target}");
        }
    }
    assert!(cloud.counters().iter().all(|c| c.checksums_completed >= 6), "no checksum was partial");
}

/// Sends a frame from one namespace, which must arrive at the other, complete and with the expected
/// tags.
fn arrives(from: &NetNs, to: &NetNs, sent: &[(u16, u16)], expected: &[(u16, u16)], mark: u64) {
    let (out, into) = (Raw::open(from, "eth0"), Raw::open(to, "eth0"));
    out.send(&partial_udp(sent, mark));
    let frame = into.find(|f| has_mark(f, mark)).unwrap_or_else(|| panic!("{sent:04x?} did not arrive"));
    assert_eq!(is_right(&frame), Some(true), "{sent:04x?}");
    let mut done = partial_udp(expected, mark);
    p4shield_xdp::checksum::complete(&mut done);
    assert_eq!(frame, done, "tags {sent:04x?} came out otherwise than {expected:04x?}");
}

#[test]
fn vlan_tags_in_frames_and_metadata_survive() {
    if !usable() {
        return;
    }
    let cloud = Cloud::new(FailPolicy::Pass);
    cloud.wait_forwarding();
    let (c, s) = (0x8100, 0x88a8);
    let mut mark = 0x1122_3344_0000_0000;
    for (from, to) in [(&cloud.vm, &cloud.client), (&cloud.client, &cloud.vm)] {
        for tags in [&[][..], &[(c, 100)], &[(c, 0xe00a)], &[(s, 7), (c, 100)], &[(0x9100, 7)]] {
            mark += 1;
            arrives(from, to, tags, tags, mark);
        }
    }
    // From here on the sender's tag is in the packet metadata and not in the frame.
    cloud.vm.tag_in_metadata("eth0").unwrap();
    arrives(&cloud.vm, &cloud.client, &[], &[(c, 0x6064)], mark + 1);
    arrives(&cloud.vm, &cloud.client, &[(c, 5)], &[(c, 0x6064), (c, 5)], mark + 2);
    cloud.client.tag_in_metadata("eth0").unwrap();
    arrives(&cloud.client, &cloud.vm, &[], &[(c, 0x6064)], mark + 3);
    let xdp = cloud.status().sides.map(|s| s.attached.unwrap().kernel.xdp);
    assert!(xdp.iter().all(|x| x.tag_unknown == 0 && x.tag_failed == 0), "{xdp:?}");
}

#[test]
fn generic_xdp_replaces_missing_driver_xdp() {
    if !usable() {
        return;
    }
    let mut wire = WireConfig::new("vm0", "sw0", VM);
    wire.xdp = XdpMode::Generic;
    let cloud = Cloud::with(common::loop_config(FailPolicy::Pass), wire, Switch::bridge);
    cloud.wait_forwarding();
    let attached = cloud.status().sides.map(|s| s.attached.unwrap());
    assert!(attached.iter().all(|a| !a.native && !a.restores_tags), "{attached:?}");
    // The wire configures the sender on the switch's side, so its tags stay in the frame; only
    // accelerated tags of a VM's own interface, in another namespace, are lost.
    let tags = [(0x8100, 100)];
    arrives(&cloud.client, &cloud.vm, &tags, &tags, 0x99);
    arrives(&cloud.vm, &cloud.client, &tags, &tags, 0x9a);
    cloud.client.tag_in_metadata("eth0").unwrap();
    arrives(&cloud.client, &cloud.vm, &[], &[(0x8100, 0x6064)], 0x9b);
    assert!(cloud.counters()[WireSide::Switch as usize].rx_packets > 0);
}
