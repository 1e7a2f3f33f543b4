//! Attacks. Each has a twin: the frame that it was made of, which arrives.

use std::net::Ipv6Addr;

use macaddr::MacAddr6;
use p4shield_nicswitch::Reason;

use crate::bed::*;
use crate::frames::*;
use crate::raw::Raw;

const ALL: MacAddr6 = MacAddr6::broadcast();
const ANOTHER: MacAddr6 = mac(0x66);
const FOREIGN: u8 = 0x66;

/// An attack from a port.
struct Attack {
    name: &'static str,
    twin: Vec<u8>,
    frame: Vec<u8>,
    reason: Reason,
}

fn attack(name: &'static str, twin: &[u8], frame: Vec<u8>, reason: Reason) -> Attack {
    Attack { name, twin: twin.to_vec(), frame, reason }
}

/// Plays attacks of `from`, whose twins arrive at `to`.
fn play(from: &str, to: &'static str, attacks: impl IntoIterator<Item = Attack>) {
    let Some(bed) = Bed::build() else { return };
    if is_bridge() {
        return play_together(&bed, from, to, &attacks.into_iter().collect::<Vec<_>>());
    }
    for attack in attacks {
        assert_eq!(bed.try_frame(from, &attack.twin), delivered(to), "{}: the twin", attack.name);
        assert_eq!(bed.try_frame(from, &attack.frame), dropped(attack.reason), "{}", attack.name);
    }
}

/// Plays all attacks at once: reading a bridge's counters takes half a second in the guest.
fn play_together(bed: &Bed, from: &str, to: &'static str, attacks: &[Attack]) {
    // Each twin of its own, as a number at the end makes it.
    let twins: Vec<_> = attacks.iter().map(|attack| numbered(&attack.twin)).collect();
    let before = bed.counters();
    for (attack, twin) in attacks.iter().zip(&twins) {
        bed.sockets[from].send(twin);
        bed.sockets[from].send(&attack.frame);
    }
    let arrived: Vec<_> = NAMES.iter().map(|name| bed.before_another(name)).collect();
    let after = bed.counters();
    for (attack, twin) in attacks.iter().zip(&twins) {
        for (name, arrived) in NAMES.iter().zip(&arrived) {
            assert_eq!(arrived.contains(twin), *name == to, "{}: the twin at {name}", attack.name);
            assert!(!arrived.contains(&attack.frame), "{} arrives at {name}", attack.name);
        }
    }
    for reason in Reason::ALL {
        let names = attacks.iter().filter(|attack| attack.reason == reason).map(|attack| attack.name);
        let names: Vec<_> = names.collect();
        let count = after[from].dropped(reason) - before[from].dropped(reason);
        assert_eq!(count, names.len() as u64, "{}: {names:?}; {:?}", reason.name(), after[from]);
    }
}

/// Returns a frame with another number behind its packet.
fn numbered(frame: &[u8]) -> Vec<u8> {
    let end = frame.len() - 8;
    let other = ethernet(mac(0), mac(0), 0, &[]);
    [&frame[..end], &other[14..]].concat()
}

/// Returns a frame with other bytes from `at` on.
fn with(frame: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut changed = frame.to_vec();
    changed[at..at + bytes.len()].copy_from_slice(bytes);
    changed
}

fn to(frame: &[u8], mac: MacAddr6) -> Vec<u8> {
    with(frame, 0, mac.as_bytes())
}

fn from(frame: &[u8], mac: MacAddr6) -> Vec<u8> {
    with(frame, 6, mac.as_bytes())
}

/// Returns UDP from a VM's address to the outside.
fn out(address: u8) -> Vec<u8> {
    udp(v4(address).into(), v4(1).into())
}

fn out6(address: Ipv6Addr) -> Vec<u8> {
    udp(address.into(), v6(1).into())
}

