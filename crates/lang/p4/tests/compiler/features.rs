//! The larger features of the language, each run as verified eBPF on both engines: stacks, unions,
//! loops, sub-parsers, generics, default values, wide arithmetic.

use crate::common::{Bench, compiled, program};
use p4shield_p4::{NoIncludes, Options, Reject, compile};

/// Runs a control over a header of two 8-bit fields and returns both.
fn run(locals: &str, body: &str, a: u8, b: u8) -> (u8, u8) {
    let mut bench = Bench::new(&program("bit<8> a; bit<8> b;", "bit<8> x;", locals, body));
    let out = bench.passes(&[a, b]);
    (out[0], out[1])
}

/// A program over a stack of four one-byte labels, the top bit of which marks the last one.
fn labels(locals: &str, states: &str, body: &str) -> String {
    format!(
        "#include <ubpf_model.p4>\nheader l_t {{ bit<1> last; bit<7> v; }}\n\
         struct headers_t {{ l_t[4] l; }}\nstruct meta_t {{ bit<8> x; }}\n\
         parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata std) {{ \
         {states} }}\n\
         control pipe(inout headers_t hdr, inout meta_t meta, inout standard_metadata std) {{\n{locals}\n\
         apply {{ {body} }} }}\n\
         control dprs(packet_out p, in headers_t hdr) {{ apply {{ p.emit(hdr); }} }}\n\
         ubpf(prs(), pipe(), dprs()) main;\n"
    )
}

const LOOP: &str =
    "state start { p.extract(hdr.l.next); transition select(hdr.l.last.last) { 1: accept; 0: start; } }";

#[test]
fn a_parser_loops_over_a_stack_until_it_is_full() {
    let mut b = Bench::new(&labels("", LOOP, "hdr.l[0].v = 5;"));
    assert_eq!(b.passes(&[0x81, 9]), [0x85, 9]);
    assert_eq!(b.passes(&[1, 2, 0x83]), [5, 2, 0x83]);
    assert_eq!(b.passes(&[1, 2, 3, 0x84]), [5, 2, 3, 0x84]);
    b.drops(&[1, 2, 3, 4, 0x85]);
    b.drops(&[1, 2]);
}

#[test]
fn last_index_and_select_on_the_last_element() {
    let states = "state start { p.extract(hdr.l.next); meta.x = (bit<8>)hdr.l.lastIndex;\n\
                  transition select(hdr.l.last.last) { 1: accept; 0: start; } }";
    let mut b = Bench::new(&labels("", states, "hdr.l[0].v = (bit<7>)meta.x;"));
    assert_eq!(b.passes(&[1, 2, 0x83]), [2, 2, 0x83]);
    assert_eq!(b.passes(&[0x81]), [0x80]);
}

#[test]
fn elements_by_a_variable_index() {
    let body = "bit<32> i = (bit<32>)hdr.l[0].v; hdr.l[i].v = hdr.l[i].v + 1;";
    let mut b = Bench::new(&labels("", LOOP, body));
    assert_eq!(b.passes(&[2, 20, 30, 0x84]), [2, 20, 31, 0x84]);
    assert_eq!(b.passes(&[1, 20, 30, 0x84]), [1, 21, 30, 0x84]);
    assert_eq!(b.passes(&[9, 20, 30, 0x84]), [9, 20, 30, 0x84], "an index out of range writes nothing");
}

#[test]
fn pushing_and_popping() {
    let padded = |p: &[u8]| [p, &[0x55; 16]].concat();
    let mut b = Bench::new(&labels("", LOOP, "hdr.l.pop_front(1);"));
    assert_eq!(b.passes(&padded(&[1, 2, 0x83, 7])), padded(&[2, 0x83, 7]));
    let push = "hdr.l.push_front(1); hdr.l[0].setValid(); hdr.l[0].last = 0; hdr.l[0].v = 9;";
    let mut b = Bench::new(&labels("", LOOP, push));
    assert_eq!(b.passes(&padded(&[1, 0x82, 7])), padded(&[9, 1, 0x82, 7]));
    assert_eq!(
        b.passes(&padded(&[1, 2, 3, 0x84, 7])),
        padded(&[9, 1, 2, 3, 7]),
        "the last element is dropped"
    );
}

