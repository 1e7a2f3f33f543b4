//! ARP for IPv4 over Ethernet (RFC 826).

use crate::bytes::{chunk, field16, field32};

/// Bytes of the packet.
pub const HEADER_LEN: usize = 28;
/// The operation of a request.
pub const REQUEST: u16 = 1;
/// The operation of a reply.
pub const REPLY: u16 = 2;

/// An ARP packet.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; HEADER_LEN]);

impl<'a> Header<'a> {
    /// Views the packet at the beginning of `bytes`. `None` if they are too few, or it is not for
    /// IPv4 over Ethernet.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        /// Ethernet, IPv4, and the lengths of their addresses.
        const ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
        let header: &[u8; HEADER_LEN] = chunk(bytes, 0)?;
        header.starts_with(&ETHERNET_IPV4).then_some(Self(header))
    }

    /// Returns the operation: [`REQUEST`], [`REPLY`] or another.
    #[must_use]
    pub fn operation(self) -> u16 {
        field16(self.0, 6)
    }

    /// Returns the sender's link-layer address.
    #[must_use]
    pub fn sender_link(self) -> &'a [u8] {
        &self.0[8..14]
    }

    /// Returns the sender's IPv4 address, in host byte order.
    #[must_use]
    pub fn sender(self) -> u32 {
        field32(self.0, 14)
    }

    /// Returns the IPv4 address that is asked for, in host byte order.
    #[must_use]
    pub fn target(self) -> u32 {
        field32(self.0, 24)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_both_addresses() {
        let mut packet = [0; HEADER_LEN];
        packet[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
        packet[8..18].copy_from_slice(&[2, 0, 0, 0, 0, 7, 10, 0, 0, 1]);
        packet[24..28].copy_from_slice(&[10, 0, 0, 2]);
        let arp = Header::new(&packet).expect("ARP for IPv4");
        assert_eq!((arp.operation(), arp.sender(), arp.target()), (REQUEST, 0x0a00_0001, 0x0a00_0002));
        assert_eq!(arp.sender_link(), [2, 0, 0, 0, 0, 7]);
        assert!(Header::new(&packet[..27]).is_none());
        packet[4] = 8;
        assert!(Header::new(&packet).is_none(), "another hardware");
    }
}