#[test]
fn a_vm_sends_in_its_own_name_only() {
    let good = ethernet(GA, A1, IPV4, &out(0xa1));
    let good6 = ethernet(GA, A1, IPV6, &out6(v6(0xa1)));
    let bad = |packet: &[u8], kind| ethernet(GA, A1, kind, packet);
    let mapped = v4(0xa1).to_ipv6_mapped();
    let mut fragment = bad(&out(FOREIGN), IPV4);
    fragment[20] = 0x20;
    let mut later = bad(&out(FOREIGN), IPV4);
    later[21] = 8;
    play(
        "a1",
        "ga",
        [
            attack("an unknown MAC address", &good, from(&good, ANOTHER), Reason::SourceMac),
            attack("the other VM's MAC address", &good, from(&good, A2), Reason::SourceMac),
            attack("the gateway's MAC address", &good, from(&good, GA), Reason::SourceMac),
            attack("another tenant's MAC address", &good, from(&good, B1), Reason::SourceMac),
            attack("a foreign address", &good, bad(&out(FOREIGN), IPV4), Reason::SourceIp),
            attack("the other VM's address", &good, bad(&out(0xa2), IPV4), Reason::SourceIp),
            attack("no address", &good, bad(&udp([0; 4].into(), v4(1).into()), IPV4), Reason::SourceIp),
            attack("a first fragment", &with(&good, 20, &[0x20]), fragment, Reason::SourceIp),
            attack("a later fragment", &with(&good, 21, &[8]), later, Reason::SourceIp),
            attack("a foreign IPv6 address", &good6, bad(&out6(v6(0xb1)), IPV6), Reason::SourceIp),
            attack("the link-local address", &good6, bad(&out6(link_local(A1)), IPV6), Reason::SourceIp),
            attack(
                "the unspecified address",
                &good6,
                bad(&out6(Ipv6Addr::UNSPECIFIED), IPV6),
                Reason::SourceIp,
            ),
            attack("its IPv4 address in IPv6", &good6, bad(&out6(mapped), IPV6), Reason::SourceIp),
        ],
    );
}

#[test]
fn a_vm_reaches_its_gateway_only() {
    let good = ethernet(GA, A1, IPV4, &out(0xa1));
    let targets = [
        ("the other VM of its tenant", A2),
        ("another tenant's VM", B1),
        ("another tenant's gateway", GB),
        ("its compartment's other side", IA),
        ("another compartment", IB),
        ("the outside", ROUTER),
        ("itself", A1),
        ("no station", MacAddr6::nil()),
    ];
    let attacks = targets.map(|(name, mac)| attack(name, &good, to(&good, mac), Reason::Destination));
    play("a1", "ga", attacks);
}

#[test]
fn tags_and_other_protocols_are_dropped() {
    let good = ethernet(GA, A1, IPV4, &out(0xa1));
    let double = tagged(&tagged(&good, 0x8100, B), 0x88a8, A);
    let kind = |kind: u16| with(&good, 12, &kind.to_be_bytes());
    play(
        "a1",
        "ga",
        [
            attack("its own VLAN's tag", &good, tagged(&good, 0x8100, A), Reason::Tag),
            attack("another VLAN's tag", &good, tagged(&good, 0x8100, B), Reason::Tag),
            attack("a priority tag", &good, tagged(&good, 0x8100, 0), Reason::Tag),
            attack("a service tag", &good, tagged(&good, 0x88a8, B), Reason::Tag),
            attack("two tags", &good, double, Reason::Tag),
            attack("LLDP", &good, kind(0x88cc), Reason::Ethertype),
            attack("MPLS", &good, kind(0x8847), Reason::Ethertype),
            attack("an old tag", &good, kind(0x9100), Reason::Ethertype),
            attack("a length", &good, kind(46), Reason::Ethertype),
        ],
    );
}

#[test]
fn tags_in_packet_metadata_are_dropped() {
    let Some(mut bed) = Bed::build() else { return };
    let (from, good) = allowed_to("ga");
    assert_eq!(bed.try_frame(from, &good), delivered("ga"));
    let frame = ethernet(GA, A2, IPV4, &out(0xa2));
    if is_bridge() {
        // The guest has no compiler. A VLAN interface leaves the tag to the one below it, which is a veth.
        bed.ends.ip(&format!("link add link {} name tags up type vlan id {A}", end("a2"))).unwrap();
        bed.sockets.insert("a2", Raw::open(&bed.ends, "tags"));
    } else {
        bed.ends.tag_in_metadata(&end("a2")).unwrap();
    }
    let before = bed.counters();
    bed.sockets["a2"].send(&frame);
    let after = bed.wait_for("a2", before["a2"].received_packets + 1);
    assert_eq!(after["a2"].dropped(Reason::Tag), before["a2"].dropped(Reason::Tag) + 1);
    assert_eq!(after["ga"].delivered_packets, before["ga"].delivered_packets);
}