#[test]
fn loops_over_ranges_stacks_and_conditions() {
    let sum = "bit<8> s = 0; for (bit<8> i in 1 .. 4) { if (i == 3) { continue; } s = s + i; } hdr.h.a = s;";
    assert_eq!(run("", sum, 0, 0), (7, 0));
    let count = "bit<8> n = 0; for (bit<8> i = 0; i < hdr.h.a; i = i + 1) {\n\
                     n = n + 2; if (n == 20) { break; } } hdr.h.b = n;";
    assert_eq!(run("", count, 4, 0), (4, 8));
    assert_eq!(run("", count, 50, 0), (50, 20));
    let high = "bit<8> n = 0; for (bit<8> i in hdr.h.a .. hdr.h.b) { n = n + 1; } hdr.h.a = n;";
    assert_eq!(run("", high, 250, 255), (6, 255), "the last value of a type ends a range too");
    assert_eq!(run("", high, 3, 2), (0, 2));
    let each = "bit<7> s = 0; for (l_t e in hdr.l) { if (e.isValid()) { s = s + e.v; } } hdr.l[0].v = s;";
    assert_eq!(Bench::new(&labels("", LOOP, each)).passes(&[1, 2, 0x83]), [6, 2, 0x83]);
}

#[test]
fn a_loop_with_too_many_iterations_drops_the_packet() {
    let body = "for (bit<8> i = 0; i < hdr.h.a; i = i + 1) { hdr.h.b = hdr.h.b + 1; }";
    let mut b = Bench::new(&program("bit<8> a; bit<8> b;", "", "", body));
    assert_eq!(b.passes(&[60, 0]), [60, 60]);
    b.drops(&[200, 0]);
}

#[test]
fn a_union_holds_one_header() {
    let text = "#include <ubpf_model.p4>\nheader k_t { bit<8> k; }\nheader a_t { bit<8> a; }\n\
        header b_t { bit<16> b; }\n\
        header_union u_t { a_t a; b_t b; }\nstruct headers_t { k_t k; u_t u; }\nstruct meta_t { bit<8> x; }\n\
        parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata std) {\n\
        state start { p.extract(hdr.k); transition select(hdr.k.k) { 1: a; 2: b; default: accept; } }\n\
        state a { p.extract(hdr.u.a); transition accept; } state b { p.extract(hdr.u.b); transition accept; \
        } }\n\
        control pipe(inout headers_t hdr, inout meta_t meta, inout standard_metadata std) { apply {\n\
        if (!hdr.u.isValid()) { hdr.k.k = 9; } else if (hdr.u.a.isValid()) { hdr.u.b.setValid(); hdr.u.b.b \
        = 0x1122; } } }\n\
        control dprs(packet_out p, in headers_t hdr) { apply { p.emit(hdr); } }\n\
        ubpf(prs(), pipe(), dprs()) main;";
    let mut b = Bench::new(text);
    let padded = |p: &[u8]| [p, &[0x55; 16]].concat();
    assert_eq!(b.passes(&padded(&[1, 5, 7])), padded(&[1, 0x11, 0x22, 7]), "the other header is gone");
    assert_eq!(b.passes(&[2, 5, 6, 7]), [2, 5, 6, 7]);
    assert_eq!(b.passes(&[3, 5]), [9, 5]);
}

/// Runs statements on a header `hdr.k` of one byte and an invalid union `hdr.u`; returns the packet after it.
fn union_after(locals: &str, body: &str) -> Vec<u8> {
    let text = format!(
        "#include <ubpf_model.p4>\nheader k_t {{ bit<8> k; }}\nheader a_t {{ bit<8> a; }}\n\
         header b_t {{ bit<16> b; }}\nheader_union u_t {{ a_t a; b_t b; }}\n\
         struct headers_t {{ k_t k; u_t u; }}\nstruct meta_t {{ bit<8> x; }}\n\
         parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata std) {{\n\
         state start {{ p.extract(hdr.k); transition accept; }} }}\n\
         control pipe(inout headers_t hdr, inout meta_t meta, inout standard_metadata std) {{ {locals}\n\
         apply {{ {body} }} }}\n\
         control dprs(packet_out p, in headers_t hdr) {{ apply {{ p.emit(hdr); }} }}\n\
         ubpf(prs(), pipe(), dprs()) main;"
    );
    let payload = [0x55; 16];
    let out = Bench::new(&text).passes(&[&[7], &payload[..]].concat());
    out.strip_suffix(&payload).expect("the payload follows").to_vec()
}

