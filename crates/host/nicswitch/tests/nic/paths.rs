//! The ways that are open.

use macaddr::MacAddr6;
use p4shield_nicswitch::Reason;

use crate::bed::*;
use crate::frames::*;

const ALL: MacAddr6 = MacAddr6::broadcast();
const V6_GROUP: MacAddr6 = MacAddr6::new(0x33, 0x33, 0xff, 0, 0, 0xa1);

#[test]
fn each_step_of_the_chains_is_open() {
    let Some(bed) = Bed::build() else { return };
    for to in NAMES {
        let (from, frame) = allowed_to(to);
        assert_eq!(bed.try_frame(from, &frame), delivered(to), "{from} to {to}");
    }
}

#[test]
fn ipv6_passes_as_ipv4_does() {
    let Some(bed) = Bed::build() else { return };
    let outside = "2001:db8::1".parse().unwrap();
    let [a1, b1] = [0xa1, 0xb1].map(|last| v6(last).into());
    for (from, to, frame) in [
        ("a1", "ga", ethernet(GA, A1, IPV6, &udp(a1, outside))),
        ("gb", "b1", ethernet(B1, GB, IPV6, &udp(outside, b1))),
        ("ib", "wan", ethernet(ROUTER, IB, IPV6, &udp(b1, outside))),
        ("wan", "ia", ethernet(IA, ROUTER, IPV6, &udp(outside, a1))),
    ] {
        assert_eq!(bed.try_frame(from, &frame), delivered(to), "{from} to {to}");
    }
}

#[test]
fn vms_broadcast_reaches_their_gateway_only() {
    let Some(bed) = Bed::build() else { return };
    let request = |from| ethernet(ALL, A1, ARP, &arp(1, A1, from, v4(1)));
    let message = |kind, target, link| discovery(kind, target, link);
    let from = |address, message: Vec<u8>| ethernet(V6_GROUP, A1, IPV6, &ipv6(address, v6(1), 58, &message));
    let nothing = "::".parse().unwrap();
    for frame in [
        request(v4(0xa1)),
        request([0; 4].into()),
        ethernet(ALL, A1, IPV4, &udp(v4(0xa1).into(), v4(255).into())),
        from(v6(0xa1), message(SOLICITATION, Some(v6(1)), Some(A1))),
        from(link_local(A1), message(SOLICITATION, Some(v6(1)), Some(A1))),
        from(nothing, message(SOLICITATION, Some(v6(0xa1)), None)),
        from(nothing, message(133, None, None)),
        from(link_local(A1), message(133, None, Some(A1))),
        from(v6(0xa1), message(ADVERTISEMENT, Some(v6(0xa1)), Some(A1))),
        from(v6(0xa1), message(ADVERTISEMENT, Some(link_local(A1)), Some(A1))),
    ] {
        assert_eq!(bed.try_frame("a1", &frame), delivered("ga"), "{frame:02x?}");
    }
}

#[test]
fn outside_asks_the_compartment_with_the_address() {
    let Some(bed) = Bed::build() else { return };
    let request = |last| ethernet(ALL, ROUTER, ARP, &arp(1, ROUTER, v4(1), v4(last)));
    let solicitation = |last| {
        let message = discovery(SOLICITATION, Some(v6(last)), Some(ROUTER));
        ethernet(V6_GROUP, ROUTER, IPV6, &ipv6(v6(1), v6(last), 58, &message))
    };
    for (frame, to) in [(request(0xa1), "ia"), (request(0xb1), "ib"), (solicitation(0xa2), "ia")] {
        assert_eq!(bed.try_frame("wan", &frame), delivered(to));
    }
    for frame in
        [request(0x77), solicitation(0x77), ethernet(ALL, ROUTER, ARP, &arp(2, ROUTER, v4(1), v4(0xa1)))]
    {
        assert_eq!(bed.try_frame("wan", &frame), dropped(Reason::Destination));
    }
}

#[test]
fn compartments_ask_and_answer_outside() {
    let Some(bed) = Bed::build() else { return };
    let message = |kind, target| {
        let message = discovery(kind, Some(v6(target)), Some(IA));
        ethernet(V6_GROUP, IA, IPV6, &ipv6(v6(0xa1), v6(1), 58, &message))
    };
    for frame in [
        ethernet(ALL, IA, ARP, &arp(1, IA, v4(0xa2), v4(1))),
        ethernet(ROUTER, IA, ARP, &arp(2, IA, v4(0xa2), v4(1))),
        message(SOLICITATION, 1),
        message(ADVERTISEMENT, 0xa2),
    ] {
        assert_eq!(bed.try_frame("ia", &frame), delivered("wan"), "{frame:02x?}");
    }
}

#[test]
fn without_an_uplink_nothing_goes_outside() {
    let Some(bed) = Bed::build() else { return };
    let (from, frame) = allowed_to("wan");
    assert_eq!(bed.try_frame(from, &frame), delivered("wan"));
    bed.apply(&ports()[..7]).unwrap();
    let before = bed.counters();
    bed.sockets["ia"].send(&frame);
    let drops =
        || bed.counters()["ia"].dropped(Reason::Destination) - before["ia"].dropped(Reason::Destination);
    p4shield_testbed::wait_until("the drop", 10, || drops() == 1).unwrap();
}
