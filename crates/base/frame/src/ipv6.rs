//! IPv6 headers (RFC 8200 section 3) and the extension headers behind them (section 4).

use crate::bytes::{chunk, field16, field128};
use core::ops::Range;

/// Bytes of the header without extension headers.
pub const HEADER_LEN: usize = 40;
/// Where source and destination address are in the header.
pub const ADDRESSES: Range<usize> = 8..40;
/// The most extension headers that [`Extensions::walk`] follows: more than any sender needs.
pub const MAX_EXTENSIONS: usize = 16;

header_view! {
    /// The fixed IPv6 header.
    Header, HEADER_LEN
}

impl Header<'_> {
    /// Returns the version: 6 in a valid header.
    #[must_use]
    #[inline]
    pub const fn version(self) -> u8 {
        self.0[0] >> 4
    }

    /// Returns the bytes behind this header: extension headers and payload.
    #[must_use]
    #[inline]
    pub fn payload_len(self) -> u16 {
        field16(self.0, 4)
    }

    /// Returns the number of the next header: an extension's, or the payload's protocol.
    #[must_use]
    #[inline]
    pub const fn next_header(self) -> u8 {
        self.0[6]
    }

    /// Returns the hop limit.
    #[must_use]
    #[inline]
    pub const fn hop_limit(self) -> u8 {
        self.0[7]
    }

    /// Returns the source address in host byte order.
    #[must_use]
    #[inline]
    pub fn source(self) -> u128 {
        field128(self.0, 8)
    }

    /// Returns the destination address in host byte order.
    #[must_use]
    #[inline]
    pub fn destination(self) -> u128 {
        field128(self.0, 24)
    }
}

/// Numbers of extension headers (IANA, IPv6 Extension Header Types), without ESP, behind which all
/// is encrypted.
mod extension {
    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const ROUTING: u8 = 43;
    pub(super) const FRAGMENT: u8 = 44;
    pub(super) const AUTHENTICATION: u8 = 51;
    pub(super) const DESTINATION: u8 = 60;
    pub(super) const MOBILITY: u8 = 135;
    pub(super) const HOST_IDENTITY: u8 = 139;
    pub(super) const SHIM6: u8 = 140;
}

/// Reports whether a next header number is that of an extension header that [`Extensions::walk`] passes.
#[must_use]
pub const fn is_extension(number: u8) -> bool {
    use extension::{
        AUTHENTICATION, DESTINATION, FRAGMENT, HOP_BY_HOP, HOST_IDENTITY, MOBILITY, ROUTING, SHIM6,
    };
    matches!(
        number,
        HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION | MOBILITY | HOST_IDENTITY | SHIM6
    )
}

/// What follows the extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upper {
    /// A protocol, by its number; see [`crate::protocol`].
    Protocol(u8),
    /// A fragment of a packet other than the first.
    LaterFragment,
    /// Unknown: there are more than [`MAX_EXTENSIONS`], or the bytes end before.
    Unreached,
}

/// The extension headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extensions {
    /// What follows them.
    pub upper: Upper,
    /// Their bytes, as they say: the packet may have fewer.
    pub len: usize,
    /// A routing header has addresses left to visit: the destination in the IP header is not the last one.
    pub is_routed: bool,
    /// The payload is the first of several fragments.
    pub is_first_fragment: bool,
}

impl Extensions {
    /// Walks through `bytes`, which follow an IPv6 header whose next header is `next`.
    #[must_use]
    pub fn walk(bytes: &[u8], next: u8) -> Self {
        let mut walk =
            Self { upper: Upper::Protocol(next), len: 0, is_routed: false, is_first_fragment: false };
        for _ in 0..MAX_EXTENSIONS {
            match walk.upper {
                Upper::Protocol(number) if is_extension(number) => walk.pass(number, bytes),
                _ => return walk,
            }
        }
        match walk.upper {
            Upper::Protocol(number) if is_extension(number) => Self { upper: Upper::Unreached, ..walk },
            _ => walk,
        }
    }

