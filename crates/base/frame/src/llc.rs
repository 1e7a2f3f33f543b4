//! LLC headers (IEEE 802.2) and SNAP (RFC 1042), which follow a length where Ethernet II has an EtherType.

use crate::bytes::chunk;
use crate::ethernet::ether_type;

/// Bytes of an LLC header with an unnumbered control field.
pub const LLC_LEN: usize = 3;
/// Bytes of a SNAP header behind it.
pub const SNAP_LEN: usize = 5;

/// Reports whether the field at an EtherType's place is a length, so that LLC follows (IEEE 802.3
/// clause 3.2.6).
#[must_use]
pub const fn is_length(field: u16) -> bool {
    field < ether_type::MIN
}

/// Returns the EtherType of the packet in LLC and SNAP (RFC 1042): the payload behind `bytes`' first
/// [`LLC_LEN`] + [`SNAP_LEN`] bytes. `None` for other LLC, and for SNAP of an organisation's own.
#[must_use]
pub fn snap(bytes: &[u8]) -> Option<u16> {
    const SNAP: [u8; 6] = [0xaa, 0xaa, 0x03, 0, 0, 0];
    let header: &[u8; LLC_LEN + SNAP_LEN] = chunk(bytes, 0)?;
    let (snap, ether_type) = header.split_at(SNAP.len());
    (snap == SNAP).then(|| u16::from_be_bytes([ether_type[0], ether_type[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snap_names_the_protocol() {
        let header = [0xaa, 0xaa, 0x03, 0, 0, 0, 0x08, 0x00];
        assert_eq!(snap(&header), Some(ether_type::IPV4));
        assert_eq!(snap(&header[..7]), None);
        assert_eq!(snap(&[0x42, 0x42, 0x03, 0, 0, 0, 8, 0]), None, "spanning tree");
        assert_eq!(snap(&[0xaa, 0xaa, 0x03, 0, 0, 0x0c, 1, 0]), None, "an organisation's own protocol");
        assert!(is_length(1500) && !is_length(0x0600));
    }
}
