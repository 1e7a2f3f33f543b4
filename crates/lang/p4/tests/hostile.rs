//! Programs that were made to keep the compiler busy. Each is refused, or checked, in well under a second; before its
//! limit was there each took minutes or the whole memory, so that this test would not end.

use p4shield_p4::{NoIncludes, Options, check};
use std::fmt::Write;

/// The codes that checking gives; rendering has to end as well.
fn codes(text: &str) -> Vec<&'static str> {
    let found = check("hostile.p4", text, &NoIncludes, &Options::default());
    let _ = found.render(false);
    found.plain().iter().map(|p| p.code).collect()
}

fn repeated(n: usize, one: impl Fn(usize) -> String) -> String {
    (0..n).map(one).collect()
}

#[test]
fn macros_that_double_their_argument() {
    let nested = format!("{}{}", "D(".repeat(60), ")".repeat(60));
    let text = format!("#define D(x) x x\nconst bit<8> A = {nested} 1;");
    assert!(codes(&text).contains(&"E0902"));
}

#[test]
fn macros_within_arguments_without_end() {
    let text = format!("#define M(x) x\nconst bit<8> A = {}1{};", "M(".repeat(10_000), ")".repeat(10_000));
    assert!(codes(&text).contains(&"E0901"));
}

#[test]
fn macros_whose_arguments_never_close() {
    assert!(codes(&format!("#define M(x) x\n{}", "M( ".repeat(20_000))).contains(&"E0902"));
}

#[test]
fn conditionals_within_conditionals() {
    assert!(codes(&"#if 1\n".repeat(20_000)).contains(&"E0901"));
}

#[test]
fn structs_that_double_the_one_before() {
    let doubled = repeated(60, |i| format!("struct s{} {{ s{i} a; s{i} b; }}\n", i + 1));
    let text = format!("struct s0 {{ bit<8> a; }}\n{doubled}s60 f(in s60 x) {{ s60 y = x; return y; }}");
    assert!(codes(&text).contains(&"E0902"));
}

#[test]
fn tuples_and_type_arguments_that_double_the_one_before() {
    let tuples = repeated(60, |i| format!("typedef tuple<t{i}, t{i}> t{};\n", i + 1));
    assert!(codes(&format!("typedef bit<8> t0;\n{tuples}")).contains(&"E0902"));
    let args = repeated(60, |i| {
        format!("struct g{i}<T, U> {{ bit<8> x; }}\ntypedef g{i}<t{i}, t{i}> t{};\n", i + 1)
    });
    assert!(codes(&format!("typedef bit<8> t0;\n{args}")).contains(&"E0902"));
}

#[test]
fn names_that_resemble_thousands_of_others() {
    let known = repeated(10_000, |i| format!("const bit<8> name_{i:08}_x = 1;\n"));
    let unknown = repeated(10_000, |i| format!("const bit<8> other_{i} = name_{i:08}_y;\n"));
    assert!(codes(&(known + &unknown)).contains(&"E0903"));
}

#[test]
fn lists_of_thousands() {
    for text in [
        format!("error {{ {} }}", repeated(20_000, |i| format!("e{i}, "))),
        format!("enum e {{ {} }}", repeated(20_000, |i| format!("e{i}, "))),
        format!("struct s {{ {} }}", repeated(20_000, |i| format!("bit<8> f{i};\n"))),
        format!("extern void f({} in bit<8> x);", repeated(20_000, |i| format!("in bit<8> a{i}, "))),
        format!("extern e {{ {} }}", repeated(20_000, |i| format!("void m{i}();\n"))),
        repeated(20_000, |i| format!("error {{ e{i} }}\n")),
    ] {
        assert!(codes(&text).contains(&"E0902"), "{}", &text[..40]);
    }
}

#[test]
fn as_many_states_as_fit() {
    let states = repeated(20_000, |i| format!("state s{i} {{ transition s{}; }}\n", i + 1));
    let text = format!(
        "#include <core.p4>\nparser p() {{ state start {{ transition s0; }}\n{states}state s20000 {{ transition accept; }} }}"
    );
    assert_eq!(codes(&text), [""; 0]);
    assert!(codes(&text.replace("transition s", "transition t")).contains(&"E0903"));
}

