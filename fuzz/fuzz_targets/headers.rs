//! Any bytes as a frame whose headers are read.
#![no_main]

use p4shield_frame::{Sum, Transport, ethernet, ipv4, layers::Layers, transport};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(payload) = ethernet::payload(bytes) {
        assert!(payload.offset <= bytes.len());
    }
    if let Some(found) = Transport::find(bytes) {
        assert!(found.checksum().end <= bytes.len());
        let field = transport::digest_checksum(bytes);
        let without = found.is_v6 || found.protocol == transport::Protocol::Sctp;
        assert!(without || field == Some(found.checksum().start));
        let _ = (found.header_len(bytes), found.pseudo_header(bytes));
    }
    let mut end = 0;
    for layer in Layers::new(bytes) {
        assert_eq!(layer.range.start, end);
        end = layer.range.end;
    }
    assert!(end <= bytes.len());
    let mut packet = bytes.to_vec();
    ipv4::set_checksum(&mut packet);
    let (front, back) = bytes.split_at(bytes.len() / 2);
    assert_eq!(Sum::of(front) + Sum::of(back).at(front.len()), Sum::of(bytes));
});
