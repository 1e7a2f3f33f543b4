//! Just enough parsing to find whose a packet is.
//!
//! Reads at fixed offsets behind at most two VLAN tags, copies nothing, and is generous: whatever has the EtherType
//! of IP and is long enough for its addresses counts as IP, since a packet that is malformed in other ways is for
//! the program to judge and not for us to wave through.

/// What a packet is, as far as the mediator cares. Addresses are in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// IPv4.
    V4 {
        /// Source address.
        source: u32,
        /// Destination address.
        destination: u32,
    },
    /// IPv6, other than neighbour discovery.
    V6 {
        /// Source address.
        source: u128,
        /// Destination address.
        destination: u128,
    },
    /// Not IP, cut off before its addresses, or IPv6 neighbour discovery (which is IPv6's ARP).
    Other,
}

/// The Ethernet header without its type.
const ADDRESSES: usize = 12;
const ETHERTYPE_V4: u16 = 0x0800;
const ETHERTYPE_V6: u16 = 0x86dd;
const ICMPV6: u8 = 58;

/// Classifies the front of an Ethernet frame. Takes any bytes.
#[must_use]
#[inline]
pub fn classify(frame: &[u8]) -> Kind {
    let (ethertype, packet) = network(frame);
    let kind = match ethertype {
        ETHERTYPE_V4 => v4(packet),
        ETHERTYPE_V6 => v6(packet),
        _ => None,
    };
    kind.unwrap_or(Kind::Other)
}

/// Source and destination of an untagged IPv4 packet, as one number to compare and as what [`classify`] makes of it.
/// None for all others. One look at the type, one load of both addresses.
#[inline]
pub(crate) fn addresses_of_v4(frame: &[u8]) -> Option<(u64, Kind)> {
    const IP: usize = 14;
    let head = frame.first_chunk::<{ IP + 20 }>()?;
    if head[ADDRESSES..IP] != ETHERTYPE_V4.to_be_bytes() {
        return None;
    }
    let addresses = u64::from_be_bytes(*head.last_chunk()?);
    Some((addresses, Kind::V4 { source: (addresses >> 32) as u32, destination: addresses as u32 }))
}

/// Bytes before the network header: addresses, up to two VLAN tags, EtherType. All of a frame that is cut off.
#[must_use]
pub(crate) fn link_header_len(frame: &[u8]) -> usize {
    frame.len() - network(frame).1.len()
}

/// EtherType behind the tags, and what follows it; zero and nothing if the frame is cut off before.
#[inline]
fn network(frame: &[u8]) -> (u16, &[u8]) {
    const CUT: (u16, &[u8]) = (0, &[]);
    let Some((mut ethertype, mut rest)) = frame.get(ADDRESSES..).and_then(be16) else { return CUT };
    for _ in 0..2 {
        if !matches!(ethertype, 0x8100 | 0x88a8 | 0x9100) {
            break;
        }
        let Some(inner) = rest.get(2..).and_then(be16) else { return CUT };
        (ethertype, rest) = inner;
    }
    (ethertype, rest)
}

fn be16(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (value, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*value), rest))
}

fn v4(packet: &[u8]) -> Option<Kind> {
    let header = packet.first_chunk::<20>()?;
    let (source, rest) = header[12..].split_first_chunk()?;
    let destination = rest.first_chunk()?;
    Some(Kind::V4 { source: u32::from_be_bytes(*source), destination: u32::from_be_bytes(*destination) })
}

fn v6(packet: &[u8]) -> Option<Kind> {
    let header = packet.first_chunk::<40>()?;
    if is_neighbour_discovery(header, packet) {
        return None;
    }
    let (source, rest) = header[8..].split_first_chunk()?;
    let destination = rest.first_chunk()?;
    Some(Kind::V6 { source: u128::from_be_bytes(*source), destination: u128::from_be_bytes(*destination) })
}

/// Router and neighbour solicitation and advertisement, redirect (RFC 4861). The hop limit of 255 proves that no
/// router forwarded it; without it receivers ignore it, and to us it is a packet like any other.
fn is_neighbour_discovery(header: &[u8; 40], packet: &[u8]) -> bool {
    header[6] == ICMPV6 && header[7] == 255 && matches!(packet.get(40), Some(133..=137))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(tags: &[u16], ethertype: u16, packet: &[u8]) -> Vec<u8> {
        let mut f = vec![0; ADDRESSES];
        for tag in tags {
            f.extend(tag.to_be_bytes());
            f.extend([0, 7]);
        }
        f.extend(ethertype.to_be_bytes());
        f.extend(packet);
        f
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
        p.extend([first, 0]);
        p
    }

    const V4: Kind = Kind::V4 { source: 0x0a00_0001, destination: 0x0a00_0002 };
    const V6: Kind = Kind::V6 { source: 1, destination: 2 };

    #[test]
    fn finds_addresses_behind_up_to_two_tags() {
        for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100], &[0x9100, 0x8100]] {
            assert_eq!(classify(&frame(tags, ETHERTYPE_V4, &packet4())), V4, "{tags:x?}");
            assert_eq!(classify(&frame(tags, ETHERTYPE_V6, &packet6(6, 64, 0))), V6, "{tags:x?}");
        }
        let three = frame(&[0x88a8, 0x8100, 0x8100], ETHERTYPE_V4, &packet4());
        assert_eq!(classify(&three), Kind::Other);
    }

    #[test]
    fn the_short_way_to_addresses_says_what_the_long_one_does() {
        for (tags, ethertype, packet) in [
            (&[][..], ETHERTYPE_V4, packet4()),
            (&[0x8100], ETHERTYPE_V4, packet4()),
            (&[], ETHERTYPE_V6, packet6(6, 64, 0)),
            (&[], 0x0806, packet4()),
        ] {
            let whole = frame(tags, ethertype, &packet);
            for len in 0..=whole.len() {
                let bytes = &whole[..len];
                let untagged = tags.is_empty() && matches!(classify(bytes), Kind::V4 { .. });
                let expected = untagged.then_some((0x0a00_0001_0a00_0002, classify(bytes)));
                assert_eq!(addresses_of_v4(bytes), expected, "{len} bytes of {whole:x?}");
            }
        }
    }

    #[test]
    fn every_cut_is_other_until_the_addresses_are_there() {
        let whole = frame(&[0x8100], ETHERTYPE_V4, &packet4());
        for len in 0..whole.len() {
            assert_eq!(classify(&whole[..len]), Kind::Other, "{len} bytes");
        }
        assert_eq!(classify(&whole), V4);
    }

    #[test]
    fn neighbour_discovery_is_not_ip_but_its_look_alikes_are() {
        for kind in 133..=137 {
            assert_eq!(classify(&frame(&[], ETHERTYPE_V6, &packet6(ICMPV6, 255, kind))), Kind::Other);
            assert_eq!(classify(&frame(&[], ETHERTYPE_V6, &packet6(ICMPV6, 254, kind))), V6, "was forwarded");
            assert_eq!(classify(&frame(&[], ETHERTYPE_V6, &packet6(17, 255, kind))), V6, "is UDP");
        }
        assert_eq!(classify(&frame(&[], ETHERTYPE_V6, &packet6(ICMPV6, 255, 128))), V6, "is an echo request");
    }

    #[test]
    fn arp_is_other() {
        assert_eq!(classify(&frame(&[], 0x0806, &packet4())), Kind::Other);
    }
}
