//! What senders leave to hardware arrives done: checksums and VLAN tags.

mod common;

use common::raw::{Raw, has_mark, undone_udp};
use common::{CLIENT4, CLIENT6, Cloud, VM, VM4, VM6, usable};
use p4shield_attach_wire::frame::checksum::is_right;
use p4shield_attach_wire::{Side, WireConfig, XdpMode};
use p4shield_mediator::FailPolicy;
use p4shield_testbed::process::run;
use p4shield_testbed::{NetNs, Switch};

/// Frames as they came, against the checksum a hardware would have made.
#[test]
fn every_checksum_is_right_where_it_arrives() {
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
    assert!(cloud.counters().iter().all(|c| c.checksums_completed >= 6), "nothing was left undone");
}

fn tag_beside_every_frame(ns: &NetNs, interface: &str) {
    let dir = tempfile::tempdir().unwrap();
    let object = dir.path().join("tags.o");
    let arch = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bpf/tags.bpf.c");
    let mut clang = std::process::Command::new("clang");
    run(clang.args(["-O2", "-g", "-target", "bpf", &arch, "-c", source, "-o"]).arg(&object)).unwrap();
    run(ns.command("tc").args(["qdisc", "add", "dev", interface, "clsact"])).unwrap();
    let filter = ["filter", "add", "dev", interface, "egress", "bpf", "da", "obj"];
    run(ns.command("tc").args(filter).arg(&object).args(["sec", "tc"])).unwrap();
}

/// Sends from one namespace what must come out at the other, complete and with these tags.
fn arrives(from: &NetNs, to: &NetNs, sent: &[(u16, u16)], expected: &[(u16, u16)], mark: u64) {
    let (out, into) = (Raw::open(from, "eth0"), Raw::open(to, "eth0"));
    out.send(&undone_udp(sent, mark));
    let frame = into.find(|f| has_mark(f, mark)).unwrap_or_else(|| panic!("{sent:04x?} did not arrive"));
    assert_eq!(is_right(&frame), Some(true), "{sent:04x?}");
    let mut done = undone_udp(expected, mark);
    p4shield_attach_wire::frame::complete(&mut done);
    assert_eq!(frame, done, "tags {sent:04x?} came out otherwise than {expected:04x?}");
}

#[test]
fn tags_in_and_beside_the_frame_survive() {
    if !usable() {
        return;
    }
    let cloud = Cloud::new(FailPolicy::Pass);
    cloud.wait_forwarding();
    let (c, s) = (0x8100, 0x88a8);
    let mut mark = 0x1122_3344_0000_0000;
    for (from, to) in [(&cloud.vm, &cloud.client), (&cloud.client, &cloud.vm)] {
        for tags in [&[][..], &[(c, 100)], &[(c, 0xe00a)], &[(s, 7), (c, 100)]] {
            mark += 1;
            arrives(from, to, tags, tags, mark);
        }
    }
    // From here on the sender's tag is not in the frame but beside it, in the socket buffer.
    tag_beside_every_frame(&cloud.vm, "eth0");
    arrives(&cloud.vm, &cloud.client, &[], &[(c, 0x6064)], mark + 1);
    arrives(&cloud.vm, &cloud.client, &[(c, 5)], &[(c, 0x6064), (c, 5)], mark + 2);
    tag_beside_every_frame(&cloud.client, "eth0");
    arrives(&cloud.client, &cloud.vm, &[], &[(c, 0x6064)], mark + 3);
    let xdp = cloud.status().sides.map(|s| s.attached.unwrap().kernel.xdp);
    assert!(xdp.iter().all(|x| x.tag_unknown == 0 && x.tag_failed == 0), "{xdp:?}");
}

#[test]
fn the_network_stacks_xdp_does_where_no_driver_has_it() {
    if !usable() {
        return;
    }
    let mut wire = WireConfig::new("vm0", "sw0", VM);
    wire.xdp = XdpMode::Generic;
    let cloud = Cloud::with(common::loop_config(FailPolicy::Pass), wire, Switch::bridge);
    cloud.wait_forwarding();
    let attached = cloud.status().sides.map(|s| s.attached.unwrap());
    assert!(attached.iter().all(|a| !a.native && !a.sees_tags), "{attached:?}");
    // The sender on the switch's side is ours to tell, so its tags stay in the frame; only accelerated ones of a
    // VM's own interface, in another namespace, are out of reach.
    let tags = [(0x8100, 100)];
    arrives(&cloud.client, &cloud.vm, &tags, &tags, 0x99);
    arrives(&cloud.vm, &cloud.client, &tags, &tags, 0x9a);
    tag_beside_every_frame(&cloud.client, "eth0");
    arrives(&cloud.client, &cloud.vm, &[], &[(0x8100, 0x6064)], 0x9b);
    assert!(cloud.counters()[Side::Switch as usize].rx_packets > 0);
}