#[test]
fn copying_out_leaves_at_most_one_valid_union_member() {
    let both = "action both(inout a_t x, inout b_t y) \
                { x.setValid(); x.a = 1; y.setValid(); y.b = 0x0203; }";
    assert_eq!(union_after(both, "both(hdr.u.a, hdr.u.b);"), [7, 2, 3]);
    let second = "action second(inout b_t y) { y.setValid(); y.b = 0x0203; }";
    assert_eq!(union_after(second, "hdr.u.a.setValid(); hdr.u.a.a = 1; second(hdr.u.b);"), [7, 2, 3]);
    let none = "action none(inout b_t y) { y.setInvalid(); }";
    // The copy is an assignment; "if e is invalid, then it is equivalent to u.hi.setInvalid()".
    assert_eq!(union_after(none, "hdr.u.a.setValid(); hdr.u.a.a = 1; none(hdr.u.b);"), [7]);
}

/// P4_16 specification, header unions: "u.hi.setInvalid(): if any member header of u is valid, then sets it
/// to be invalid".
#[test]
fn set_invalid_clears_whichever_member_is_valid() {
    assert_eq!(union_after("", "hdr.u.a.setValid(); hdr.u.a.a = 1; hdr.u.b.setInvalid();"), [7]);
}

#[test]
fn parsers_call_parsers() {
    let text = labels(
        "",
        "Inner() inner; state start { inner.apply(p, hdr.l[0]); Inner.apply(p, hdr.l[1]); \
        transition accept; }",
        "",
    )
    .replace(
        "parser prs",
        "parser Inner(packet_in p, out l_t l) { state start { p.extract(l); \
            transition select(l.v) { 0: reject; default: accept; } } }\nparser prs",
    );
    let mut b = Bench::new(&text);
    assert_eq!(b.passes(&[1, 2, 3]), [1, 2, 3]);
    b.drops(&[1, 0, 3]);
    b.drops(&[1]);
}

#[test]
fn generic_functions_structs_and_controls() {
    let top = "struct pair<T> { T x; T y; }\nT larger<T>(in T a, in T b, in bool first) { if (first) { \
        return a; } return b; }\n\
               control Swap<T>(inout T a, inout T b) { apply { T t = a; a = b; b = t; } }\ncontrol pipe";
    let text = program(
        "bit<8> a; bit<8> b;",
        "bit<8> x;",
        "Swap<bit<8>>() swap;",
        "pair<bit<8>> p = { hdr.h.a, hdr.h.b }; swap.apply(p.x, p.y); hdr.h.a = p.x; hdr.h.b = larger(p.y, \
            8w7, p.y > 7);",
    )
    .replacen("control pipe", top, 1);
    let mut b = Bench::new(&text);
    assert_eq!(b.passes(&[1, 2]), [2, 7]);
    assert_eq!(b.passes(&[9, 2]), [2, 9]);
}

#[test]
fn default_values_and_names() {
    let top = "struct s_t { bit<8> x; bit<8> y; bool z; }\n\
        bit<8> f(in bit<8> x, in bit<8> y = 3) { return x - y; }\ncontrol pipe";
    let body = "s_t s = { x = 4, ... }; s_t n = ...; s_t l = { 1, ... };\n\
                hdr.h.a = s.x + s.y + n.x + l.x; hdr.h.b = f(y = 1, x = hdr.h.b) + f(10);";
    let text = program("bit<8> a; bit<8> b;", "bit<8> x;", "", body).replacen("control pipe", top, 1);
    assert_eq!(Bench::new(&text).passes(&[0, 6]), [5, 12]);
}

#[test]
fn slices_that_start_anywhere() {
    let text = program(
        "bit<8> i; bit<32> v; bit<8> r;",
        "",
        "",
        "hdr.h.r = hdr.h.v[hdr.h.i+:8]; hdr.h.v[hdr.h.i+:4] = 0xf;",
    );
    let mut b = Bench::new(&text);
    assert_eq!(b.passes(&[8, 0x12, 0x34, 0x56, 0x78, 0]), [8, 0x12, 0x34, 0x5f, 0x78, 0x56]);
    assert_eq!(b.passes(&[30, 0x12, 0x34, 0x56, 0x78, 0]), [30, 0xd2, 0x34, 0x56, 0x78, 0]);
}

