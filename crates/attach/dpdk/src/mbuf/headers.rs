//! Where the headers of a packet are, as far as checksum offloads concern them.

use p4shield_mediator::extensions::{TCP, UDP};

const VLAN_TAGS: [u16; 2] = [0x8100, 0x88a8];
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const SCTP: u8 = 132;

/// A protocol whose checksum a card or a guest leaves to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum L4 {
    Tcp,
    Udp,
    Sctp,
}

/// An IP packet with a layer-4 header at its front, lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headers {
    pub(crate) l2_len: usize,
    pub(crate) l3_len: usize,
    pub(crate) v6: bool,
    pub(crate) l4: L4,
    /// Bytes of layer 4, header and payload, as the IP header has it.
    pub(crate) l4_total: usize,
}

impl Headers {
    /// Of an Ethernet frame with up to two VLAN tags that carries TCP, UDP or SCTP right behind IPv4 or the fixed IPv6
    /// header. None for all others, for fragments, and if the front ends before the layer-4 header does.
    pub(crate) fn of(front: &[u8]) -> Option<Self> {
        let mut l2_len = 14;
        let mut ether_type = be16(front, 12)?;
        for _ in 0..2 {
            if VLAN_TAGS.contains(&ether_type) {
                ether_type = be16(front, l2_len + 2)?;
                l2_len += 4;
            }
        }
        let ip = front.get(l2_len..)?;
        let (l3_len, protocol, total, v6) = match ether_type {
            IPV4 => ipv4(ip)?,
            IPV6 => (40, *ip.get(6)?, 40 + usize::from(be16(ip, 4)?), true),
            _ => return None,
        };
        let (l4, min) = match protocol {
            TCP => (L4::Tcp, 20),
            UDP => (L4::Udp, 8),
            SCTP => (L4::Sctp, 12),
            _ => return None,
        };
        ip.get(l3_len..l3_len + min)?;
        Some(Self { l2_len, l3_len, v6, l4, l4_total: total.checked_sub(l3_len)? })
    }

    /// Where the layer-4 header begins.
    pub(crate) fn l4_at(&self) -> usize {
        self.l2_len + self.l3_len
    }

    /// Where the layer-4 checksum is, and how many bytes it has.
    pub(crate) fn checksum(&self) -> std::ops::Range<usize> {
        let (at, len) = match self.l4 {
            L4::Tcp => (16, 2),
            L4::Udp => (6, 2),
            L4::Sctp => (8, 4),
        };
        self.l4_at() + at..self.l4_at() + at + len
    }

    /// Bytes of the layer-4 header.
    pub(crate) fn l4_len(&self, front: &[u8]) -> usize {
        match self.l4 {
            L4::Tcp => front.get(self.l4_at() + 12).map_or(20, |b| usize::from(b >> 4) * 4),
            L4::Udp => 8,
            L4::Sctp => 12,
        }
    }

    /// The sum over the pseudo header, not complemented: what the field holds while a checksum is left to others.
    pub(crate) fn pseudo_sum(&self, front: &[u8]) -> u16 {
        let addresses = if self.v6 { 8..40 } else { 12..20 };
        let ip = front.get(self.l2_len..).and_then(|ip| ip.get(addresses)).unwrap_or_default();
        let words = ip.chunks_exact(2).map(|w| u64::from(u16::from_be_bytes([w[0], w[1]])));
        let protocol = match self.l4 {
            L4::Tcp => TCP,
            L4::Udp => UDP,
            L4::Sctp => SCTP,
        };
        let mut sum = words.sum::<u64>() + u64::from(protocol) + self.l4_total as u64;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }
}

/// Header length, protocol, total length. None for a fragment: its layer 4 is not all here.
fn ipv4(ip: &[u8]) -> Option<(usize, u8, usize, bool)> {
    let header = usize::from(*ip.first()? & 0xf) * 4;
    let fragment = be16(ip, 6)? & 0x3fff != 0;
    (header >= 20 && !fragment).then_some((header, *ip.get(9)?, usize::from(be16(ip, 2)?), false))
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp4(tags: usize) -> Vec<u8> {
        let mut b = vec![2; 12];
        for _ in 0..tags {
            b.extend([0x81, 0, 0, 7]);
        }
        b.extend([8, 0]);
        b.extend([0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        b.extend([0, 1, 0, 2, 0, 12, 0, 0, 1, 2, 3, 4]);
        b
    }

    #[test]
    fn headers_are_found_behind_tags() {
        for tags in 0..=2 {
            let headers = Headers::of(&udp4(tags)).expect("UDP over IPv4");
            assert_eq!((headers.l2_len, headers.l3_len, headers.l4_total), (14 + 4 * tags, 20, 12));
            assert_eq!(headers.checksum(), 40 + 4 * tags..42 + 4 * tags);
        }
        assert_eq!(Headers::of(&udp4(3)), None);
    }

    #[test]
    fn what_has_no_whole_layer_4_here_is_none() {
        let whole = udp4(0);
        for len in 0..42 {
            assert_eq!(Headers::of(&whole[..len]), None, "{len}");
        }
        let mut fragment = whole.clone();
        fragment[20] = 0x20; // More fragments follow.
        assert_eq!(Headers::of(&fragment), None);
        let mut short = whole;
        short[17] = 19; // Total length below the header's.
        assert_eq!(Headers::of(&short), None);
    }

    #[test]
    fn the_pseudo_header_is_summed() {
        let front = udp4(0);
        let headers = Headers::of(&front).expect("UDP over IPv4");
        // 0a00 + 0001 + 0a00 + 0002 + 0011 + 000c
        assert_eq!(headers.pseudo_sum(&front), 0x1420);
    }
}