    fn pass(&mut self, number: u8, bytes: &[u8]) {
        // None is shorter than eight bytes.
        let Some(header) = chunk::<8>(bytes, self.len) else {
            self.upper = Upper::Unreached;
            return;
        };
        self.is_routed |= number == extension::ROUTING && header[3] != 0;
        self.upper = Upper::Protocol(header[0]);
        self.len += extension_len(number, header);
        if number == extension::FRAGMENT {
            let offset_and_flags = field16(header, 2);
            self.is_first_fragment |= offset_and_flags & 1 != 0;
            if offset_and_flags & !7 != 0 {
                self.upper = Upper::LaterFragment;
            }
        }
    }
}

/// Returns the bytes of an extension header that begins with these.
pub(crate) fn extension_len(number: u8, header: &[u8; 8]) -> usize {
    let len = usize::from(header[1]);
    match number {
        extension::AUTHENTICATION => (len + 2) * 4,
        // The field is reserved there (RFC 8200 section 4.5).
        extension::FRAGMENT => 8,
        _ => (len + 1) * 8,
    }
}

#[cfg(test)]
mod tests {
    use super::extension::*;
    use super::*;
    use crate::protocol::{TCP, UDP};

    const ESP: u8 = 50;

    #[test]
    fn each_header_has_its_length() {
        for (kind, header, len) in [
            (HOP_BY_HOP, [UDP, 0, 1, 4, 0, 0, 0, 0], 8),
            (DESTINATION, [UDP, 1, 0, 0, 0, 0, 0, 0], 16),
            (MOBILITY, [UDP, 2, 0, 0, 0, 0, 0, 0], 24),
            (AUTHENTICATION, [UDP, 4, 0, 0, 0, 0, 0, 0], 24),
            (FRAGMENT, [UDP, 255, 0, 6, 0, 0, 0, 1], 8),
            (ROUTING, [UDP, 2, 0, 0, 0, 0, 0, 0], 24),
        ] {
            let walked =
                Extensions { upper: Upper::Protocol(UDP), len, is_routed: false, is_first_fragment: false };
            assert_eq!(Extensions::walk(&header, kind), walked, "{kind}");
        }
        assert!(Extensions::walk(&[UDP, 2, 0, 1, 0, 0, 0, 0], ROUTING).is_routed);
        assert_eq!(Extensions::walk(&[], TCP).upper, Upper::Protocol(TCP));
        assert_eq!(Extensions::walk(&[0; 8], ESP).upper, Upper::Protocol(ESP));
    }

    #[test]
    fn fragments_and_long_chains_are_reported() {
        let fragment = |word: [u8; 2]| Extensions::walk(&[UDP, 0, word[0], word[1], 0, 0, 0, 1], FRAGMENT);
        assert_eq!(fragment([0, 8]).upper, Upper::LaterFragment);
        assert_eq!(fragment([0xff, 0xf8]).upper, Upper::LaterFragment);
        assert_eq!(fragment([0, 1]).upper, Upper::Protocol(UDP));
        assert!(fragment([0, 1]).is_first_fragment && !fragment([0, 0]).is_first_fragment);
        for headers in 0..100 {
            let mut chain = [[DESTINATION, 0, 0, 0, 0, 0, 0, 0]; 100];
            chain[headers][0] = UDP;
            let walked = Extensions::walk(chain.as_flattened(), HOP_BY_HOP);
            let reached = headers < MAX_EXTENSIONS;
            let upper = if reached { Upper::Protocol(UDP) } else { Upper::Unreached };
            assert_eq!(walked.upper, upper, "{headers}");
            for len in 0..headers * 8 + 8 {
                assert_eq!(
                    Extensions::walk(&chain.as_flattened()[..len], HOP_BY_HOP).upper,
                    Upper::Unreached
                );
            }
        }
        let long = Extensions::walk(&[UDP, 255, 0, 0, 0, 0, 0, 0], DESTINATION);
        assert_eq!(long.len, 2048, "longer than the packet");
    }

    #[test]
    fn fields_are_read() {
        let mut packet = [0; 40];
        packet[..8].copy_from_slice(&[0x60, 0, 0, 0, 1, 2, 58, 255]);
        (packet[23], packet[39]) = (1, 2);
        let header = Header::new(&packet).expect("40 bytes");
        assert_eq!((header.version(), header.payload_len()), (6, 0x0102));
        assert_eq!((header.source(), header.destination()), (1, 2));
        assert_eq!((header.next_header(), header.hop_limit()), (58, 255));
        assert!(Header::new(&packet[..39]).is_none());
    }
}