#[test]
fn arithmetic_of_128_bits() {
    let operate = |body: &str, x: u128, y: u128| {
        let mut b = Bench::new(&program("bit<128> x; bit<128> y;", "", "", body));
        let packet = [x.to_be_bytes(), y.to_be_bytes()].concat();
        u128::from_be_bytes(b.passes(&packet)[..16].try_into().expect("16 bytes"))
    };
    let (x, y) = (0x1234_5678_9abc_def0_0fed_cba9_8765_4321, 0xffff_0000_1111_2222_3333_4444_5555_6666);
    assert_eq!(operate("hdr.h.x = hdr.h.x * hdr.h.y;", x, y), x.wrapping_mul(y));
    assert_eq!(operate("hdr.h.x = hdr.h.x |+| hdr.h.y;", x, y), x.saturating_add(y));
    assert_eq!(operate("hdr.h.x = hdr.h.x |-| hdr.h.y;", x, y), 0);
    assert_eq!(operate("hdr.h.x = hdr.h.x << (bit<8>)hdr.h.y[7:0];", x, 77), x << 77);
    assert_eq!(operate("hdr.h.x = hdr.h.x >> hdr.h.y;", x, 77), x >> 77);
    assert_eq!(operate("hdr.h.x = hdr.h.x >> hdr.h.y;", x, 1 << 90), 0);
    assert_eq!(operate("hdr.h.x = hdr.h.x / 16; hdr.h.y = 1;", x, y), x / 16);
    assert_eq!(operate("hdr.h.x = hdr.h.x % 4096;", x, y), x % 4096);
}

#[test]
fn a_select_matches_tuples_and_structs() {
    let states = "value_set<bit<7>>(4) vs; state start { p.extract(hdr.l[0]); transition select({ \
        hdr.l[0].last, hdr.l[0].v }) {\n\
                  (1, _): accept; (0, 1 .. 3): more; (0, 8 &&& 8): reject; } }\n\
                  state more { p.extract(hdr.l[1]); transition select(hdr.l[1].v) { vs: reject; default: \
                  accept; } }";
    let mut b = Bench::new(&labels("", states, "hdr.l[0].v = 64;"));
    assert_eq!(b.passes(&[0x81]), [0xc0]);
    assert_eq!(b.passes(&[2, 3]), [64, 3]);
    b.drops(&[9, 3]);
    b.drops(&[4, 3]);
}

#[test]
fn operators_that_assign() {
    assert_eq!(run("", "hdr.h.a += 250; hdr.h.b |-|= 9; hdr.h.a <<= 1;", 10, 5), (8, 0));
}

#[test]
fn an_index_is_evaluated_before_the_value_and_once() {
    let next = "bit<8> next(inout bit<8> i) { i = i + 1; return i; }\ncontrol pipe";
    let text = |body: &str| labels("", LOOP, body).replacen("control pipe", next, 1);
    let order = "bit<8> i = 0; hdr.l[(bit<32>)i].v = (bit<7>)next(i) + 10;";
    assert_eq!(Bench::new(&text(order)).passes(&[1, 2, 0x83]), [11, 2, 0x83]);
    let once = "bit<8> i = 0; hdr.l[(bit<32>)next(i)].v += 5; hdr.l[0].v = (bit<7>)i;";
    assert_eq!(Bench::new(&text(once)).passes(&[9, 2, 0x83]), [1, 7, 0x83]);
}

#[test]
fn unions_in_stacks() {
    let text = "#include <ubpf_model.p4>\nheader a_t { bit<8> a; }\nheader b_t { bit<16> b; }\n\
        header_union u_t { a_t a; b_t b; }\nstruct headers_t { u_t[2] u; }\nstruct meta_t { bit<8> x; }\n\
        parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata std) {\n\
        state start { p.extract(hdr.u.next.b); p.extract(hdr.u.next.a); transition accept; } }\n\
        control pipe(inout headers_t hdr, inout meta_t meta, inout standard_metadata std) { apply {\n\
        if (hdr.u[0].b.isValid() && hdr.u[1].a.isValid() && !hdr.u[1].b.isValid()) { hdr.u[1].a.a = 9; } } \
        }\n\
        control dprs(packet_out p, in headers_t hdr) { apply { p.emit(hdr); } }\n\
        ubpf(prs(), pipe(), dprs()) main;";
    assert_eq!(Bench::new(text).passes(&[1, 2, 3, 4]), [1, 2, 9, 4]);
}

