//! Headers that end within a byte take all of it, and keep the bits behind their fields.

use crate::common::Bench;

/// A program over two headers of 17 bits, which take three bytes each.
fn run(body: &str, emits: &str, packet: &[u8]) -> Vec<u8> {
    let program = format!(
        "#include <ubpf_model.p4>\n\
         header h_t {{ bit<9> a; bit<8> b; }} struct headers_t {{ h_t h; h_t g; h_t fresh; }}\n\
         struct meta_t {{ }}\n\
         parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata std) {{\n\
         state start {{ p.extract(hdr.h); p.extract(hdr.g); transition accept; }} }}\n\
         control pipe(inout headers_t hdr, inout meta_t meta, inout standard_metadata std) {{ apply {{ \
         {body} }} }}\n\
         control dprs(packet_out p, in headers_t hdr) {{ apply {{ {emits} }} }}\n\
         ubpf(prs(), pipe(), dprs()) main;\n"
    );
    let payload: Vec<u8> = (200..240).collect();
    let out = Bench::new(&program).run(&[packet, &payload].concat());
    assert!(out.pass, "{body}");
    let headers = out.bytes.strip_suffix(&payload[..]);
    headers.unwrap_or_else(|| panic!("{body}: another payload: {:?}", out.bytes)).to_vec()
}

const BOTH: &str = "p.emit(hdr.h); p.emit(hdr.g);";
/// `a` is 0x155, `b` 0xcc, and the seven bits behind them all ones; then the same without those bits.
const PACKET: [u8; 6] = [0xaa, 0xe6, 0x7f, 0xaa, 0xe6, 0x00];

#[test]
fn padding_stays_with_its_header() {
    assert_eq!(run("", BOTH, &PACKET), PACKET);
    assert_eq!(run("hdr.h.b = 0;", BOTH, &PACKET), [0xaa, 0x80, 0x7f, 0xaa, 0xe6, 0x00]);
    let moved = "p.emit(hdr.g); p.emit(hdr.h);";
    assert_eq!(run("", moved, &PACKET), [0xaa, 0xe6, 0x00, 0xaa, 0xe6, 0x7f]);
    assert_eq!(run("hdr.g = hdr.h;", BOTH, &PACKET), [0xaa, 0xe6, 0x7f, 0xaa, 0xe6, 0x7f]);
}

#[test]
fn a_new_header_has_zeros_behind_its_fields() {
    assert_eq!(run("hdr.h = { 0x155, 0xcd };", BOTH, &PACKET)[..3], [0xaa, 0xe6, 0x80]);
    let three = "p.emit(hdr.fresh); p.emit(hdr.h); p.emit(hdr.g);";
    let added = run("hdr.fresh.setValid(); hdr.fresh.a = 1; hdr.fresh.b = 0xff;", three, &PACKET);
    assert_eq!(added, [&[0x00, 0xff, 0x80][..], &PACKET].concat());
}

#[test]
fn comparison_does_not_see_padding() {
    assert_eq!(run("if (hdr.h == hdr.g) { hdr.h.a = 0; }", BOTH, &PACKET)[..3], [0x00, 0x66, 0x7f]);
}
