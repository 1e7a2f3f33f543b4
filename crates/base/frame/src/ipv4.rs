//! IPv4 headers (RFC 791 section 3.1).

use crate::bytes::{field16, field32};
use crate::checksum::Sum;
use core::ops::Range;

/// Bytes of the header without options.
pub const HEADER_LEN: usize = 20;
/// Bytes of the header with the most options.
pub const MAX_HEADER_LEN: usize = 60;
/// Where source and destination address are in the header.
pub const ADDRESSES: Range<usize> = 12..20;
/// Where the header's checksum is.
pub const CHECKSUM: Range<usize> = 10..12;

header_view! {
    /// The fixed part of an IPv4 header.
    Header, HEADER_LEN
}

impl Header<'_> {
    /// Returns the version: 4 in a valid header.
    #[must_use]
    #[inline]
    pub const fn version(self) -> u8 {
        self.0[0] >> 4
    }

    /// Returns the bytes of the header with its options. `None` if it says that they are fewer than
    /// [`HEADER_LEN`].
    #[must_use]
    #[inline]
    pub fn header_len(self) -> Option<usize> {
        let len = usize::from(self.0[0] & 0xf) * 4;
        (len >= HEADER_LEN).then_some(len)
    }

    /// Returns the bytes of header and payload.
    #[must_use]
    #[inline]
    pub fn total_len(self) -> u16 {
        field16(self.0, 2)
    }

    /// Reports whether it is a fragment: not all of a packet.
    #[must_use]
    #[inline]
    pub fn is_fragment(self) -> bool {
        self.has_more_fragments() || self.is_later_fragment()
    }

    /// Reports whether more fragments follow this one.
    #[must_use]
    #[inline]
    pub const fn has_more_fragments(self) -> bool {
        self.0[6] & 0x20 != 0
    }

    /// Reports whether it is a fragment other than the first: no transport header follows.
    #[must_use]
    #[inline]
    pub fn is_later_fragment(self) -> bool {
        field16(self.0, 6) & 0x1fff != 0
    }

    /// Returns the payload's protocol; see [`crate::protocol`].
    #[must_use]
    #[inline]
    pub const fn protocol(self) -> u8 {
        self.0[9]
    }

    /// Returns the source address in host byte order.
    #[must_use]
    #[inline]
    pub fn source(self) -> u32 {
        field32(self.0, 12)
    }

    /// Returns the destination address in host byte order.
    #[must_use]
    #[inline]
    pub fn destination(self) -> u32 {
        field32(self.0, 16)
    }
}

/// Computes the header's checksum and stores it. `packet` begins with the header; without a whole
/// one nothing changes.
pub fn set_checksum(packet: &mut [u8]) {
    let len = Header::new(packet).and_then(Header::header_len);
    if let Some(header) = len.and_then(|len| packet.get_mut(..len)) {
        header[CHECKSUM].fill(0);
        let checksum = Sum::of(header).checksum();
        header[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Reports whether the header at the beginning of `packet` is whole and its checksum is right.
#[must_use]
pub fn has_right_checksum(packet: &[u8]) -> bool {
    let len = Header::new(packet).and_then(Header::header_len);
    len.and_then(|len| packet.get(..len)).is_some_and(|header| Sum::of(header).checksum() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: [u8; 28] =
        [0x46, 0, 0, 28, 1, 2, 0x20, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 0, 9, 9, 9, 9];

    #[test]
    fn fields_are_read() {
        let header = Header::new(&PACKET).expect("20 bytes");
        assert_eq!((header.version(), header.header_len(), header.total_len()), (4, Some(24), 28));
        assert_eq!(
            (header.protocol(), header.source(), header.destination()),
            (17, 0x0a00_0001, 0x0a00_0002)
        );
        assert!(header.is_fragment() && header.has_more_fragments() && !header.is_later_fragment());
        assert!(Header::new(&PACKET[..19]).is_none());
        assert_eq!(Header::new(&[0x44; 20]).and_then(Header::header_len), None, "shorter than a header");
    }

    #[test]
    fn a_checksum_that_was_set_is_right() {
        let mut packet = PACKET;
        assert!(!has_right_checksum(&packet));
        set_checksum(&mut packet);
        assert!(has_right_checksum(&packet));
        assert_eq!(packet[24..], PACKET[24..]);
        packet[22] ^= 1;
        assert!(!has_right_checksum(&packet), "options are covered");
        assert!(!has_right_checksum(&packet[..23]), "the options are cut off");
        set_checksum(&mut packet[..5]);
    }
}
