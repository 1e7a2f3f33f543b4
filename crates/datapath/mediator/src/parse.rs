//! Whose packet it is: the one place that decides which packets are judged.
//!
//! Headers are read by `p4shield_frame`. Every packet with the EtherType of IP and room for its
//! addresses counts as IP, however malformed: it is for a program to judge. The auditor's tap in
//! the kernel (`tap.bpf.c`) has the same rule and is tested against this one.
//!
//! A packet's way goes on in `admission.rs`, which looks its addresses up.

use p4shield_frame::ethernet::{self, ADDRESSES_LEN, ether_type};
use p4shield_frame::{ipv4, ipv6};

/// What a packet is to the mediator. Addresses are in host byte order.
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

/// Classifies any bytes as the front of an Ethernet frame.
///
/// A packet is judged if it is not [`Kind::Other`] and, unless every IP packet of its port is the
/// VM's, the address on the VM's side is one of the VM's: the source of what the VM sends, the
/// destination of what it receives.
#[must_use]
#[inline]
pub fn classify(frame: &[u8]) -> Kind {
    let Some(payload) = ethernet::payload(frame) else { return Kind::Other };
    let packet = &frame[payload.offset..];
    match payload.ether_type {
        ether_type::IPV4 => ipv4::Header::new(packet)
            .map_or(Kind::Other, |ip| Kind::V4 { source: ip.source(), destination: ip.destination() }),
        ether_type::IPV6 if !ipv6::is_neighbour_discovery(packet) => ipv6::Header::new(packet)
            .map_or(Kind::Other, |ip| Kind::V6 { source: ip.source(), destination: ip.destination() }),
        _ => Kind::Other,
    }
}

/// Returns source and destination of an untagged IPv4 packet, as one number to compare and as
/// [`classify`] returns them; `None` for all others. One comparison of the EtherType, one load of
/// both addresses.
#[inline]
pub(crate) fn addresses_of_v4(frame: &[u8]) -> Option<(u64, Kind)> {
    const IP: usize = ethernet::HEADER_LEN;
    let head = frame.first_chunk::<{ IP + ipv4::HEADER_LEN }>()?;
    if head[ADDRESSES_LEN..IP] != ether_type::IPV4.to_be_bytes() {
        return None;
    }
    let addresses = u64::from_be_bytes(*head.last_chunk()?);
    Some((addresses, Kind::V4 { source: (addresses >> 32) as u32, destination: addresses as u32 }))
}

/// Returns the bytes before the network header: addresses, up to two VLAN tags, EtherType. All of a
/// frame that is cut off.
#[must_use]
pub(crate) fn link_header_len(frame: &[u8]) -> usize {
    ethernet::payload(frame).map_or(frame.len(), |payload| payload.offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_frame::protocol::ICMPV6;

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
    fn addresses_are_found_behind_up_to_two_tags() {
        for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100], &[0x9100, 0x8100]] {
            assert_eq!(classify(&frame(tags, ether_type::IPV4, &packet4())), V4, "{tags:x?}");
            assert_eq!(classify(&frame(tags, ether_type::IPV6, &packet6(6, 64, 0))), V6, "{tags:x?}");
        }
        let three = frame(&[0x88a8, 0x8100, 0x8100], ether_type::IPV4, &packet4());
        assert_eq!(classify(&three), Kind::Other);
    }

    #[test]
    fn the_fast_path_agrees_with_classify() {
        for (tags, ether_type, packet) in [
            (&[][..], ether_type::IPV4, packet4()),
            (&[0x8100], ether_type::IPV4, packet4()),
            (&[], ether_type::IPV6, packet6(6, 64, 0)),
            (&[], 0x0806, packet4()),
        ] {
            let whole = frame(tags, ether_type, &packet);
            for len in 0..=whole.len() {
                let bytes = &whole[..len];
                let untagged = tags.is_empty() && matches!(classify(bytes), Kind::V4 { .. });
                let expected = untagged.then_some((0x0a00_0001_0a00_0002, classify(bytes)));
                assert_eq!(addresses_of_v4(bytes), expected, "{len} bytes of {whole:x?}");
            }
        }
    }

    #[test]
    fn frames_cut_before_the_addresses_are_other() {
        let whole = frame(&[0x8100], ether_type::IPV4, &packet4());
        for len in 0..whole.len() {
            assert_eq!(classify(&whole[..len]), Kind::Other, "{len} bytes");
        }
        assert_eq!(classify(&whole), V4);
    }

    #[test]
    fn only_neighbour_discovery_itself_is_other() {
        for kind in 133..=137 {
            assert_eq!(classify(&frame(&[], ether_type::IPV6, &packet6(ICMPV6, 255, kind))), Kind::Other);
            assert_eq!(
                classify(&frame(&[], ether_type::IPV6, &packet6(ICMPV6, 254, kind))),
                V6,
                "a router forwarded it"
            );
            assert_eq!(classify(&frame(&[], ether_type::IPV6, &packet6(17, 255, kind))), V6, "UDP");
        }
        assert_eq!(
            classify(&frame(&[], ether_type::IPV6, &packet6(ICMPV6, 255, 128))),
            V6,
            "an echo request"
        );
    }

    #[test]
    fn arp_is_other() {
        assert_eq!(classify(&frame(&[], 0x0806, &packet4())), Kind::Other);
    }
}
