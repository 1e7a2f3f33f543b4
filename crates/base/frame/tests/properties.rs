//! The crate on generated frames, whole and cut off everywhere, and against an independent library.

use p4shield_frame::ethernet::{self, ether_type};
use p4shield_frame::ipv6::{Extensions, Upper};
use p4shield_frame::layers::Layers;
use p4shield_frame::transport::{self, Protocol};
use p4shield_frame::{Sum, Transport, arp, geneve, icmp, ipv4, ipv6, llc, mpls, neighbour, tcp, udp, vxlan};
use p4shield_testbed::Frames;
use proptest::prelude::*;

/// Reads everything there is to read. What is found has to be within the bytes where the
/// documentation says so.
fn read_all(bytes: &[u8]) {
    if let Some(payload) = ethernet::payload(bytes) {
        assert!(payload.offset <= bytes.len() && payload.offset <= ethernet::MAX_HEADER_LEN);
    }
    if let Some(found) = Transport::find(bytes) {
        assert!(found.offset() + found.protocol.header_len() <= bytes.len());
        assert!(found.checksum().end <= bytes.len());
        assert!(found.header_len(bytes) <= 60);
        let _ = found.pseudo_header(bytes);
    }
    let mut end = 0;
    for layer in Layers::new(bytes) {
        assert_eq!(layer.range.start, end, "headers follow each other");
        end = layer.range.end;
        assert!(end <= bytes.len());
    }
    let _ = transport::digest_checksum(bytes);
    for (offset, len) in [(14, bytes.len()), (bytes.len(), 0), (usize::MAX / 2, 99)] {
        let _ = (neighbour::arp(bytes, offset, len), neighbour::discovery(bytes, offset, len));
    }
    let _ = (ipv4::Header::new(bytes).map(ipv4::Header::header_len), ipv4::has_right_checksum(bytes));
    for next in [0, 44, 51] {
        let _ = Extensions::walk(bytes, next);
    }
    let _ = (arp::Header::new(bytes).is_some(), llc::snap(bytes), mpls::Entry::new(bytes).is_some());
    let _ = (tcp::Header::new(bytes).is_some(), udp::Header::new(bytes).is_some());
    let _ = (icmp::Header::new(bytes).is_some(), vxlan::Header::new(bytes).is_some());
    let _ = (geneve::Header::new(bytes).is_some(), Sum::of(bytes));
}

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_all(&bytes);
    }

    #[test]
    fn sums_of_parts_add_up_wherever_they_are_cut(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        cut in 0..200usize,
    ) {
        let (front, back) = bytes.split_at(cut.min(bytes.len()));
        prop_assert_eq!(Sum::of(front) + Sum::of(back).at(front.len()), Sum::of(&bytes));
        prop_assert_eq!(Sum::of(&bytes) - Sum::of(front), Sum::of(back).at(front.len()));
    }

    #[test]
    fn a_sum_is_that_of_its_words(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut sum = 0_u32;
        for word in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        prop_assert_eq!(Sum::of(&bytes).folded(), sum as u16);
    }

    /// RFC 1624: the field, not only its meaning, is that of a computation from all bytes.
    #[test]
    fn an_incremental_checksum_equals_the_full_one(
        mut bytes in prop::collection::vec(prop::sample::select(vec![0_u8, 0xff, 1, 0x80, 0x5a]), 2..120),
        at in 0..120usize,
        new in prop::collection::vec(prop::sample::select(vec![0_u8, 0xff, 7, 0xf8]), 1..40),
    ) {
        // Some other word is not zero, as in every header; else a sum may be either zero.
        bytes.extend([0x45, 0]);
        let old = Sum::of(&bytes).checksum();
        let at = (at % bytes.len()) & !1;
        let len = new.len().min(bytes.len() - 2 - at.min(bytes.len() - 2));
        let before = Sum::of(&bytes[at..at + len]);
        bytes[at..at + len].copy_from_slice(&new[..len]);
        let updated = Sum::claimed(old) - before + Sum::of(&bytes[at..at + len]);
        prop_assert_eq!(updated.checksum(), Sum::of(&bytes).checksum());
    }
}

