use super::*;

fn frame(tags: &[u16], ether_type: u16, packet: &[u8]) -> Vec<u8> {
    let mut f = vec![0; ADDRESSES_LEN];
    for tag in tags {
        f.extend(tag.to_be_bytes());
        f.extend([0, 7]);
    }
    f.extend(ether_type.to_be_bytes());
    f.extend(packet);
    f
}

fn kind(frame: &[u8]) -> Kind {
    classify(frame, frame.len())
}

fn packet4() -> Vec<u8> {
    let mut p = vec![0x45; 12];
    p.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    p
}

fn packet6(next: u8, hops: u8, first: u8) -> Vec<u8> {
    let mut p = vec![0x60, 0, 0, 0, 0, 8, next, hops];
    p.extend(1_u128.to_be_bytes());
    p.extend(2_u128.to_be_bytes());
    p.extend([first, 0, 0, 0, 0, 0, 0, 0]);
    p
}

/// An advertisement (136) or solicitation (135) of a neighbour, or a router's advertisement (134).
fn message(kind: u8) -> Vec<u8> {
    let mut p = packet6(ICMPV6, 255, kind);
    let (source, destination) = (0xfe80_u128 << 112 | 1, 0xff02_u128 << 112 | 1);
    p[8..24].copy_from_slice(&source.to_be_bytes());
    p[24..40].copy_from_slice(&destination.to_be_bytes());
    if kind == 135 {
        p[24..40].copy_from_slice(&(0xff02_u128 << 112 | 0x1_ff00_0001).to_be_bytes());
    }
    p.extend(if kind == 134 { vec![0; 8] } else { source.to_be_bytes().to_vec() });
    let len = (p.len() - 40) as u8;
    p[5] = len;
    p
}

const V4: Kind = Kind::V4 { source: 0x0a00_0001, destination: 0x0a00_0002 };
const V6: Kind = Kind::V6 { source: 1, destination: 2 };

#[test]
fn addresses_are_found_behind_up_to_two_tags() {
    for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100], &[0x9100, 0x8100]] {
        assert_eq!(kind(&frame(tags, ether_type::IPV4, &packet4())), V4, "{tags:x?}");
        assert_eq!(kind(&frame(tags, ether_type::IPV6, &packet6(6, 64, 0))), V6, "{tags:x?}");
    }
    let three = frame(&[0x88a8, 0x8100, 0x8100], ether_type::IPV4, &packet4());
    assert_eq!(kind(&three), Kind::Other);
}

#[test]
fn the_fast_path_agrees_with_classify() {
    let mut version_6 = packet4();
    version_6[0] = 0x65;
    for (tags, ether_type, packet) in [
        (&[][..], ether_type::IPV4, packet4()),
        (&[], ether_type::IPV4, version_6),
        (&[0x8100], ether_type::IPV4, packet4()),
        (&[], ether_type::IPV6, packet6(6, 64, 0)),
        (&[], ether_type::ARP, packet4()),
    ] {
        let whole = frame(tags, ether_type, &packet);
        for len in 0..=whole.len() {
            let bytes = &whole[..len];
            let untagged = tags.is_empty() && matches!(kind(bytes), Kind::V4 { .. });
            let expected = untagged.then_some((0x0a00_0001_0a00_0002, kind(bytes)));
            assert_eq!(addresses_of_v4(bytes), expected, "{len} bytes of {whole:x?}");
        }
    }
}

#[test]
fn frames_cut_before_the_addresses_are_other() {
    let whole = frame(&[0x8100], ether_type::IPV4, &packet4());
    for len in 0..whole.len() {
        assert_eq!(kind(&whole[..len]), Kind::Other, "{len} bytes");
    }
    assert_eq!(kind(&whole), V4);
}

#[test]
fn only_neighbour_discovery_itself_is_exempt() {
    for number in [134, 135, 136] {
        let whole = frame(&[], ether_type::IPV6, &message(number));
        let Kind::Discovery(found) = kind(&whole) else { panic!("{number}: {:?}", kind(&whole)) };
        assert_eq!(found.is_router, number == 134);
        assert!(kind(&whole).is_exempt(Direction::Ingress));
        let egress = kind(&whole).vm_address(Direction::Egress);
        assert_eq!(kind(&whole).is_exempt(Direction::Egress), number != 134, "a VM is no router");
        assert_eq!(egress.is_some(), number == 134);
        let long = frame(&[], ether_type::IPV6, &[message(number), vec![0; 1400]].concat());
        assert!(matches!(kind(&long), Kind::V6 { .. }), "{number}: bytes behind the message");
        assert!(matches!(classify(&whole, whole.len() + 1), Kind::V6 { .. }), "{number}: bytes not seen");
        let mut forwarded = whole;
        forwarded[14 + 7] = 254;
        assert!(matches!(kind(&forwarded), Kind::V6 { .. }), "{number}: a router forwarded it");
    }
    for number in [128, 132, 137] {
        let bytes = frame(&[], ether_type::IPV6, &packet6(ICMPV6, 255, number));
        assert_eq!(kind(&bytes), V6, "{number}: no such message between these addresses");
    }
}

#[test]
fn only_arp_itself_is_exempt() {
    let arp = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &[0; 6], &[10, 0, 0, 1], &[0; 10]].concat();
    let whole = frame(&[], ether_type::ARP, &arp);
    assert_eq!(kind(&whole), Kind::Arp(neighbour::Arp { sender: 0x0a00_0001, is_own_link: true }));
    let long = frame(&[], ether_type::ARP, &[arp, vec![0; 1400]].concat());
    assert_eq!(kind(&long), Kind::Other);
    assert_eq!(kind(&frame(&[], ether_type::ARP, &packet4())), Kind::Other);
    for direction in Direction::ALL {
        assert!(kind(&whole).is_exempt(direction) && !kind(&long).is_exempt(direction));
    }
}

#[test]
fn ip_that_readers_find_at_different_places_is_refused() {
    let tagged = |tags: &[u16], ether_type, packet: &[u8]| kind(&frame(tags, ether_type, packet));
    let version = |packet: Vec<u8>, version: u8| [&[version << 4 | 5], &packet[1..]].concat();
    for tags in [&[][..], &[0x8100]] {
        for number in (0..16).filter(|n| *n != 4) {
            let refused = tagged(tags, ether_type::IPV4, &version(packet4(), number));
            assert_eq!(refused, Kind::Refused, "version {number} in IPv4");
        }
        for number in (0..16).filter(|n| *n != 6) {
            let refused = tagged(tags, ether_type::IPV6, &version(packet6(6, 64, 0), number));
            assert_eq!(refused, Kind::Refused, "version {number} in IPv6");
        }
        let snap = |of: u16| [&[0xaa, 0xaa, 3, 0, 0, 0][..], &of.to_be_bytes(), &packet4()].concat();
        for of in [ether_type::IPV4, ether_type::IPV6, ether_type::ARP] {
            assert_eq!(tagged(tags, 28, &snap(of)), Kind::Refused, "{of:x} in SNAP");
            assert_eq!(tagged(tags, 0, &snap(of)), Kind::Refused, "{of:x} in SNAP, a false length");
        }
        assert_eq!(tagged(tags, 28, &snap(0x809b)), Kind::Other, "AppleTalk");
        assert_eq!(tagged(tags, 28, &[0x42, 0x42, 3, 0, 0, 0, 0, 0]), Kind::Other, "spanning tree");
    }
    for direction in Direction::ALL {
        assert!(Kind::Refused.is_exempt(direction), "no program judges it: it is dropped");
    }
}
