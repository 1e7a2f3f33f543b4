//! Varbit fields: extracted, copied, compared, hashed and emitted, in programs that move headers
//! and in programs that do not, each run as verified eBPF on both engines.

use crate::common::{Bench, checksum};

/// Two headers with a byte and a varbit field of up to 64 bits; the first byte of the packet is its
/// size in bytes.
fn program(states: &str, locals: &str, body: &str, emits: &str) -> String {
    format!(
        "#include <ubpf_model.p4>\nheader s_t {{ bit<8> n; }}\nheader v_t {{ bit<8> a; varbit<64> v; }}\n\
         struct headers_t {{ s_t s; v_t x; v_t y; v_t[2] l; }}\nstruct meta_t {{ bit<8> x; }}\n\
         parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata std) {{ \
         {states} }}\n\
         control pipe(inout headers_t hdr, inout meta_t meta, inout standard_metadata std) {{\n{locals}\n\
         apply {{ {body} }} }}\n\
         control dprs(packet_out p, in headers_t hdr) {{ apply {{ {emits} }} }}\n\
         ubpf(prs(), pipe(), dprs()) main;\n"
    )
}

const BOTH: &str = "state start { p.extract(hdr.s); bit<32> bits = (bit<32>)hdr.s.n * 8;\n\
                    p.extract(hdr.x, bits); p.extract(hdr.y, bits); transition accept; }";
const IN_ORDER: &str = "p.emit(hdr.s); p.emit(hdr.x); p.emit(hdr.y);";
/// Bytes that no program here changes; a resized packet must be at least as long as an Ethernet header.
const REST: [u8; 16] = [0xee; 16];

/// Builds a packet of the two headers with these contents.
fn packet(x: &[u8], y: &[u8]) -> Vec<u8> {
    [&[x.len() as u8, 0xa1][..], x, &[0xa2], y, &REST].concat()
}

#[test]
fn headers_that_swap_positions_keep_their_contents() {
    let mut b = Bench::new(&program(BOTH, "", "", "p.emit(hdr.y); p.emit(hdr.s); p.emit(hdr.x);"));
    for n in 0..=8u8 {
        let (x, y): (Vec<u8>, Vec<u8>) = (0..n).map(|i| (i, 0x80 + i)).unzip();
        let expected = [&[0xa2][..], &y, &[n, 0xa1], &x, &REST].concat();
        assert_eq!(b.passes(&packet(&x, &y)), expected, "{n} bytes");
    }
    b.drops(&packet(&[1; 9], &[2; 9]));
    b.drops(&packet(&[1; 8], &[2; 8])[..18]);
}

#[test]
fn preceding_headers_may_be_removed_or_added() {
    let mut b = Bench::new(&program(BOTH, "", "hdr.s.setInvalid();", IN_ORDER));
    assert_eq!(
        b.passes(&packet(&[1, 2, 3], &[4, 5, 6])),
        [&[0xa1, 1, 2, 3, 0xa2, 4, 5, 6][..], &REST].concat()
    );
    let mut b = Bench::new(&program(
        BOTH,
        "",
        "hdr.l[0].setValid(); hdr.l[0].a = 7; hdr.x.a = 8;",
        &format!("p.emit(hdr.l); {IN_ORDER}"),
    ));
    let expected = [&[7, 3, 8, 1, 2, 3, 0xa2, 4, 5, 6][..], &REST].concat();
    assert_eq!(b.passes(&packet(&[1, 2, 3], &[4, 5, 6])), expected, "a new header's varbit field is empty");
}

