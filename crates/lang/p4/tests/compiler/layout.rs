//! Programs that change the layout of packets: headers added, removed, moved, swapped.

use crate::common::Bench;

/// A program over three headers of two, three and three bytes; a tag byte in the first two selects
/// the next one.
fn program(body: &str, order: &str) -> String {
    let emits: String = order.split(' ').map(|h| format!("p.emit(hdr.{h});")).collect();
    format!(
        "#include <ubpf_model.p4>\n\
         header a_t {{ bit<8> next; bit<8> v; }} header b_t {{ bit<8> next; bit<16> v; }} header c_t {{ \
         bit<24> v; }}\n\
         struct headers_t {{ a_t a; b_t b; c_t c; }} struct meta_t {{ }}\n\
         parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata std) {{\n\
         state start {{ p.extract(hdr.a); transition select(hdr.a.next) {{ 1: b; 2: c; default: accept; }} \
         }}\n\
         state b {{ p.extract(hdr.b); transition select(hdr.b.next) {{ 2: c; default: accept; }} }}\n\
         state c {{ p.extract(hdr.c); transition accept; }} }}\n\
         control pipe(inout headers_t hdr, inout meta_t meta, inout standard_metadata std) {{ apply {{ \
         {body} }} }}\n\
         control dprs(packet_out p, in headers_t hdr) {{ apply {{ {emits} }} }}\n\
         ubpf(prs(), pipe(), dprs()) main;\n"
    )
}

fn payload() -> Vec<u8> {
    (200..240).collect()
}

/// Returns a packet for each path through the parser, with a payload behind the headers.
fn packets() -> Vec<Vec<Vec<u8>>> {
    let (a, b, c) = (|n| vec![n, 10], |n| vec![n, 20, 21], || vec![30, 31, 32]);
    vec![vec![a(0), vec![], vec![]], vec![a(1), b(0), vec![]], vec![a(1), b(2), c()], vec![a(2), vec![], c()]]
}

fn check(body: &str, order: &str, want: impl Fn(&[Vec<u8>]) -> Vec<u8>) {
    let mut bench = Bench::new(&program(body, order));
    for parts in packets() {
        let packet = [parts.concat(), payload()].concat();
        let out = bench.run(&packet);
        assert!(out.pass, "{body}: {packet:?}");
        let expect = [want(&parts), payload()].concat();
        assert_eq!(out.bytes, expect, "{body} with {order}: {packet:?}\n{}", bench.compiled.asm);
        assert_eq!(out.total as usize, expect.len());
    }
}

#[test]
fn an_unmodified_packet_is_unchanged() {
    check("", "a b c", <[Vec<u8>]>::concat);
}

#[test]
fn headers_are_removed() {
    check("hdr.b.setInvalid();", "a b c", |p| [&p[0][..], &p[2]].concat());
    check("hdr.a.setInvalid();", "a b c", |p| [&p[1][..], &p[2]].concat());
    check("hdr.c.setInvalid(); hdr.b.setInvalid();", "a b c", |p| p[0].clone());
}

#[test]
fn headers_are_added_and_overwritten() {
    let new = [&[7u8, 0, 9][..]].concat();
    check("hdr.b.setValid(); hdr.b.next = 7; hdr.b.v = 9;", "a b c", |p| [&p[0][..], &new, &p[2]].concat());
    check("hdr.c.setValid(); hdr.c.v = 5;", "a b c", |p| [&p[0][..], &p[1], &[0, 0, 5]].concat());
}

#[test]
fn headers_move_and_change_their_fields() {
    check("", "b a c", |p| [&p[1][..], &p[0], &p[2]].concat());
    check("if (hdr.b.isValid()) { hdr.b.v = 1; }", "c b a", |p| {
        let b = if p[1].is_empty() { vec![] } else { vec![p[1][0], 0, 1] };
        [&p[2][..], &b, &p[0]].concat()
    });
}

#[test]
fn headers_that_are_not_emitted_are_removed() {
    check("", "a c", |p| [&p[0][..], &p[2]].concat());
    check("hdr.a.v = 99;", "a", |p| vec![p[0][0], 99]);
}

#[test]
fn headers_are_swapped() {
    let body =
        "hdr.b.setValid(); hdr.b = { next = hdr.a.v, v = 0x0102 }; b_t t = hdr.b; t.next = 3; hdr.b = t;";
    check(body, "a b c", |p| [&p[0][..], &[3, 1, 2], &p[2]].concat());
}

#[test]
fn a_layout_change_on_one_path_only() {
    check("if (hdr.a.next == 2) { hdr.c.setInvalid(); hdr.a.v = 1; }", "a b c", |p| {
        if p[0][0] == 2 { vec![2, 1] } else { p.concat() }
    });
}

#[test]
fn packets_are_truncated() {
    let mut b = Bench::new(&program("hdr.a.v = 5; truncate(20);", "a b c"));
    let packet = [vec![0, 1], payload()].concat();
    let out = b.run(&packet);
    assert_eq!((out.total, out.bytes.len()), (20, 20));
    assert_eq!(out.bytes[..2], [0, 5]);
    let short = b.run(&packet[..16]);
    assert_eq!(short.total, 16);
}
