//! Deep header stacks: their programs fit a P4 VM, and packets of every depth are right.

use crate::common::{Bench, compiled};
use p4shield_abi::object::MAX_INSTRUCTIONS;

/// A program over a byte and a stack of `n` one-byte labels, the top bit of which marks the last one.
fn labels(n: usize, body: &str, emits: &str) -> String {
    format!(
        "#include <ubpf_model.p4>\nheader c_t {{ bit<8> n; }} header l_t {{ bit<1> last; bit<7> v; }}\n\
         struct headers_t {{ c_t c; l_t[{n}] l; c_t d; }} struct meta_t {{ bit<32> i; }}\n\
         parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata std) {{\n\
         state start {{ p.extract(hdr.c); transition labels; }}\n\
         state labels {{ p.extract(hdr.l.next);\n\
         transition select(hdr.l.last.last) {{ 1: more; 0: labels; }} }}\n\
         state more {{ transition select(hdr.c.n) {{ 255: accept; default: tail; }} }}\n\
         state tail {{ p.extract(hdr.d); transition accept; }} }}\n\
         control pipe(inout headers_t hdr, inout meta_t meta, inout standard_metadata std) {{\n\
         apply {{ {body} }} }}\n\
         control dprs(packet_out p, in headers_t hdr) {{ apply {{ {emits} }} }}\n\
         ubpf(prs(), pipe(), dprs()) main;\n"
    )
}

/// A packet with `n` labels behind a byte, and payload.
fn packet(first: u8, n: usize) -> Vec<u8> {
    let mut p = vec![first];
    p.extend((1..=n).map(|i| i as u8 & 0x1f));
    p[n] |= 0x80;
    p.push(9);
    p.extend([0x55; 16]);
    p
}

/// Returns a packet whose bytes `at` are replaced.
fn with(mut p: Vec<u8>, at: &[(usize, u8)]) -> Vec<u8> {
    at.iter().for_each(|(i, v)| p[*i] = *v);
    p
}

#[test]
fn a_stack_that_stays_in_place_costs_little_per_element() {
    let size = |n| compiled(&labels(n, "hdr.c.n = hdr.c.n + 1;", "p.emit(hdr);")).facts.instructions;
    let (half, whole) = (size(32), size(64));
    assert!(whole < 2 * half, "{half} instructions for 32 elements, {whole} for 64");
    let mut b = Bench::new(&labels(64, "hdr.c.n = hdr.c.n + 1; hdr.d.n = 7;", "p.emit(hdr);"));
    for n in [1, 2, 39, 40, 41, 63, 64] {
        assert_eq!(b.passes(&packet(5, n)), with(packet(5, n), &[(0, 6), (n + 1, 7)]), "{n} labels");
        assert_eq!(b.passes(&packet(255, n)), with(packet(255, n), &[(0, 0)]), "{n} labels");
    }
    b.drops(&packet(5, 65));
}

#[test]
fn elements_that_change_are_written_in_place() {
    let body = "hdr.l[2].v = 1; meta.i = (bit<32>)hdr.c.n; hdr.l[meta.i].v = 2;";
    let mut b = Bench::new(&labels(6, body, "p.emit(hdr.c); p.emit(hdr.l); p.emit(hdr.d);"));
    for (n, i) in [(6, 0), (6, 5), (6, 9), (2, 1), (1, 4)] {
        let mut want = packet(i, n);
        for (at, v) in [(2, 1), (usize::from(i), 2)] {
            if at < n {
                want[at + 1] = want[at + 1] & 0x80 | v;
            }
        }
        assert_eq!(b.passes(&packet(i, n)), want, "{n} labels, index {i}");
    }
}

#[test]
fn stacks_that_move_are_found_out() {
    let moved = |body: &str, emits: &str, want: &dyn Fn(&[u8]) -> Vec<u8>| {
        let mut b = Bench::new(&labels(5, body, emits));
        for n in 1..=5 {
            let p = packet(3, n);
            assert_eq!(b.passes(&p), want(&p), "{body} {emits}, {n} labels");
        }
    };
    let all = "p.emit(hdr.c); p.emit(hdr.l); p.emit(hdr.d);";
    moved("hdr.l.pop_front(1);", all, &|p| [&p[..1], &p[2..]].concat());
    moved("hdr.l[0].setInvalid();", all, &|p| [&p[..1], &p[2..]].concat());
    moved("hdr.l[0] = hdr.l[0];", all, &<[u8]>::to_vec);
    let behind = |p: &[u8]| p.len() - 17;
    moved("", "p.emit(hdr.l); p.emit(hdr.c); p.emit(hdr.d);", &|p| {
        [&p[1..behind(p)], &p[..1], &p[behind(p)..]].concat()
    });
    moved("", "p.emit(hdr.c); p.emit(hdr.l[0]); p.emit(hdr.d);", &|p| [&p[..2], &p[behind(p)..]].concat());
    // A header that is emitted twice is in the packet twice.
    moved("", "p.emit(hdr.c); p.emit(hdr.c); p.emit(hdr.l); p.emit(hdr.d);", &|p| [&p[..1], p].concat());
    let twice = "p.emit(hdr.c); p.emit(hdr.l); p.emit(hdr.l); p.emit(hdr.d);";
    moved("", twice, &|p| [&p[..behind(p)], &p[1..]].concat());
}

#[test]
fn a_loop_that_makes_the_program_too_long_gets_fewer_rounds() {
    // One path of the loop does not extract into the stack, and each label may be followed by one of four.
    let cases: String = (1..5).map(|i| format!("{i}: s{i}; ")).collect();
    let states: String = (1..5)
        .map(|i| {
            format!(
                "state s{i} {{ p.extract(hdr.h[{i}]); hdr.l[0].v = hdr.l[0].v + 1; transition labels; }}\n"
            )
        })
        .collect();
    let text = labels(4, "hdr.l.pop_front(1);", "p.emit(hdr);")
        .replace("c_t d; }", "c_t d; f_t[5] h; } ")
        .replace("struct headers_t", "header f_t { bit<8> a; bit<24> b; bit<64> c; } struct headers_t")
        .replace(
            "state labels { p.extract(hdr.l.next);",
            &format!(
                "{states} state push {{ p.extract(hdr.l.next); \
            transition labels; }} state labels {{"
            ),
        )
        .replace(
            "select(hdr.l.last.last) { 1: more; 0: labels; }",
            &format!("select(p.lookahead<bit<8>>()) {{ {cases} 0x80: more; default: push; }}"),
        );
    let c = compiled(&text);
    assert!(c.facts.instructions <= MAX_INSTRUCTIONS, "{} instructions", c.facts.instructions);
    let warning = c.warnings.plain().into_iter().find(|w| w.code == "W0114").expect("a warning");
    assert!(!warning.message.contains(" 40 "), "{}", warning.message);
}
