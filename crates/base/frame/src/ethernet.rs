//! Ethernet II headers and VLAN tags (IEEE 802.3 clause 3, IEEE 802.1Q clause 9).
//!
//! ```text
//!  0            6            12      [14]   [16]      [18]   [20]      12 + 4 tags
//!  destination  source       [tag    TCI]   [tag      TCI]              EtherType    payload
//! ```

use crate::bytes::be16;
use core::ops::Range;

/// Bytes of both addresses, where the first tag or the EtherType is.
pub const ADDRESSES_LEN: usize = 12;
/// Where the source address is.
pub const SOURCE: Range<usize> = 6..12;
/// Bytes of the header without tags.
pub const HEADER_LEN: usize = 14;
/// Bytes of one VLAN tag.
pub const TAG_LEN: usize = 4;
/// The most VLAN tags that [`payload`] looks behind.
pub const MAX_TAGS: usize = 2;
/// Bytes of the longest header that [`payload`] looks behind.
pub const MAX_HEADER_LEN: usize = HEADER_LEN + MAX_TAGS * TAG_LEN;

/// EtherTypes (IEEE 802 Numbers, IANA).
pub mod ether_type {
    /// IPv4 (RFC 894).
    pub const IPV4: u16 = 0x0800;
    /// ARP (RFC 826).
    pub const ARP: u16 = 0x0806;
    /// Transparent Ethernet bridging: the protocol of an Ethernet frame inside Geneve (RFC 8926 section 3.4).
    pub const ETHERNET: u16 = 0x6558;
    /// A customer VLAN tag (IEEE 802.1Q).
    pub const VLAN: u16 = 0x8100;
    /// IPv6 (RFC 2464).
    pub const IPV6: u16 = 0x86dd;
    /// MPLS (RFC 5332).
    pub const MPLS: u16 = 0x8847;
    /// MPLS with an upstream-assigned label (RFC 5332).
    pub const MPLS_UPSTREAM: u16 = 0x8848;
    /// A service VLAN tag (IEEE 802.1ad).
    pub const SERVICE_VLAN: u16 = 0x88a8;
    /// The service VLAN tag of equipment older than IEEE 802.1ad.
    pub const OLD_SERVICE_VLAN: u16 = 0x9100;
    /// The least value of the field that is an EtherType; less is a length (IEEE 802.3 clause 3.2.6).
    pub const MIN: u16 = 0x0600;
}

/// The EtherTypes of VLAN tags. No other list is in the workspace; `tap.bpf.c` has the same, and is
/// tested with it.
pub const TAG_TYPES: [u16; 3] = [ether_type::VLAN, ether_type::SERVICE_VLAN, ether_type::OLD_SERVICE_VLAN];

/// Reports whether an EtherType is that of a VLAN tag.
#[must_use]
#[inline]
pub const fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, ether_type::VLAN | ether_type::SERVICE_VLAN | ether_type::OLD_SERVICE_VLAN)
}

/// What a frame carries behind its VLAN tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Its EtherType: that of a tag if the frame has more than [`MAX_TAGS`], a length if it is below
    /// [`ether_type::MIN`].
    pub ether_type: u16,
    /// Bytes of the frame before it.
    pub offset: usize,
}

/// Finds a frame's payload behind at most [`MAX_TAGS`] VLAN tags. `None` if the frame ends before
/// its EtherType.
#[must_use]
#[inline]
pub fn payload(frame: &[u8]) -> Option<Payload> {
    // One bounds check for all three EtherTypes of a frame that is not cut off.
    match frame.first_chunk::<MAX_HEADER_LEN>() {
        Some(head) => payload_of(head),
        None => payload_of(frame),
    }
}

#[inline]
fn payload_of(frame: &[u8]) -> Option<Payload> {
    let mut offset = ADDRESSES_LEN;
    let mut ether_type = be16(frame, offset)?;
    for _ in 0..MAX_TAGS {
        if !is_tag(ether_type) {
            break;
        }
        offset += TAG_LEN;
        ether_type = be16(frame, offset)?;
    }
    Some(Payload { ether_type, offset: offset + 2 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tag_type_counts_alike() {
        let mut frame = [0; 30];
        for outer in TAG_TYPES {
            for inner in TAG_TYPES {
                frame[12..14].copy_from_slice(&outer.to_be_bytes());
                frame[16..18].copy_from_slice(&inner.to_be_bytes());
                frame[20..22].copy_from_slice(&ether_type::IPV4.to_be_bytes());
                let found = Payload { ether_type: ether_type::IPV4, offset: 22 };
                assert_eq!(payload(&frame), Some(found), "{outer:x} {inner:x}");
                assert_eq!(payload(&frame[..22]), Some(found));
                assert_eq!(payload(&frame[..21]), None, "the EtherType is cut off");
                frame[20..22].copy_from_slice(&outer.to_be_bytes());
                assert_eq!(payload(&frame), Some(Payload { ether_type: outer, offset: 22 }), "a third tag");
            }
        }
    }

    #[test]
    fn an_untagged_frame_may_end_with_its_header() {
        assert_eq!(payload(&[8; 14]), Some(Payload { ether_type: 0x0808, offset: 14 }));
        assert_eq!(payload(&[8; 13]), None);
        assert_eq!(payload(&[]), None);
    }
}