#[test]
fn controls_applied_by_type_many_times() {
    let applied = "C.apply();\n".repeat(5_000);
    assert!(
        !codes(&format!("control C() {{ apply {{ }} }}\ncontrol D() {{ apply {{ {applied} }} }}"))
            .contains(&"E0999")
    );
}

#[test]
fn warnings_without_end() {
    let vars = repeated(20_000, |i| format!("bit<8> v{i};\n"));
    let found = codes(&format!("control C() {{ apply {{\n{vars} }} }}"));
    assert_eq!(found, vec!["W0102"; 100]);
}

#[test]
fn numbers_of_any_size() {
    for text in [
        format!("const int X = {};", "9".repeat(200_000)),
        format!("const int X = {};", vec!["(1 << 4000)"; 60].join(" * ")),
        "const int X = 1 << 99999999999;".to_owned(),
        "const bit<8> X = (bit<8>) 1 << 99999999999;".to_owned(),
        "header h { bit<99999999999> x; }".to_owned(),
        "header h { bit<8> x; } struct s { h[4000000000] x; }".to_owned(),
    ] {
        assert!(
            codes(&text).iter().any(|c| c.starts_with('E')) || text.contains("bit<8>) 1"),
            "{}",
            &text[..30]
        );
    }
}

#[test]
fn everything_nested_thousands_deep() {
    let n = 5_000;
    for (open, close) in [
        ("(", ")"),
        ("{", "}"),
        ("~", ""),
        ("-", ""),
        ("(bit<8>)", ""),
        ("f(", ")"),
        ("x[", "]"),
        ("x ? x : ", ""),
        ("1 + ", ""),
        ("1 ++ (", ")"),
    ] {
        let text = format!("const bit<8> X = {}1{};", open.repeat(n), close.repeat(n));
        assert!(codes(&text).iter().any(|c| c.starts_with('E')), "{open}");
    }
    for (open, close) in [("tuple<", ">"), ("list<", ">"), ("", "[1]")] {
        let text = format!("typedef {}bit<8>{} t;", open.repeat(n), close.repeat(n));
        assert!(codes(&text).contains(&"E0901"), "{open}{close}");
    }
    for (open, close) in [("{", "}"), ("if (true) ", ""), ("if (true) { } else ", ""), ("for (;true;) ", "")]
    {
        let text = format!("control c() {{ apply {{ {}{{ }}{} }} }}", open.repeat(n), close.repeat(n));
        assert!(codes(&text).iter().any(|c| c.starts_with('E')), "{open}");
    }
}

/// A program for uBPF around a control's declarations and body.
fn ubpf(locals: &str, body: &str) -> String {
    let mut text = String::from(
        "#include <ubpf_model.p4>\nheader h_t { bit<8> a; }\nstruct hs { h_t h; }\nstruct m { }\n",
    );
    let _ = write!(
        text,
        "parser prs(packet_in p, out hs hdr, inout m meta, inout standard_metadata std) {{ state start {{ p.extract(hdr.h); transition accept; }} }}\n\
         control pipe(inout hs hdr, inout m meta, inout standard_metadata std) {{\n{locals}\napply {{ {body} }} }}\n\
         control dprs(packet_out p, in hs hdr) {{ apply {{ p.emit(hdr); }} }}\nubpf(prs(), pipe(), dprs()) main;\n"
    );
    text
}

#[test]
fn actions_that_call_each_other_in_a_long_row() {
    let actions = repeated(5_000, |i| format!("action a{}() {{ a{i}(); }}\n", i + 1));
    let text = ubpf(&format!("action a0() {{ hdr.h.a = 1; }}\n{actions}"), "a5000();");
    assert!(codes(&text).iter().any(|c| c.starts_with("E09")), "{:?}", codes(&text));
}

#[test]
fn loops_within_loops() {
    let open = repeated(12, |i| format!("for (bit<8> i{i} in 0 .. 200) {{ "));
    let text = ubpf("", &format!("{open} hdr.h.a = hdr.h.a + 1; {}", "}".repeat(12)));
    assert!(codes(&text).iter().any(|c| c.starts_with("E09")), "{:?}", codes(&text));
}