#[test]
fn every_truncation_of_a_frame_is_read() {
    let (mut frames, mut frame) = (Frames::new(0x7275_6e63), Vec::new());
    for _ in 0..3_000 {
        frames.fill(&mut frame);
        for len in 0..=frame.len() {
            read_all(&frame[..len]);
        }
    }
}

/// What a frame is cut off to never turns one transport header into another.
#[test]
fn a_truncated_frame_has_the_same_transport_or_none() {
    let (mut frames, mut frame) = (Frames::new(0x7472_616e), Vec::new());
    for _ in 0..20_000 {
        frames.fill(&mut frame);
        let whole = Transport::find(&frame);
        for len in (0..frame.len()).step_by(3) {
            let found = Transport::find(&frame[..len]);
            assert!(found.is_none() || found == whole, "{len} bytes of {frame:02x?}");
        }
    }
}

/// The offset and number of the payload behind the IP header, as `etherparse` finds it.
fn oracle(frame: &[u8]) -> Option<(usize, u8)> {
    use etherparse::{LaxNetSlice, LaxSlicedPacket};
    let packet = LaxSlicedPacket::from_ethernet(frame).ok()?;
    let payload = match packet.net? {
        LaxNetSlice::Ipv4(ip) if !ip.payload().fragmented => ip.payload().clone(),
        LaxNetSlice::Ipv6(ip) if !ip.payload().fragmented => ip.payload().clone(),
        _ => return None,
    };
    let offset = payload.payload.as_ptr().addr() - frame.as_ptr().addr();
    Some((offset, payload.ip_number.0))
}

/// Where both find a transport header they find the same one; and `etherparse` finds all that we find.
#[test]
fn transport_is_where_etherparse_finds_it() {
    let (mut frames, mut frame) = (Frames::new(0x6f72_6163), Vec::new());
    let mut both = 0;
    for _ in 0..100_000 {
        frames.fill(&mut frame);
        let Some(found) = Transport::find(&frame) else { continue };
        // etherparse knows fewer extension headers, and each at most once or twice.
        let in_ipv6 = ethernet::payload(&frame).filter(|p| p.ether_type == ether_type::IPV6);
        if in_ipv6.is_some() && found.ip_len != ipv6::HEADER_LEN {
            continue;
        }
        assert_eq!(oracle(&frame), Some((found.offset(), found.protocol.number())), "{frame:02x?}");
        both += 1;
    }
    assert!(both > 10_000, "{both}");
}

/// The checksum that the digest leaves out is the one that offloads complete, where both find one.
#[test]
fn digest_and_offloads_agree_on_the_checksum() {
    let (mut frames, mut frame) = (Frames::new(0x6469_6773), Vec::new());
    let mut both = 0;
    for _ in 0..100_000 {
        frames.fill(&mut frame);
        let found = Transport::find(&frame).filter(|t| t.protocol != Protocol::Sctp);
        let plain = found.filter(|t| !t.is_v6 || t.ip_len == ipv6::HEADER_LEN);
        if let Some(found) = plain {
            assert_eq!(transport::digest_checksum(&frame), Some(found.checksum().start), "{frame:02x?}");
            both += 1;
        }
    }
    assert!(both > 10_000, "{both}");
}

#[test]
fn one_walk_ends_where_the_layers_do() {
    let (mut frames, mut frame) = (Frames::new(0x6c61_7965), Vec::new());
    let mut walked = 0;
    for _ in 0..100_000 {
        frames.fill(&mut frame);
        let Some(found) = Transport::find(&frame).filter(|t| t.is_v6 && t.ip_len > 40) else { continue };
        let next = frame[found.link_len + 6];
        let extensions = Extensions::walk(&frame[found.link_len + ipv6::HEADER_LEN..], next);
        assert_eq!(extensions.upper, Upper::Protocol(found.protocol.number()));
        let ends = Layers::new(&frame).map(|layer| layer.range.end);
        assert!(ends.into_iter().any(|end| end == found.offset()), "{frame:02x?}");
        walked += 1;
    }
    assert!(walked > 1_000, "{walked}");
}
