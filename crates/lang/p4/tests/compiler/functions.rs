//! The generated C header of a program's own functions, and the signatures that C does not support.

use p4shield_p4::{Compiled, NoIncludes, Options, compile};

/// A program that declares `types` and runs `body` in its only control.
fn program(types: &str, body: &str) -> String {
    format!(
        "#include <ubpf_model.p4>
header h_t {{ bit<4> short; bit<12> b; int<24> c; bit<100> d; bool e; bit<11> f; }}
struct pair_t {{ h_t first; bit<48> register; }}
struct headers_t {{ h_t h; h_t[2] s; }}
struct meta_t {{ }}
{types}
parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata std) {{
    state start {{ p.extract(hdr.h); transition accept; }}
}}
control C(inout headers_t hdr, inout meta_t meta, inout standard_metadata std) {{ apply {{ {body} }} }}
control D(packet_out p, in headers_t hdr) {{ apply {{ p.emit(hdr.h); }} }}
ubpf(P(), C(), D()) main;
"
    )
}

fn compiled(types: &str, body: &str) -> Result<Compiled, String> {
    compile("functions.p4", &program(types, body), &NoIncludes, &Options::default())
        .map_err(|e| e.render(false))
}

#[test]
fn the_header_has_the_types_and_functions_that_are_called() {
    let types = "extern int<7> f(in pair_t p, inout h_t h, out bit<100> d, in bit<100> e, int<9> n);
                 extern void g(); extern bool idle(in bit<8> x);";
    let body = "pair_t p; p.first = hdr.h; p.register = 1; bit<100> d;
                int<7> r = f(p, hdr.h, d, hdr.h.d, 9s3); hdr.h.d = d; if (r == 1) { g(); }";
    let c = compiled(types, body).expect("a program").c_header;
    let expected = [
        "struct h_t {
    uint8_t short_;
    uint16_t b;
    int32_t c;
    uint8_t d[13];
    uint8_t e;
    uint16_t f;
    uint8_t ebpf_valid; /* whether the header is valid: 1 or 0 */
};
_Static_assert(sizeof(struct h_t) == 28, \"layout\");",
        "struct pair_t {
    struct h_t first;
    uint64_t register_;
};
_Static_assert(sizeof(struct pair_t) == 40, \"layout\");",
        "int8_t f(const struct pair_t *p, struct h_t *h, uint8_t d[13], const uint8_t e[13], int16_t n);",
        "void g(void);",
    ];
    for part in expected {
        assert!(c.contains(part), "the header lacks\n{part}\nin\n{c}");
    }
    assert!(!c.contains("idle("), "what is not called need not be defined");
    assert!(c.find("struct h_t {") < c.find("struct pair_t {"), "what a struct holds comes first");
}

#[test]
fn a_program_without_functions_has_no_header() {
    assert_eq!(compiled("", "").expect("a program").c_header, "");
}

#[test]
fn signatures_that_c_cannot_have_are_refused() {
    for (types, body) in [
        ("extern void f(in h_t[2] s);", "f(hdr.s);"),
        ("extern bit<65> f();", "bit<65> x = f(); hdr.h.f = (bit<11>) x;"),
        (
            "extern void f(bit<8> a, bit<8> b, bit<8> c, bit<8> d, bit<8> e, bit<8> g);",
            "f(1, 2, 3, 4, 5, 6);",
        ),
        ("struct none_t { } extern void f(in none_t n);", "none_t n; f(n);"),
        (
            "struct big_t { bit<2048> a; bit<2048> b; bit<2048> c; bit<2048> d; bit<2048> e; bit<2048> f; \
                bit<2048> g; \
          bit<2048> h; bit<2048> i; } extern void f(inout big_t b);",
            "big_t b; b.a = 1; f(b);",
        ),
    ] {
        let said = compiled(types, body).expect_err(types);
        assert!(said.contains("E0801") && said.contains("extern `f`"), "{types}: {said}");
    }
}