/// A parser whose state `more` extracts a header and decides by `last` whether it follows itself.
fn counting(locals: &str, more: &str) -> String {
    let states = format!(
        "{locals}\nstate start {{ transition more; }}\nstate more {{ {more}\n\
         transition select(p.lookahead<bit<8>>()) {{ 0x80 &&& 0x80: done; default: more; }} }}\n\
         state done {{ p.extract(hdr.l.next); transition accept; }}"
    );
    labels("", &states, "hdr.l[0].v = (bit<7>)meta.x;")
}

fn loop_warnings(text: &str) -> Vec<String> {
    let warnings = compiled(text).warnings;
    warnings.plain().iter().filter(|d| d.code == "W0114").map(|d| d.source.clone()).collect()
}

/// Returns `n` bytes that the state `more` skips, a last label and payload.
fn skipped(n: usize) -> Vec<u8> {
    [&vec![1; n][..], &[0x80; 20]].concat()
}

#[test]
fn a_parser_loop_without_a_bound_is_warned_of_and_cut() {
    let text = counting("", "p.advance(8); meta.x = meta.x + 1;");
    assert_eq!(loop_warnings(&text), ["state more { p.advance(8); meta.x = meta.x + 1;"]);
    let mut b = Bench::new(&text);
    assert_eq!(b.passes(&skipped(40))[0], 0x80 | 40);
    b.drops(&skipped(41));
    // Dropped as well where rejected packets pass.
    let options = Options { reject: Reject::Pass, ..Options::default() };
    let passing = compile("test.p4", &text, &NoIncludes, &options).expect("a program");
    let mut b = Bench::of(passing);
    b.drops(&skipped(41));
    assert!(b.run(&[1, 1]).pass, "too short, so rejected");
}

#[test]
fn a_parser_loop_that_counts_to_a_constant_is_complete() {
    let count = "meta.x = meta.x + 1; transition select(meta.x) { 100: done; default: skip; } }\n\
                 state skip { p.advance(8);";
    let text = counting("", count);
    assert!(loop_warnings(&text).is_empty());
    let mut b = Bench::new(&text);
    assert_eq!(b.passes(&skipped(99))[0], 0x80 | 99);
    assert_eq!(b.passes(&skipped(100))[0], 100, "the count ends the loop");
}

#[test]
fn parser_loops_into_stacks_have_the_bound_of_the_stacks() {
    assert!(loop_warnings(&labels("", LOOP, "")).is_empty());
    // One path of the loop does not extract.
    let around = "state start { p.extract(hdr.l.next); transition again; }\n\
        state again { transition select(hdr.l.last.v) { 1: again; 2: accept; default: start; } }";
    assert_eq!(loop_warnings(&labels("", around, "")).len(), 1);
    // A stack that moves back never fills.
    let back = LOOP.replace("transition", "hdr.l.pop_front(1); transition").replace("last.last", "lastIndex");
    let back = back.replace("hdr.l.lastIndex", "p.lookahead<bit<1>>()");
    assert_eq!(loop_warnings(&labels("", &back, "")).len(), 1);
}

#[test]
fn for_loops_that_may_be_cut_are_warned_of() {
    let warned = |body: &str| !loop_warnings(&program("bit<8> a; bit<8> b;", "", "", body)).is_empty();
    assert!(warned("for (bit<8> i = 0; i < hdr.h.a; i = i + 1) { hdr.h.b = hdr.h.b + 1; }"));
    assert!(warned("for (bit<8> i in 0 .. hdr.h.a) { hdr.h.b = hdr.h.b + i; }"));
    assert!(!warned("for (bit<8> i in 0 .. 99) { if (i > hdr.h.a) { break; } hdr.h.b = hdr.h.b + i; }"));
    assert!(!warned("for (bit<6> i in 0 .. hdr.h.a[5:0]) { hdr.h.b = hdr.h.b + (bit<8>)i; }"));
    assert!(!warned("for (bit<8> i = 0; i < 99; i = i + 1) { hdr.h.b = hdr.h.b + i; }"));
}
