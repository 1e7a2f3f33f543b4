//! TCP headers (RFC 9293 section 3.1).

/// Bytes of the header without options.
pub const HEADER_LEN: usize = 20;
/// Where the checksum is in the header.
pub const CHECKSUM_OFFSET: usize = 16;

header_view! {
    /// The fixed part of a TCP header.
    Header, HEADER_LEN, ports
}

impl Header<'_> {
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
