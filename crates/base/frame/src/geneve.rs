//! Geneve headers (RFC 8926 section 3.4).

use crate::bytes::{field16, field32};
use crate::ethernet::ether_type;

/// Bytes of the header without options.
pub const HEADER_LEN: usize = 8;
/// Bytes of the header with the most options.
pub const MAX_HEADER_LEN: usize = HEADER_LEN + 63 * 4;
/// The UDP port that IANA assigned.
pub const PORT: u16 = 6081;

header_view! {
    /// The fixed part of a Geneve header.
    Header, HEADER_LEN
}

impl Header<'_> {
    /// Returns the version: 0 is the only one.
    #[must_use]
    pub const fn version(self) -> u8 {
        self.0[0] >> 6
    }

    /// Returns the bytes of the header with its options, at most [`MAX_HEADER_LEN`].
    #[must_use]
    pub fn header_len(self) -> usize {
        HEADER_LEN + usize::from(self.0[0] & 0x3f) * 4
    }

    /// Reports whether the payload is an Ethernet frame.
    #[must_use]
    pub fn carries_ethernet(self) -> bool {
        field16(self.0, 2) == ether_type::ETHERNET
    }

    /// Returns the network's number, 24 bits.
    #[must_use]
    pub fn vni(self) -> u32 {
        field32(self.0, 4) >> 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read() {
        let bytes = [0x02, 0, 0x65, 0x58, 0, 1, 2, 0xff];
        let geneve = Header::new(&bytes).expect("8 bytes");
        assert_eq!((geneve.version(), geneve.header_len(), geneve.vni()), (0, 16, 0x0102));
        assert!(geneve.carries_ethernet());
        assert!(Header::new(&bytes[..7]).is_none());
        assert_eq!(Header::new(&[0xff; 8]).map(Header::header_len), Some(MAX_HEADER_LEN));
    }
}
