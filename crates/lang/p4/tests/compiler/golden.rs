//! Golden files: the code and the IR of the examples, and every diagnostic with its location,
//! source line and hint. `P4SHIELD_BLESS=1` rewrites them; then review the difference.

use crate::common::{compiled, example, program};
use p4shield_p4::diagnostics::{Code, Diagnostics};
use p4shield_p4::{NoIncludes, Options, check, compile};
use std::collections::BTreeSet;
use std::fmt::Write;

fn golden(name: &str, text: &str) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("P4SHIELD_BLESS").is_some() {
        std::fs::write(&path, text).expect("a writable golden file");
        return;
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    if want != text {
        let line = want.lines().zip(text.lines()).position(|(a, b)| a != b);
        let line = line.unwrap_or_else(|| want.lines().count().min(text.lines().count()));
        let show = |t: &str| t.lines().skip(line).take(12).collect::<Vec<_>>().join("\n");
        panic!(
            "{name} differs from line {}:\n--- expected\n{}\n--- found\n{}\n(P4SHIELD_BLESS=1 rewrites it)",
            line + 1,
            show(&want),
            show(text)
        );
    }
}

#[test]
fn the_code_of_the_examples_is_unchanged() {
    for name in ["tcp_guard", "port_filter", "vlan_push", "hysteresis"] {
        let c = compiled(&example(&format!("programs/{name}.p4")));
        golden(&format!("{name}.ir"), &c.ir);
        golden(&format!("{name}.asm"), &c.asm);
        assert!(c.warnings.is_empty(), "{}", c.warnings);
    }
}

#[test]
fn the_same_source_gives_the_same_bytes() {
    for name in ["dscp_mark", "vlan_pop", "port_filter"] {
        let text = example(&format!("programs/{name}.p4"));
        assert_eq!(compiled(&text).object, compiled(&text).object);
    }
}

/// A control body over a header with `bit<8> a`, `int<8> s`, `bit<16> w` and `bool t`.
fn body(text: &str) -> String {
    program("bit<8> a; int<8> s; bit<16> w; bool t; bit<7> pad;", "bit<8> x;", "", &format!("\n{text}\n"))
}

fn locals(text: &str) -> String {
    program("bit<8> a; bit<8> b;", "bit<8> x;", &format!("\n{text}\n"), "")
}

/// A parser with the given state `start`.
fn parser(text: &str) -> String {
    program("bit<8> a;", "bit<8> x;", "", "")
        .replace("state start { p.extract(hdr.h); transition accept; }", text)
}