#[test]
fn arp_in_anothers_name_is_dropped() {
    let good = ethernet(ALL, A1, ARP, &arp(2, A1, v4(0xa1), v4(1)));
    let bad = |mac, address, operation| ethernet(ALL, A1, ARP, &arp(operation, mac, address, v4(1)));
    let mut attacks = vec![
        attack("another VM's MAC address", &good, bad(A2, v4(0xa1), 2), Reason::Arp),
        attack("the gateway's MAC address", &good, bad(GA, v4(0xa1), 2), Reason::Arp),
        attack("the gateway's address", &good, bad(A1, v4(1), 2), Reason::Arp),
        attack("another VM's address", &good, bad(A1, v4(0xa2), 1), Reason::Arp),
        attack("another tenant's address", &good, bad(A1, v4(0xb1), 1), Reason::Arp),
        attack("a probe as an answer", &good, bad(A1, [0; 4].into(), 2), Reason::Arp),
        attack("reverse ARP", &good, bad(A1, v4(0xa1), 3), Reason::Arp),
    ];
    for (at, byte) in [(14, 1), (15, 6), (16, 0x86), (18, 8), (19, 16), (20, 1)] {
        attacks.push(attack("not Ethernet and IPv4", &good, with(&good, at, &[byte]), Reason::Arp));
    }
    play("a1", "ga", attacks);
}

/// Returns a multicast frame of neighbour discovery from a1's interface.
fn neighbour(source: Ipv6Addr, message: &[u8]) -> Vec<u8> {
    ethernet(MacAddr6::new(0x33, 0x33, 0, 0, 0, 1), A1, IPV6, &ipv6(source, v6(1), 58, message))
}

#[test]
fn neighbour_discovery_in_anothers_name_is_dropped() {
    let own = v6(0xa1);
    let link = Some(A1);
    let ask = |source, target, link| neighbour(source, &discovery(SOLICITATION, Some(target), link));
    let say = |source, target, link| neighbour(source, &discovery(ADVERTISEMENT, Some(target), link));
    let (asked, said) = (ask(own, v6(1), link), say(own, own, link));
    let unspecified = Ipv6Addr::UNSPECIFIED;
    let probe = ask(unspecified, own, None);
    let two = [discovery(SOLICITATION, Some(v6(1)), Some(A1)), vec![1, 1, 2, 0, 0, 0, 0, 0xa2]].concat();
    let endless = [discovery(SOLICITATION, Some(v6(1)), None), vec![14, 0, 0, 0, 0, 0, 0, 0]].concat();
    let long =
        [discovery(SOLICITATION, Some(v6(1)), None), vec![1, 2, 2, 0, 0, 0, 0, 0xa1], vec![0; 8]].concat();
    let over = [discovery(SOLICITATION, Some(v6(1)), None), vec![14, 2, 0, 0, 0, 0, 0, 0]].concat();
    let nonces = [discovery(SOLICITATION, Some(v6(1)), None), [14, 1, 0, 0, 0, 0, 0, 0].repeat(9)].concat();
    play(
        "a1",
        "ga",
        [
            attack("the gateway's address", &said, say(own, v6(1), link), Reason::Neighbour),
            attack("another VM's address", &said, say(own, v6(0xa2), link), Reason::Neighbour),
            attack("another's link-local address", &said, say(own, link_local(A2), link), Reason::Neighbour),
            attack("another's MAC address", &said, say(own, own, Some(A2)), Reason::Neighbour),
            attack("a question with another's MAC", &asked, ask(own, v6(1), Some(GA)), Reason::Neighbour),
            attack("a second address in options", &asked, neighbour(own, &two), Reason::Neighbour),
            attack("an option without a length", &asked, neighbour(own, &endless), Reason::Neighbour),
            attack("a long link-layer address", &asked, neighbour(own, &long), Reason::Neighbour),
            attack("an option beyond the end", &asked, neighbour(own, &over), Reason::Malformed),
            attack("very many options", &asked, neighbour(own, &nonces), Reason::Neighbour),
            attack("a foreign source", &asked, ask(v6(0xa2), v6(1), link), Reason::SourceIp),
            attack("another's link-local source", &asked, ask(link_local(A2), v6(1), link), Reason::SourceIp),
            attack(
                "a probe for another's address",
                &probe,
                ask(unspecified, v6(0xa2), None),
                Reason::Neighbour,
            ),
            attack(
                "a router's question",
                &asked,
                neighbour(own, &discovery(133, None, Some(A2))),
                Reason::Neighbour,
            ),
            attack(
                "a router's message",
                &asked,
                neighbour(own, &discovery(134, None, link)),
                Reason::Neighbour,
            ),
            attack(
                "a router's from nowhere",
                &asked,
                neighbour(link_local(A1), &discovery(134, None, link)),
                Reason::Neighbour,
            ),
            attack(
                "a redirect",
                &asked,
                neighbour(own, &discovery(137, Some(v6(1)), None)),
                Reason::Neighbour,
            ),
        ],
    );
}

