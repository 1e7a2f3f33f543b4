//! The transport header of a whole frame: TCP, UDP or SCTP, and what their checksums cover.

use crate::bytes::chunk;
use crate::checksum::Sum;
use crate::ipv6::{Extensions, Upper};
use crate::{ethernet, ipv4, ipv6, protocol, tcp, udp};
use core::ops::Range;

/// A transport protocol whose checksum is often left to others, who complete it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP (RFC 9293).
    Tcp,
    /// UDP (RFC 768).
    Udp,
    /// SCTP (RFC 9260), whose checksum is a CRC-32c over the packet alone.
    Sctp,
}

impl Protocol {
    /// Returns the protocol of a number; see [`crate::protocol`].
    #[must_use]
    #[inline]
    pub const fn new(number: u8) -> Option<Self> {
        match number {
            protocol::TCP => Some(Self::Tcp),
            protocol::UDP => Some(Self::Udp),
            protocol::SCTP => Some(Self::Sctp),
            _ => None,
        }
    }

    /// Returns its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => protocol::TCP,
            Self::Udp => protocol::UDP,
            Self::Sctp => protocol::SCTP,
        }
    }

    /// Returns the bytes of its header without options.
    #[must_use]
    pub const fn header_len(self) -> usize {
        match self {
            Self::Tcp => tcp::HEADER_LEN,
            Self::Udp => udp::HEADER_LEN,
            Self::Sctp => 12,
        }
    }

    /// Returns where in its header the checksum is.
    #[must_use]
    #[inline]
    pub const fn checksum(self) -> Range<usize> {
        match self {
            Self::Tcp => tcp::CHECKSUM_OFFSET..tcp::CHECKSUM_OFFSET + 2,
            Self::Udp => udp::CHECKSUM_OFFSET..udp::CHECKSUM_OFFSET + 2,
            Self::Sctp => 8..12,
        }
    }
}

/// Where the transport header of a packet is that is no fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Its protocol.
    pub protocol: Protocol,
    /// The packet is IPv6.
    pub is_v6: bool,
    /// Bytes before the IP header.
    pub link_len: usize,
    /// Bytes of the IP header with options or extension headers.
    pub ip_len: usize,
    /// Bytes of transport header and payload, as the IP header says; the frame may have fewer.
    pub len: usize,
}

impl Transport {
    /// Finds it in a frame or the front of one: behind at most two VLAN tags, IPv4 options, IPv6
    /// extension headers.
    ///
    /// `None` for other protocols; for fragments, whose checksum is over all of them; for IPv6 with
    /// addresses left to visit, whose checksum is over the last; for versions and lengths that
    /// contradict; and if the front ends before the header does.
    #[must_use]
    pub fn find(front: &[u8]) -> Option<Self> {
        let payload = ethernet::payload(front)?;
        let packet = front.get(payload.offset..)?;
        let (is_v6, ip_len, number, total) = match payload.ether_type {
            ethernet::ether_type::IPV4 => in_ipv4(packet)?,
            ethernet::ether_type::IPV6 => in_ipv6(packet)?,
            _ => return None,
        };
        let protocol = Protocol::new(number)?;
        let len = total.checked_sub(ip_len)?;
        packet.get(ip_len..)?.get(..protocol.header_len())?;
        Some(Self { protocol, is_v6, link_len: payload.offset, ip_len, len })
    }

    /// Returns where the transport header begins.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.link_len + self.ip_len
    }

    /// Returns where header and payload are. The frame may end before.
    #[must_use]
    pub const fn segment(&self) -> Range<usize> {
        self.offset()..self.offset() + self.len
    }

    /// Returns where the checksum is.
    #[must_use]
    pub const fn checksum(&self) -> Range<usize> {
        let field = self.protocol.checksum();
        self.offset() + field.start..self.offset() + field.end
    }

    /// Returns the bytes of the transport header with its options.
    #[must_use]
    pub fn header_len(&self, front: &[u8]) -> usize {
        match self.protocol {
            Protocol::Tcp => chunk(front, self.offset() + 12)
                .map_or(tcp::HEADER_LEN, |[offset]: &[u8; 1]| usize::from(offset >> 4) * 4),
            Protocol::Udp | Protocol::Sctp => self.protocol.header_len(),
        }
    }

    /// Sums the pseudo header (RFC 9293 section 3.1, RFC 8200 section 8.1).
    #[must_use]
    pub fn pseudo_header(&self, front: &[u8]) -> Sum {
        let addresses = if self.is_v6 { ipv6::ADDRESSES } else { ipv4::ADDRESSES };
        let ip = front.get(self.link_len..).unwrap_or_default();
        pseudo_header(ip.get(addresses).unwrap_or_default(), self.protocol.number(), self.len)
    }
}

/// Sums a pseudo header of source and destination address as they are in the packet, protocol, and length of
/// transport header and payload.
#[must_use]
pub fn pseudo_header(addresses: &[u8], protocol: u8, len: usize) -> Sum {
    Sum::of(addresses) + Sum::of(&(len as u32).to_be_bytes()) + Sum::word(protocol.into())
}

