//! What ICMP (RFC 792) and ICMPv6 (RFC 4443) headers have in common.

/// Bytes of type, code and checksum.
pub const HEADER_LEN: usize = 4;

header_view! {
    /// An ICMP header.
    Header, HEADER_LEN
}

impl Header<'_> {
    /// Returns the message's type.
    #[must_use]
    pub const fn kind(self) -> u8 {
        self.0[0]
    }

    /// Returns the code within the type.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0[1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read() {
        let icmp = Header::new(&[3, 4, 0, 0]).expect("4 bytes");
        assert_eq!((icmp.kind(), icmp.code()), (3, 4));
        assert!(Header::new(&[0; 3]).is_none());
    }
}
