//! UDP headers (RFC 768).

use crate::bytes::field16;

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;
/// Where the length of header and payload is in the header.
pub const LEN_OFFSET: usize = 4;
/// Where the checksum is in the header.
pub const CHECKSUM_OFFSET: usize = 6;

header_view! {
    /// A UDP header.
    Header, HEADER_LEN, ports
}

impl Header<'_> {
    /// Returns the bytes of header and payload, as the header says.
    #[must_use]
    pub fn total_len(self) -> u16 {
        field16(self.0, LEN_OFFSET)
    }

    /// Returns the checksum's field. Zero: the sender made none.
    #[must_use]
    pub fn checksum(self) -> u16 {
        field16(self.0, CHECKSUM_OFFSET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read() {
        let udp = Header::new(&[0, 1, 0, 2, 0, 3, 0, 4]).expect("8 bytes");
        assert_eq!(
            (udp.source_port(), udp.destination_port(), udp.total_len(), udp.checksum()),
            (1, 2, 3, 4)
        );
        assert!(Header::new(&[0; 7]).is_none());
    }
}