#[test]
fn contents_are_assigned() {
    let body = "varbit<64> t = hdr.x.v; hdr.x.v = hdr.y.v; hdr.y.v = t;";
    let mut b = Bench::new(&program(BOTH, "", body, IN_ORDER));
    assert_eq!(b.passes(&packet(&[1, 2, 3], &[4, 5, 6])), packet(&[4, 5, 6], &[1, 2, 3]));
    let body = "hdr.l[0] = hdr.y; hdr.l[1] = hdr.x; hdr.l[0].v = hdr.l[1].v; hdr.y.setInvalid();";
    let mut b = Bench::new(&program(BOTH, "", body, &format!("{IN_ORDER} p.emit(hdr.l);")));
    let expected = [&[2, 0xa1, 1, 2, 0xa2, 1, 2, 0xa1, 1, 2][..], &REST].concat();
    assert_eq!(b.passes(&packet(&[1, 2], &[4, 5])), expected);
}

#[test]
fn contents_are_compared() {
    let body = "hdr.s.n = 0; if (hdr.x.v == hdr.y.v) { hdr.s.n = 1; }\n\
                    if (hdr.x != hdr.y) { hdr.s.n = hdr.s.n + 2; }";
    let mut b = Bench::new(&program(BOTH, "", body, IN_ORDER));
    let mut first = |x: &[u8], y: &[u8]| b.passes(&packet(x, y))[0];
    assert_eq!((first(&[1, 2], &[1, 2]), first(&[1, 2], &[1, 3]), first(&[], &[])), (3, 2, 3));
    // Fields of different lengths differ, even if the bytes behind the shorter one match.
    let two =
        "state start { p.extract(hdr.s); p.extract(hdr.x, 16); p.extract(hdr.y, 24); transition accept; }";
    let mut b = Bench::new(&program(two, "", body, IN_ORDER));
    let p = [&[0, 0xa1, 0xa2, 9, 0xa1, 0xa2, 9, 9][..], &REST].concat();
    assert_eq!(b.passes(&p)[0], 2);
}

#[test]
fn a_header_may_be_skipped() {
    let states =
        "state start { p.extract<s_t>(_); p.extract<v_t>(_, 16); p.extract(hdr.s); transition accept; }";
    let mut b = Bench::new(&program(states, "", "", IN_ORDER));
    assert_eq!(b.passes(&[&[1, 2, 3, 4, 5][..], &REST].concat()), [&[5][..], &REST].concat());
}

#[test]
fn a_checksum_covers_the_contents() {
    let text = "#include <v1model.p4>\nheader h_t { bit<16> sum; bit<8> a; bit<8> n; varbit<64> v; }\n\
         struct headers_t { h_t h; }\nstruct meta_t { bit<8> bad; }\n\
         parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {\n\
         state start { p.extract(hdr.h, (bit<32>)p.lookahead<bit<32>>()[7:0] * 8); transition accept; } }\n\
         control vc(inout headers_t hdr, inout meta_t meta) { apply {\n\
         verify_checksum(true, { hdr.h.a, hdr.h.n, hdr.h.v }, hdr.h.sum, HashAlgorithm.csum16); } }\n\
         control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply {\n\
         if (std.checksum_error == 1) { hdr.h.a = 0xbb; } else { hdr.h.a = hdr.h.a + 1; } } }\n\
         control egress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply { } \
         }\n\
         control uc(inout headers_t hdr, inout meta_t meta) { apply {\n\
         update_checksum(true, { hdr.h.a, hdr.h.n, hdr.h.v }, hdr.h.sum, HashAlgorithm.csum16); } }\n\
         control dprs(packet_out p, in headers_t hdr) { apply { p.emit(hdr); } }\n\
         V1Switch(prs(), vc(), ingress(), egress(), uc(), dprs()) main;\n";
    let mut b = Bench::new(text);
    let packet = |a: u8, v: &[u8]| {
        let data = [&[a, v.len() as u8], v].concat();
        [&checksum(&data).to_be_bytes()[..], &data].concat()
    };
    for v in [&[][..], &[1, 2], &[9, 8, 7], &[1, 2, 3, 4, 5, 6, 7, 8]] {
        assert_eq!(b.passes(&packet(5, v)), packet(6, v));
    }
    let mut wrong = packet(5, &[1, 2, 3, 4]);
    wrong[5] ^= 1;
    assert_eq!(b.passes(&wrong)[2], 0xbb);
}
