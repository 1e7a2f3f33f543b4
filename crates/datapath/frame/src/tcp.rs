//! TCP headers (RFC 9293 section 3.1).

use crate::bytes::{chunk, field16};

/// Bytes of the header without options.
pub const HEADER_LEN: usize = 20;
/// Where the checksum is in the header.
pub const CHECKSUM_OFFSET: usize = 16;

/// The fixed part of a TCP header.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; HEADER_LEN]);

impl<'a> Header<'a> {
    /// Views the header at the beginning of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        chunk(bytes, 0).map(Self)
    }

    /// Returns the source port.
    #[must_use]
    pub fn source_port(self) -> u16 {
        field16(self.0, 0)
    }

    /// Returns the destination port.
    #[must_use]
    pub fn destination_port(self) -> u16 {
        field16(self.0, 2)
    }

    /// Returns the bytes of the header with its options, as its data offset says: from 0 to 60.
    #[must_use]
    pub fn header_len(self) -> usize {
        usize::from(self.0[12] >> 4) * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read() {
        let mut bytes = [0; HEADER_LEN];
        (bytes[1], bytes[3], bytes[12]) = (1, 2, 0x8f);
        let tcp = Header::new(&bytes).expect("20 bytes");
        assert_eq!((tcp.source_port(), tcp.destination_port(), tcp.header_len()), (1, 2, 32));
        assert!(Header::new(&bytes[1..]).is_none());
    }
}