fn cases() -> Vec<(&'static str, String)> {
    let ubpf = |s: &str| format!("#include <ubpf_model.p4>\n{s}");
    vec![
        ("a missing semicolon", body("hdr.h.a = 1\nhdr.h.w = 2;")),
        ("a missing brace", ubpf("struct s {\n bit<8> a;\nstruct t { bit<8> b; }")),
        ("two mistakes in one block", body("hdr.h.a = ;\nhdr.h.b = 1;\nhdr.h.w = = 2;")),
        ("a keyword as a name", ubpf("const bit<8> table = 1;")),
        ("endless nesting", ubpf(&format!("const int X = {}1;", "(".repeat(100)))),
        ("a strange character", ubpf("const bit<8> X = 1 $ 2;")),
        ("an invalid number", ubpf("const bit<8> X = 0b12;")),
        ("an unterminated comment", ubpf("/* and so on")),
        ("an include that does not exist", "#include <nothing.p4>\n".to_owned()),
        ("an unknown directive", "#includ <core.p4>\n".to_owned()),
        ("an #if without #endif", "#if 1\n".to_owned()),
        ("an #error", "#error not like this\n".to_owned()),
        ("a misspelt name", body("hdr.h.a = metta.x;")),
        ("a misspelt field", body("hdr.h.q = 1;\nhdr.h.aa = 1;")),
        ("a misspelt type", ubpf("struct s { bitt<8> a; }\nstruct u { standard_metadat m; }")),
        ("a name declared twice", ubpf("const bit<8> A = 1;\nconst bit<8> A = 2;")),
        ("names of the wrong kind", body("headers_t = 1;\nmark_to_drop = 1;\nhdr.h.a = headers_t;")),
        ("widths that differ", body("hdr.h.a = hdr.h.w;\nhdr.h.w = hdr.h.a + hdr.h.w;")),
        ("an integer as a condition", body("if (hdr.h.a) { }\nhdr.h.t = !hdr.h.a;")),
        ("signs that differ", body("hdr.h.a = hdr.h.s;\nhdr.h.t = hdr.h.s < hdr.h.a;")),
        ("a cast that does not exist", body("hdr.h.t = (bool)hdr.h.a;\nhdr.h.w = (bit<16>)hdr.h.s;")),
        (
            "arguments that do not fit",
            body(
                "mark_to_drop(1);\nhdr.h.w = csum_replace2(hdr.h.w);\n\
            truncate(len = 1, lenn = 2);",
            ),
        ),
        (
            "assignments to expressions that are not l-values",
            body(
                "hdr.h.a + 1 = 2;\n\
            std.input_port[40:0] = 1;\n3 = hdr.h.a;",
            ),
        ),
        ("a slice out of range", body("hdr.h.a = hdr.h.w[16:9];\nhdr.h.a = hdr.h.w[3:5];")),
        (
            "a type that is not known",
            body(
                "hdr.h.a = { 1 };\nhdr.h.t = { 1 } == { 2 };\nhdr.h = {#};\n\
            { x = 1 } = meta;",
            ),
        ),
        ("a division by zero", ubpf("const bit<8> X = 1 / 0;\nconst int Y = 5 % 0;")),
        ("a value that is not constant", locals("bit<8> v;\nbit<v> w;\nconst bit<8> c = meta.x;")),
        ("a number that does not fit", body("hdr.h.a = 256;\nhdr.h.s = 200;\nhdr.h.a = 8w300;")),
        (
            "widths out of range",
            ubpf(
                "header h { bit<5000> a; int<0> b; bit<-1> c; }\n\
            header k { bit<8> a; }\nstruct s { k[0] t; bit<8>[3] u; }",
            ),
        ),
        (
            "fields that headers cannot have",
            ubpf(
                "struct s { int a; packet_in b; }\n\
            header h { s x; error e; }\nenum e { A = 1 }\nenum bit<8> f { A, B = 256 }",
            ),
        ),
        ("states that do not exist", parser("state start { transition strat; }")),
        ("a parser without start", parser("state begin { transition accept; }")),
        (
            "a select without default",
            parser(
                "state start { p.extract(hdr.h); transition select(hdr.h.a) { \
            1: accept; } }",
            ),
        ),
        (
            "a select with the wrong keys",
            parser(
                "state start { p.extract(hdr.h); transition select(hdr.h.a, \
            8w1) { 1: accept; (1, 2, 3): accept; (256, 1): accept; default: accept; } }",
            ),
        ),
        (
            "a parser that never ends",
            parser(
                "state start { p.extract(hdr.h); transition again; } state \
            again { transition start; }",
            ),
        ),
        ("statements in the wrong place", parser("state start { return; exit; transition accept; }")),
        (
            "tables that are wrong",
            locals(
                "action a(bit<8> d) { }\n\
            table t {\n key = { hdr.h.a : exat; hdr.h : exact; }\n actions = { a; b; }\n const \
            default_action = c();\n const entries = { (1, 2): a(1); 300: a(2); 1: a(); }\n size = -1;\n}\n\
            table u { key = { hdr.h.a : exact; } }",
            ),
        ),
        (
            "duplicate entries",
            locals(&format!(
                "action a(bit<8> d) {{ hdr.h.b = d; }}\n\
            table t {{ key = {{ hdr.h.a : exact; }} actions = {{ a; }} const entries = {{\n\
            {} 3: a(1);\n }} }}",
                (0..20)
                    .map(|i| format!(
                        "{i}: \
            a({i});\n"
                    ))
                    .collect::<String>()
            ))
            .replace("apply {  }", "apply { t.apply(); }"),
        ),
        (
            "a function that does not return",
            ubpf(
                "bit<8> f(in bit<8> x) { if (x == 1) { return 2; } }\n\
            bit<8> g() { return; }\nbit<8> h() { return true; }",
            ),
        ),
        (
            "invalid calls",
            locals("table t { actions = { NoAction; } }").replace(
                "apply {  }",
                "apply {\n\
            t();\nt.aply();\nhdr.h.isValidd();\nhdr();\n3();\n}",
            ),
        ),
        (
            "instances that are wrong",
            locals(
                "Register<bit<8>, bit<32>>() r;\nRegister(4) s;\n\
            headers_t() u;\nCounter<bit<32>>(meta.x) c;",
            ),
        ),
        ("no main", ubpf("")),
        (
            "a main that does not fit",
            body("").replace(
                "ubpf(prs(), pipe(), dprs())",
                "ubpf(prs(), dprs(), \
            pipe())",
            ),
        ),
        (
            "another architecture",
            "#include <core.p4>\nparser p();\npackage other(bit<8> x);\n\
            other(1) main;\n"
                .to_owned(),
        ),
        (
            "a key without a name",
            locals(
                "table t { key = { hdr.h.a + 1 : ternary; } actions = { NoAction; \
            NoAction; } }",
            ),
        ),
        (
            "unsupported language features",
            body(
                "bit<128> x = (bit<128>)hdr.h.a;\n\
            x = x / (bit<128>)hdr.h.w;\nhdr.h.w = (bit<16>)x;",
            ),
        ),
        (
            "loops that are wrong",
            body(
                "break;\nfor (bit<8> i in hdr.h) { continue; }\n\
            for (bit<8> i = 0; i; i = i + 1) { }",
            ),
        ),
        (
            "type parameters that do not fit",
            ubpf(
                "struct p<T> { T x; }\nconst p<void> A = { 1 };\n\
            T f<T>(in T x, in T y) { return x; }\nbit<8> g(in bit<8> a, in bit<16> b) { return f(a, b); }\n\
            bool h<T>(in T x) { return x == x; }",
            ),
        ),
        ("a type that contains itself", ubpf("struct p<T> { T x; }\ntypedef p<p<bit<8>>> q;")),
        (
            "annotations that are wrong",
            ubpf(
                "@name(1) const bit<8> A = 1;\n\
            @x[a = 1, a = 2] const bit<8> B = 2;",
            ),
        ),
        (
            "ambiguous overloads",
            ubpf(
                "extern void f(in bit<8> a);\nextern void f(in bit<16> b);\n\
            control c() { apply { f(1); } }",
            ),
        ),
        (
            "abstract methods",
            ubpf(
                "extern V { V(); abstract bit<8> f(in bit<8> x); }\ncontrol c() {\n\
            V() a;\nV() b = { bit<16> f(in bit<8> x) { return 1; } };\napply { } }",
            ),
        ),
        (
            "missing default values",
            body(
                "meta = { y = 1, ... };\npacket_in q = ...;\n\
            hdr.h.a = ({ 1, ..., 2 })[0];",
            ),
        ),
        (
            "an empty range",
            parser(
                "state start { p.extract(hdr.h); transition select(hdr.h.a) { 5 .. 2: \
            accept; default: reject; } }",
            ),
        ),
        (
            "value sets",
            parser(
                "value_set<packet_in>(4) a; value_set<bit<16>>(4) b; state start { \
            p.extract(hdr.h); transition select(hdr.h.a) { b: accept; default: reject; } }",
            ),
        ),
        (
            "unsupported externs of a tenant",
            body("hdr.h.a = mine(1, 2, 3, 4, 5, 6);").replace(
                "control \
            pipe",
                "extern bit<8> mine(in bit<8> a, in bit<8> b, in bit<8> c, in bit<8> d, in bit<8> e, in \
            bit<8> f);\ncontrol pipe",
            ),
        ),
        ("information without a check", body("if (get_tcp_mem_used() > 5) { mark_to_drop(); }")),
        (
            "values that may not be there",
            body(
                "bit<8> v;\nif (hdr.h.t) { v = 1; }\nhdr.h.a = v;\n\
            hdr.h.setInvalid();\nhdr.h.a = 2;\nbit<8> unused = v;",
            ),
        ),
        (
            "priorities that are missing",
            locals(
                "table t { key = { hdr.h.a : ternary; } actions = { \
            NoAction; } entries = { 1 : NoAction; priority = 2: 3 : NoAction; } }",
            ),
        ),
        (
            "a struct of any type",
            body("mine({ x = hdr.h.a });").replace(
                "control pipe",
                "extern void \
            mine<T>(in T x);\ncontrol pipe",
            ),
        ),
        (
            "unreachable code and hidden names",
            body(
                "bit<8> hdr_a = 1;\n\
            if (hdr.h.t) { bit<8> hdr_a = 2; hdr.h.a = hdr_a; }\nreturn;\nhdr.h.a = 2;",
            ),
        ),
    ]
}

