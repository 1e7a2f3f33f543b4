//! Checksums that a sender leaves to the kernel or a card, to be written once the switch has judged the
//! frame.

use p4shield_nicswitch::Reason;

use crate::bed::*;
use crate::frames::*;
use crate::raw::Raw;

/// Places in frames: the end of the headers of IPv4 and IPv6.
const BEHIND_V4: u16 = 14 + 20;
const BEHIND_V6: u16 = 14 + 40;

/// Sends frames from a port without their checksums, and checks that none arrives at another one otherwise
/// than it was sent.
fn sent(bed: &Bed, [from, to]: [&'static str; 2], frames: &[(&str, [u16; 2], Vec<u8>)]) {
    // Its device then leaves them to the next one.
    offload(&bed.ends, &end(from), ["tx", "on"]);
    let sender = Raw::open(&bed.ends, &end(from)).with_offloads();
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

#[test]
fn no_checksum_is_written_over_what_was_judged() {
    let Some(bed) = Bed::build() else { return };
    // The kernel then writes checksums of frames that leave there, as a card would.
    offload(&bed.host, "wan", ["tx", "off"]);
    let outside = "2001:db8::1".parse().unwrap();
    let over_v6 = |next, message: &[u8]| ethernet(ROUTER, IA, IPV6, &ipv6(v6(0xa1), outside, next, message));
    let udp4 = || ethernet(ROUTER, IA, IPV4, &udp(v4(0xa1).into(), [198, 51, 100, 1].into()));
    let udp6 = || over_v6(17, &[0x13, 0x88, 0x13, 0x89, 0, 8, 0, 0]);
    let reply = ethernet(ROUTER, IA, ARP, &arp(2, IA, v4(0xa1), v4(1)));
    let hidden = over_v6(60, &[17, 0, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0]);
    let frames = [
        ("the source address", [26, 0], udp4()),
        ("the source address, from further on", [22, 4], udp4()),
        // A card may keep a byte of the place (e1000).
        ("its place", [BEHIND_V4, 6], udp4()),
        ("a sender in ARP", [28, 0], reply),
        ("an IPv6 source", [22, 14], udp6()),
        ("its place in IPv6", [BEHIND_V6, 6], udp6()),
        ("the type of an ICMPv6 message", [BEHIND_V6, 0], over_v6(58, &[128, 0, 0, 0, 0, 0, 0, 0])),
        ("a hidden next header", [BEHIND_V6, 0], hidden),
    ];
    sent(&bed, ["ia", "wan"], &frames);
}

#[test]
fn compartments_get_no_frame_without_its_checksum() {
    let Some(bed) = Bed::build() else { return };
    for (from, to) in [("a1", "ga"), ("wan", "ia")] {
        sent(&bed, [from, to], &[(from, [BEHIND_V4, 6], allowed_to(to).1)]);
    }
}
