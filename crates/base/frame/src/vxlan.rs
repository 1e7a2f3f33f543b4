//! VXLAN headers (RFC 7348 section 5), and of the extension GPE what tells them apart
//! (draft-ietf-nvo3-vxlan-gpe section 3).

use crate::bytes::field32;

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;
/// The UDP port that IANA assigned.
pub const PORT: u16 = 4789;

header_view! {
    /// A VXLAN header.
    Header, HEADER_LEN
}

impl Header<'_> {
    /// Returns the network's number, 24 bits. `None` if the header has none (flag I).
    #[must_use]
    pub fn vni(self) -> Option<u32> {
        const HAS_VNI: u8 = 0x08;
        (self.0[0] & HAS_VNI != 0).then(|| field32(self.0, 4) >> 8)
    }

    /// Reports whether the payload is an Ethernet frame: always so without GPE's flag P.
    #[must_use]
    pub const fn carries_ethernet(self) -> bool {
        const NEXT_PROTOCOL: u8 = 0x04;
        const ETHERNET: u8 = 3;
        self.0[0] & NEXT_PROTOCOL == 0 || self.0[3] == ETHERNET
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_and_payload_are_read() {
        let header = |flags, next| [flags, 0, 0, next, 0, 1, 2, 0xff];
        let vni = |bytes: &[u8]| Header::new(bytes).and_then(Header::vni);
        assert_eq!(vni(&header(0x08, 0)), Some(0x0102));
        assert_eq!(vni(&header(0, 0)), None);
        assert_eq!(vni(&header(8, 0)[..7]), None);
        let ethernet = |bytes: &[u8]| Header::new(bytes).map(Header::carries_ethernet);
        assert_eq!(ethernet(&header(0x08, 1)), Some(true), "no GPE");
        assert_eq!(ethernet(&header(0x0c, 1)), Some(false), "IPv4 in GPE");
        assert_eq!(ethernet(&header(0x0c, 3)), Some(true), "Ethernet in GPE");
    }
}