/// Returns the diagnostics of `check`, otherwise those of a compilation: a file without `main` is
/// valid only for `check`.
fn mistakes(text: &str) -> Diagnostics {
    let found = check("test.p4", text, &NoIncludes, &Options::default());
    if !found.is_empty() {
        return found;
    }
    compile("test.p4", text, &NoIncludes, &Options::default()).err().unwrap_or_default()
}

#[test]
fn every_mistake_is_located_and_explained() {
    let mut out = String::new();
    let mut without_hint = Vec::new();
    for (name, text) in cases() {
        let d = mistakes(&text);
        assert!(!d.is_empty(), "no diagnostics for {name}:\n{text}");
        let _ = write!(out, "==== {name}\n\n{}", d.render(false));
        without_hint.extend(
            d.items()
                .iter()
                .filter(|i| i.hint.is_none() && i.code != Code::UserError)
                .map(|i| i.message.clone()),
        );
    }
    golden("errors.txt", &out);
    assert_eq!(without_hint, [""; 0], "every diagnostic has a hint how to fix it");
}

#[test]
fn nearly_every_code_has_a_golden_diagnostic() {
    let mut seen = BTreeSet::new();
    for (_, text) in cases() {
        let d = mistakes(&text);
        seen.extend(d.items().iter().map(|i| i.code));
    }
    let missing: Vec<_> = Code::ALL.iter().filter(|c| !seen.contains(c)).collect();
    println!("without a golden diagnostic: {missing:?}");
    assert!(missing.len() <= 9, "{missing:?}");
}

#[test]
fn plain_diagnostics_have_code_location_and_hint() {
    let d = check("test.p4", &body("hdr.h.a = hdr.h.w;"), &NoIncludes, &Options::default());
    let p = &d.plain()[0];
    assert_eq!(
        (p.code, p.error, p.file.as_str(), p.source.as_str()),
        ("E0401", true, "test.p4", "hdr.h.a = hdr.h.w;")
    );
    assert_eq!((p.column, p.end_column), (11, 18));
    assert_eq!(p.hint.as_deref(), Some("if this is intended, cast it: (bit<8>)"));
}
