//! Finds TCP or UDP in a frame: Ethernet, up to two VLAN tags, IPv4 or IPv6. For arbitrary bytes.

use p4shield_mediator::extensions::{End, Extensions, TCP, UDP};
use std::ops::Range;

const VLAN: [u16; 2] = [0x8100, 0x88a8];
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// Where a whole TCP or UDP segment is in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Its bytes, header and payload, without Ethernet padding.
    pub segment: Range<usize>,
    /// Where its checksum field is.
    pub checksum: usize,
    /// Source and destination address in the frame.
    pub addresses: Range<usize>,
    /// Protocol number: 6 or 17.
    pub protocol: u8,
}

impl Transport {
    /// Looks for it. `None` for everything else: other protocols, fragments, truncated or lying headers.
    #[must_use]
    pub fn find(frame: &[u8]) -> Option<Self> {
        let mut at = 12;
        let mut kind = u16_at(frame, at)?;
        for _ in 0..2 {
            if VLAN.contains(&kind) {
                at += 4;
                kind = u16_at(frame, at)?;
            }
        }
        match kind {
            IPV4 => Self::in_ipv4(frame, at + 2),
            IPV6 => Self::in_ipv6(frame, at + 2),
            _ => None,
        }
    }

    fn in_ipv4(frame: &[u8], ip: usize) -> Option<Self> {
        let header = frame.get(ip..ip + 20)?;
        let words = usize::from(header[0] & 15);
        let total = usize::from(u16_at(frame, ip + 2)?);
        // More fragments, or a later one: the checksum is over all of them.
        let fragment = u16_at(frame, ip + 6)? & 0x3fff != 0;
        if header[0] >> 4 != 4 || words < 5 || fragment {
            return None;
        }
        Self::in_segment(frame, ip + 4 * words..ip.checked_add(total)?, ip + 12..ip + 20, header[9])
    }

    fn in_ipv6(frame: &[u8], ip: usize) -> Option<Self> {
        let header = frame.get(ip..ip + 40)?;
        let end = ip + 40 + usize::from(u16_at(frame, ip + 4)?);
        if header[0] >> 4 != 6 {
            return None;
        }
        let extensions = Extensions::walk(frame.get(ip + 40..)?, header[6]);
        match extensions.end {
            // While addresses are left to visit, the one in the header is not the one that is summed; a checksum is over
            // all pieces.
            End::Protocol(protocol) if !extensions.routed && !extensions.piece => {
                Self::in_segment(frame, ip + 40 + extensions.len..end, ip + 8..ip + 40, protocol)
            }
            _ => None,
        }
    }

    fn in_segment(
        frame: &[u8],
        segment: Range<usize>,
        addresses: Range<usize>,
        protocol: u8,
    ) -> Option<Self> {
        let (header, field) = match protocol {
            TCP => (20, 16),
            UDP => (8, 6),
            _ => return None,
        };
        let fits = segment.start < segment.end && segment.end <= frame.len() && segment.len() >= header;
        let checksum = segment.start + field;
        fits.then_some(Self { segment, checksum, addresses, protocol })
    }

    /// Whether it is UDP, where a checksum of zero means that there is none.
    #[must_use]
    pub const fn is_udp(&self) -> bool {
        self.protocol == UDP
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}