/// Returns where the checksum of TCP or UDP is in a packet that the digest covers: IPv4 with any
/// options that is no later fragment, or IPv6 without extension headers. `tap.bpf.c` has the same
/// rule.
///
/// The place need not be within `frame`.
#[must_use]
#[inline]
pub fn digest_checksum(frame: &[u8]) -> Option<usize> {
    const IP: usize = ethernet::HEADER_LEN;
    const PLAIN: [u8; 3] = [0x08, 0x00, 0x45];
    // Most packets: no tag, no options.
    if let Some(head) = frame.first_chunk::<{ IP + ipv4::HEADER_LEN }>()
        && head[ethernet::ADDRESSES_LEN..=IP] == PLAIN
    {
        let header = ipv4::Header::new(&head[IP..])?;
        let later = header.is_later_fragment();
        return if later { None } else { checksum_behind(IP + ipv4::HEADER_LEN, header.protocol()) };
    }
    digest_checksum_anywhere(frame)
}

#[cold]
fn digest_checksum_anywhere(frame: &[u8]) -> Option<usize> {
    let payload = ethernet::payload(frame)?;
    let packet = &frame[payload.offset..];
    match payload.ether_type {
        ethernet::ether_type::IPV4 => {
            let header = ipv4::Header::new(packet).filter(|header| !header.is_later_fragment())?;
            checksum_behind(payload.offset + header.header_len()?, header.protocol())
        }
        ethernet::ether_type::IPV6 => {
            let header = ipv6::Header::new(packet)?;
            checksum_behind(payload.offset + ipv6::HEADER_LEN, header.next_header())
        }
        _ => None,
    }
}

#[inline]
fn checksum_behind(offset: usize, number: u8) -> Option<usize> {
    match number {
        protocol::TCP => Some(offset + tcp::CHECKSUM_OFFSET),
        protocol::UDP => Some(offset + udp::CHECKSUM_OFFSET),
        _ => None,
    }
}

/// Returns the header's bytes, protocol, and bytes of header and payload.
fn in_ipv4(packet: &[u8]) -> Option<(bool, usize, u8, usize)> {
    let header = ipv4::Header::new(packet)?;
    let whole = header.version() == 4 && !header.is_fragment();
    let total = usize::from(header.total_len());
    whole.then_some((false, header.header_len()?, header.protocol(), total))
}

fn in_ipv6(packet: &[u8]) -> Option<(bool, usize, u8, usize)> {
    let header = ipv6::Header::new(packet).filter(|header| header.version() == 6)?;
    let extensions = Extensions::walk(&packet[ipv6::HEADER_LEN..], header.next_header());
    match extensions.upper {
        Upper::Protocol(number) if !extensions.is_routed && !extensions.is_first_fragment => {
            let total = ipv6::HEADER_LEN + usize::from(header.payload_len());
            Some((true, ipv6::HEADER_LEN + extensions.len, number, total))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp4(tags: usize, build: &mut [u8; 64]) -> &[u8] {
        const UDP: [u8; 34] = [
            8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 1, 0, 2, 0, 12, 0,
            0, 1, 2, 3, 4,
        ];
        for tag in 0..tags {
            build[12 + 4 * tag..14 + 4 * tag].copy_from_slice(&ethernet::TAG_TYPES[tag % 3].to_be_bytes());
        }
        let end = 12 + 4 * tags + UDP.len();
        build[12 + 4 * tags..end].copy_from_slice(&UDP);
        &build[..end]
    }

    #[test]
    fn headers_are_found_behind_tags() {
        for tags in 0..=2 {
            let mut bytes = [0; 64];
            let frame = udp4(tags, &mut bytes);
            let found = Transport::find(frame).expect("UDP over IPv4");
            assert_eq!((found.link_len, found.ip_len, found.len), (14 + 4 * tags, 20, 12));
            assert_eq!(found.checksum(), 40 + 4 * tags..42 + 4 * tags);
            assert_eq!(found.segment().end, frame.len());
            assert_eq!(digest_checksum(frame), Some(40 + 4 * tags));
        }
        assert_eq!(Transport::find(udp4(3, &mut [0; 64])), None);
    }

    #[test]
    fn what_has_no_whole_transport_header_is_none() {
        let mut bytes = [0; 64];
        let whole = udp4(0, &mut bytes);
        let len = whole.len();
        for cut in 0..42 {
            assert_eq!(Transport::find(&whole[..cut]), None, "{cut}");
        }
        let changed = |at: usize, value| {
            let mut bytes = bytes;
            bytes[at] = value;
            Transport::find(&bytes[..len])
        };
        assert!(changed(0, 1).is_some());
        assert_eq!(changed(20, 0x20), None, "more fragments follow");
        assert_eq!(changed(21, 1), None, "a later fragment");
        assert_eq!(changed(17, 19), None, "a total length below the header's");
        assert_eq!(changed(14, 0x65), None, "another version");
        assert_eq!(changed(14, 0x44), None, "too short a header");
    }

    #[test]
    fn the_pseudo_header_is_summed() {
        let mut bytes = [0; 64];
        let frame = udp4(0, &mut bytes);
        let sum = Transport::find(frame).expect("UDP over IPv4").pseudo_header(frame);
        assert_eq!(sum, Sum::word(0x0a00 + 0x0001 + 0x0a00 + 0x0002 + 0x0011 + 0x000c));
    }
}
