//! Checksums that a sender leaves to the kernel or a card, to be written once the switch has judged the
//! frame.

use std::net::IpAddr;

use macaddr::MacAddr6;
use p4shield_frame::Sum;
use p4shield_nicswitch::Reason;

use crate::bed::*;
use crate::frames::*;
use crate::raw::Raw;

/// Places in frames: the end of the headers of IPv4 and IPv6.
const BEHIND_V4: u16 = 14 + 20;
const BEHIND_V6: u16 = 14 + 40;

/// Returns the other end of a port, for frames whose checksums its device leaves to the next one.
fn sender(bed: &Bed, port: &str) -> Raw {
    offload(&bed.ends, &end(port), ["tx", "on"]);
    Raw::open(&bed.ends, &end(port)).with_offloads()
}

/// Sends frames from a port without their checksums, and checks that none arrives at another one otherwise
/// than it was sent.
fn sent(bed: &Bed, [from, to]: [&'static str; 2], frames: &[(&str, [u16; 2], Vec<u8>)]) {
    let sender = sender(bed, from);
    for (count, (name, [start, offset], frame)) in (1..).zip(frames) {
        sender.send(&without_checksum(*start, *offset, frame));
        let arrived = bed.numbered_as(to, frame);
        if is_in_xdp() {
            assert_eq!(arrived.as_ref(), Some(frame), "{name}: XDP redirects the bytes alone");
        } else {
            assert_eq!((arrived, bed.counters()[from].dropped(Reason::Checksum)), (None, count), "{name}");
        }
    }
}

/// Stations of tenant a that send, and those to which they may.
const VM: [MacAddr6; 2] = [GA, A1];
const SWITCH: [MacAddr6; 2] = [ROUTER, IA];
const OUTSIDE: [MacAddr6; 2] = [IA, ROUTER];
const GATEWAY: [MacAddr6; 2] = [A1, GA];

/// Returns frames from tenant a to the outside, with checksums over that by which they are judged.
fn over_judged([to, from]: [MacAddr6; 2]) -> Vec<(&'static str, [u16; 2], Vec<u8>)> {
    let outside = "2001:db8::1".parse().unwrap();
    let over_v6 = |next, message: &[u8]| ethernet(to, from, IPV6, &ipv6(v6(0xa1), outside, next, message));
    let udp4 = || ethernet(to, from, IPV4, &udp(v4(0xa1).into(), [198, 51, 100, 1].into()));
    let udp6 = || over_v6(17, &[0x13, 0x88, 0x13, 0x89, 0, 8, 0, 0]);
    let reply = ethernet(to, from, ARP, &arp(2, from, v4(0xa1), v4(1)));
    let hidden = over_v6(60, &[17, 0, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0]);
    vec![
        ("the source address", [26, 0], udp4()),
        ("the source address, from further on", [22, 4], udp4()),
        ("the last byte of the header", [BEHIND_V4 - 2, 1], udp4()),
        ("a sender in ARP", [28, 0], reply),
        ("an IPv6 source", [22, 14], udp6()),
        ("the last byte of the IPv6 header", [BEHIND_V6 - 2, 1], udp6()),
        ("the type of an ICMPv6 message", [BEHIND_V6, 0], over_v6(58, &[128, 0, 0, 0, 0, 0, 0, 0])),
        ("a hidden next header", [BEHIND_V6, 0], hidden),
    ]
}

/// Returns frames of UDP between tenant a and the outside, with checksums in their places.
fn in_place([to, from]: [MacAddr6; 2]) -> Vec<(&'static str, [u16; 2], Vec<u8>)> {
    let own = [IpAddr::from(v4(0xa1)), v6(0xa1).into()];
    let outside = [IpAddr::from([198, 51, 100, 1]), "2001:db8::1".parse().unwrap()];
    let is_from_outside = [OUTSIDE, GATEWAY].contains(&[to, from]);
    let [source, target] = if is_from_outside { [outside, own] } else { [own, outside] };
    vec![
        ("its place", [BEHIND_V4, 6], ethernet(to, from, IPV4, &udp(source[0], target[0]))),
        ("its place in IPv6", [BEHIND_V6, 6], ethernet(to, from, IPV6, &udp(source[1], target[1]))),
    ]
}

#[test]
fn no_checksum_is_written_over_what_was_judged() {
    let Some(bed) = Bed::build() else { return };
    // The kernel then writes checksums of frames that leave there, as a card would.
    offload(&bed.host, "wan", ["tx", "off"]);
    sent(&bed, ["ia", "wan"], &over_judged(SWITCH));
    sent(&bed, ["a1", "ga"], &over_judged(VM));
}

#[test]
fn compartments_leave_no_checksum_to_others() {
    let Some(bed) = Bed::build() else { return };
    // A card may keep a byte of the place (e1000).
    sent(&bed, ["ia", "wan"], &in_place(SWITCH));
    sent(&bed, ["ga", "a1"], &in_place(GATEWAY));
}

#[test]
fn checksums_of_vms_and_the_outside_are_completed() {
    let Some(bed) = Bed::build() else { return };
    for ([from, to], stations) in [(["a1", "ga"], VM), (["wan", "ia"], OUTSIDE)] {
        let sender = sender(&bed, from);
        for (name, [start, offset], frame) in in_place(stations) {
            let mut completed = frame.clone();
            let place = usize::from(start + offset);
            let sum = Sum::of(&frame[usize::from(start)..]).udp_checksum();
            completed[place..place + 2].copy_from_slice(&sum.to_be_bytes());
            sender.send(&without_checksum(start, offset, &frame));
            let expected = if is_in_xdp() { frame.clone() } else { completed };
            assert_eq!(bed.numbered_as(to, &frame), Some(expected), "{from} to {to}: {name}");
        }
    }
}