/// Returns a packet with extension headers in front of `next`, the first one first.
fn behind(headers: &[&[u8]], kinds: &[u8], next: u8, message: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (index, header) in headers.iter().enumerate() {
        let start = payload.len();
        payload.extend_from_slice(header);
        payload[start] = kinds.get(index + 1).copied().unwrap_or(next);
    }
    payload.extend_from_slice(message);
    ethernet(GA, A1, IPV6, &ipv6(v6(0xa1), v6(1), kinds[0], &payload))
}

#[test]
fn hidden_neighbour_discovery_is_dropped() {
    let said = discovery(ADVERTISEMENT, Some(v6(0xa1)), Some(A1));
    let echo = [128, 0, 0, 0, 0, 0, 0, 0];
    let (plain, authentication) = ([0; 8], [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let first = [0, 0, 0, 1, 0, 0, 0, 7];
    let later = [0, 0, 0, 9, 0, 0, 0, 7];
    let mut attacks = Vec::new();
    let mut add = |name, headers: &[&[u8]], kinds: &[u8]| {
        // A bridge's rules do not see what is behind an authentication header.
        let twin = behind(headers, kinds, if kinds == [51] { 17 } else { 58 }, &echo);
        attacks.push(attack(name, &twin, behind(headers, kinds, 58, &said), Reason::Neighbour));
    };
    add("hop-by-hop options", &[&plain], &[0]);
    add("a routing header", &[&plain], &[43]);
    add("destination options", &[&plain], &[60]);
    add("a fragment header", &[&[0; 8]], &[44]);
    add("a first fragment", &[&first], &[44]);
    add("an authentication header", &[&authentication], &[51]);
    add("several headers", &[&plain, &plain, &first, &plain], &[0, 60, 44, 60]);
    let many: Vec<&[u8]> = vec![&plain; 9];
    let few = behind(&many[..7], &[60; 7], 58, &echo);
    // The kernel's own reader, which a bridge's rules use, reads all of them.
    let message = if is_bridge() { &said[..] } else { &echo };
    attacks.push(attack(
        "more headers than are read",
        &few,
        behind(&many, &[60; 9], 58, message),
        Reason::Neighbour,
    ));
    let rest = behind(&[&later], &[44], 58, &said);
    attacks.push(attack(
        "a first fragment that ends early",
        &rest,
        behind(&[&first], &[44], 60, &[]),
        Reason::Malformed,
    ));
    attacks.push(attack(
        "a header that ends outside",
        &few,
        behind(&[&[0, 9, 0, 0, 0, 0, 0, 0]], &[60], 17, &echo),
        Reason::Malformed,
    ));
    play("a1", "ga", attacks);
}

#[test]
fn truncated_frames_are_malformed() {
    let good = ethernet(GA, A1, IPV4, &out(0xa1));
    let good6 = ethernet(GA, A1, IPV6, &out6(v6(0xa1)));
    let asks = ethernet(GA, A1, ARP, &arp(1, A1, v4(0xa1), v4(1)));
    let solicits = neighbour(v6(0xa1), &discovery(SOLICITATION, Some(v6(1)), Some(A1)));
    let mut attacks = vec![
        attack("an IPv4 header of 16 bytes", &good, with(&good, 14, &[0x44]), Reason::Malformed),
        attack("version 6 in IPv4", &good, with(&good, 14, &[0x65]), Reason::Malformed),
        attack("a length below the header's", &good, with(&good, 16, &[0, 19]), Reason::Malformed),
        attack("a length beyond the frame's", &good, with(&good, 16, &[1, 0]), Reason::Malformed),
        attack("options beyond the length", &good, with(&good, 14, &[0x4f]), Reason::Malformed),
        attack("version 4 in IPv6", &good6, with(&good6, 14, &[0x40]), Reason::Malformed),
        attack("an IPv6 length beyond the frame's", &good6, with(&good6, 18, &[1, 0]), Reason::Malformed),
        attack("half a solicitation", &solicits, with(&solicits, 18, &[0, 23]), Reason::Malformed),
        attack("half an option", &solicits, with(&solicits, 18, &[0, 28]), Reason::Malformed),
    ];
    for (frame, lengths) in [(&good, [14, 15, 33, 41]), (&good6, [14, 20, 53, 61]), (&asks, [14, 15, 30, 41])]
    {
        let cut = |length: usize| attack("a cut frame", frame, frame[..length].to_vec(), Reason::Malformed);
        attacks.extend(lengths.map(cut));
    }
    play("a1", "ga", attacks);
}

#[test]
fn frames_longer_than_the_targets_mtu_are_dropped() {
    let Some(bed) = Bed::build() else { return };
    bed.ends.ip(&format!("link set {} mtu 3000", end("a1"))).unwrap();
    bed.host.ip("link set a1 mtu 3000").unwrap();
    let frame = |length: usize| {
        let packet = ipv4(v4(0xa1), v4(1), 17, &vec![0; length - 20 - 8]);
        ethernet(GA, A1, IPV4, &packet)
    };
    assert_eq!(bed.try_frame("a1", &frame(1500)), delivered("ga"));
    if is_bridge() {
        // A bridge leaves room for a tag, and counts nothing.
        for length in [1505, 2500] {
            let nothing = Seen { at: vec![], dropped: None };
            assert_eq!(bed.try_frame("a1", &frame(length)), nothing, "{length}");
        }
        return;
    }
    assert_eq!(bed.try_frame("a1", &frame(1501)), dropped(Reason::TooLong));
    assert_eq!(bed.try_frame("a1", &frame(2500)), dropped(Reason::TooLong));
}

#[test]
fn a_gateway_reaches_vms_of_its_vlan_only() {
    let (_, good) = allowed_to("a1");
    let asks = ethernet(ALL, GA, ARP, &arp(1, GA, v4(1), v4(0xa1)));
    let advertises = ipv6(link_local(GA), v6(1), 58, &discovery(134, None, Some(GA)));
    let group = MacAddr6::new(0x33, 0x33, 0, 0, 0, 1);
    play(
        "ga",
        "a1",
        [
            attack("a VM's MAC address", &good, from(&good, A2), Reason::SourceMac),
            attack("another tenant's VM", &good, to(&good, B1), Reason::Destination),
            attack("another tenant's gateway", &good, to(&good, GB), Reason::Destination),
            attack("its own other side", &good, to(&good, IA), Reason::Destination),
            attack("another compartment", &good, to(&good, IB), Reason::Destination),
            attack("the outside", &good, to(&good, ROUTER), Reason::Destination),
            attack("itself", &good, to(&good, GA), Reason::Destination),
            attack("broadcast", &good, asks, Reason::Destination),
            attack("multicast", &good, ethernet(group, GA, IPV6, &advertises), Reason::Destination),
            attack("a tag", &good, tagged(&good, 0x8100, B), Reason::Tag),
            attack("LLDP", &good, with(&good, 12, &[0x88, 0xcc]), Reason::Ethertype),
            attack("a cut frame", &good, good[..30].to_vec(), Reason::Malformed),
        ],
    );
}

#[test]
fn a_compartment_reaches_the_outside_only() {
    let (_, good) = allowed_to("wan");
    let foreign = ethernet(ROUTER, IA, IPV4, &out(0xb1));
    let message = |kind, mac| discovery(kind, Some(v6(0xa1)), Some(mac));
    let group = MacAddr6::new(0x33, 0x33, 0, 0, 0, 1);
    let nd = |to, source, message: &[u8]| ethernet(to, IA, IPV6, &ipv6(source, v6(1), 58, message));
    let said = nd(group, v6(0xa1), &message(ADVERTISEMENT, IA));
    let asked = ethernet(ALL, IA, ARP, &arp(1, IA, v4(0xa1), v4(1)));
    let claims = |mac, address| ethernet(ALL, IA, ARP, &arp(1, mac, address, v4(1)));
    let mut attacks = vec![
        attack("its other side's MAC address", &good, from(&good, GA), Reason::SourceMac),
        attack("another compartment's MAC address", &good, from(&good, IB), Reason::SourceMac),
        attack("another tenant's address", &good, foreign, Reason::SourceIp),
        attack("ARP for another tenant", &asked, claims(IA, v4(0xb1)), Reason::Arp),
        attack("ARP with another MAC address", &asked, claims(IB, v4(0xa1)), Reason::Arp),
        attack("an ARP probe", &asked, claims(IA, [0; 4].into()), Reason::Arp),
        attack(
            "another MAC address for its own",
            &said,
            nd(group, v6(0xa1), &message(ADVERTISEMENT, IB)),
            Reason::Neighbour,
        ),
        attack(
            "a router's message",
            &said,
            nd(group, v6(0xa1), &discovery(134, None, Some(IA))),
            Reason::Neighbour,
        ),
        attack(
            "a question for routers",
            &said,
            nd(group, v6(0xa1), &discovery(133, None, Some(IA))),
            Reason::Destination,
        ),
        attack("broadcast of IPv4", &good, to(&good, ALL), Reason::Destination),
        attack(
            "multicast of IPv4",
            &good,
            to(&good, MacAddr6::new(1, 0, 0x5e, 0, 0, 1)),
            Reason::Destination,
        ),
        attack("multicast of ARP", &asked, to(&asked, group), Reason::Destination),
        attack("neighbour discovery by broadcast", &said, to(&said, ALL), Reason::Destination),
        attack("multicast of IPv6", &said, ethernet(group, IA, IPV6, &out6(v6(0xa1))), Reason::Destination),
    ];
    for mac in [IB, GB, GA, A1, B1, IA] {
        attacks.push(attack("a port's MAC address", &good, to(&good, mac), Reason::Destination));
    }
    play("ia", "wan", attacks);
}

#[test]
fn the_outside_reaches_compartments_only() {
    let (_, good) = allowed_to("ia");
    let asked = ethernet(ALL, ROUTER, ARP, &arp(1, ROUTER, v4(1), v4(0xa1)));
    let group = MacAddr6::new(0x33, 0x33, 0xff, 0, 0, 0xa1);
    let nd = |kind, target| {
        let message = discovery(kind, Some(target), Some(ROUTER));
        ethernet(group, ROUTER, IPV6, &ipv6(v6(1), v6(0xa1), 58, &message))
    };
    let solicits = nd(SOLICITATION, v6(0xa1));
    let fragment = [&[58, 0, 0, 1, 0, 0, 0, 7][..], &discovery(SOLICITATION, Some(v6(0xa1)), None)].concat();
    let hidden = ethernet(group, ROUTER, IPV6, &ipv6(v6(1), v6(0xa1), 44, &fragment));
    let mut attacks = vec![
        attack("a multicast source", &good, from(&good, group), Reason::SourceMac),
        attack("broadcast of IPv4", &good, to(&good, ALL), Reason::Destination),
        attack("an unknown station", &good, to(&good, ANOTHER), Reason::Destination),
        attack("ARP for an unknown address", &asked, with(&asked, 38, &v4(1).octets()), Reason::Destination),
        attack("an answer by broadcast", &asked, with(&asked, 21, &[2]), Reason::Destination),
        attack("ARP by multicast", &asked, to(&asked, group), Reason::Destination),
        attack("ARP of other hardware", &asked, with(&asked, 15, &[6]), Reason::Destination),
        attack("a question for an unknown address", &solicits, nd(SOLICITATION, v6(1)), Reason::Destination),
        attack("an advertisement by multicast", &solicits, nd(ADVERTISEMENT, v6(0xa1)), Reason::Destination),
        attack("a question by broadcast", &solicits, to(&solicits, ALL), Reason::Destination),
        attack("a question in a fragment", &solicits, hidden, Reason::Destination),
        attack("a tag", &good, tagged(&good, 0x8100, A), Reason::Tag),
        attack("LLDP", &good, with(&good, 12, &[0x88, 0xcc]), Reason::Ethertype),
        attack("a cut frame", &good, good[..30].to_vec(), Reason::Malformed),
    ];
    for mac in [A1, B1, GA, GB] {
        attacks.push(attack("a tenant's MAC address", &good, to(&good, mac), Reason::Destination));
    }
    for mac in [IA, IB, GA, A1] {
        attacks.push(attack("a port's MAC address as source", &good, from(&good, mac), Reason::SourceMac));
    }
    play("wan", "ia", attacks);
}

#[test]
fn a_changed_mac_address_of_an_interface_is_dropped() {
    let Some(bed) = Bed::build() else { return };
    let (_, good) = allowed_to("ga");
    assert_eq!(bed.try_frame("a1", &good), delivered("ga"));
    bed.ends.ip(&format!("link set {} address 02:00:00:00:00:66", end("a1"))).unwrap();
    assert_eq!(bed.try_frame("a1", &from(&good, ANOTHER)), dropped(Reason::SourceMac));
}
