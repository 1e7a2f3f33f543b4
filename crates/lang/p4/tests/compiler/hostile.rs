//! Programs that are expensive to compile. The compiler checks or refuses each in well under a
//! second; without its limits, each would take minutes or exhaust the memory.

use p4shield_p4::{NoIncludes, Options, check};
use std::fmt::Write;

/// Returns the codes of a check; also checks that rendering terminates.
fn codes(text: &str) -> Vec<&'static str> {
    let found = check("hostile.p4", text, &NoIncludes, &Options::default());
    let _ = found.render(false);
    found.plain().iter().map(|p| p.code).collect()
}

fn repeated(n: usize, one: impl Fn(usize) -> String) -> String {
    (0..n).map(one).collect()
}

#[test]
fn macros_that_double_their_argument_are_refused() {
    let nested = format!("{}{}", "D(".repeat(60), ")".repeat(60));
    let text = format!("#define D(x) x x\nconst bit<8> A = {nested} 1;");
    assert!(codes(&text).contains(&"E0902"));
}

#[test]
fn deeply_nested_macro_arguments_are_refused() {
    let text = format!("#define M(x) x\nconst bit<8> A = {}1{};", "M(".repeat(10_000), ")".repeat(10_000));
    assert!(codes(&text).contains(&"E0901"));
}

#[test]
fn unclosed_macro_arguments_terminate() {
    assert!(codes(&format!("#define M(x) x\n{}", "M( ".repeat(20_000))).contains(&"E0902"));
}

#[test]
fn deeply_nested_conditionals_are_refused() {
    assert!(codes(&"#if 1\n".repeat(20_000)).contains(&"E0901"));
}

#[test]
fn structs_that_double_in_size_are_refused() {
    let doubled = repeated(60, |i| format!("struct s{} {{ s{i} a; s{i} b; }}\n", i + 1));
    let text = format!("struct s0 {{ bit<8> a; }}\n{doubled}s60 f(in s60 x) {{ s60 y = x; return y; }}");
    assert!(codes(&text).contains(&"E0902"));
}

#[test]
fn tuples_and_type_arguments_that_double_are_refused() {
    let tuples = repeated(60, |i| format!("typedef tuple<t{i}, t{i}> t{};\n", i + 1));
    assert!(codes(&format!("typedef bit<8> t0;\n{tuples}")).contains(&"E0902"));
    let args = repeated(60, |i| {
        format!("struct g{i}<T, U> {{ bit<8> x; }}\ntypedef g{i}<t{i}, t{i}> t{};\n", i + 1)
    });
    assert!(codes(&format!("typedef bit<8> t0;\n{args}")).contains(&"E0902"));
}

#[test]
fn thousands_of_similar_names_terminate() {
    let known = repeated(10_000, |i| format!("const bit<8> name_{i:08}_x = 1;\n"));
    let unknown = repeated(10_000, |i| format!("const bit<8> other_{i} = name_{i:08}_y;\n"));
    assert!(codes(&(known + &unknown)).contains(&"E0903"));
}

#[test]
fn lists_of_thousands_are_refused() {
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
fn twenty_thousand_states_terminate() {
    let states = repeated(20_000, |i| format!("state s{i} {{ transition s{}; }}\n", i + 1));
    let text = format!(
        "#include <core.p4>\nparser p() {{ state start {{ transition s0; }}\n\
            {states}state s20000 {{ transition accept; }} }}"
    );
    assert_eq!(codes(&text), [""; 0]);
    assert!(codes(&text.replace("transition s", "transition t")).contains(&"E0903"));
}

#[test]
fn many_applications_of_a_control_type_terminate() {
    let applied = "C.apply();\n".repeat(5_000);
    assert!(
        !codes(&format!("control C() {{ apply {{ }} }}\ncontrol D() {{ apply {{ {applied} }} }}"))
            .contains(&"E0999")
    );
}

#[test]
fn the_number_of_warnings_is_limited() {
    let vars = repeated(20_000, |i| format!("bit<8> v{i};\n"));
    let found = codes(&format!("control C() {{ apply {{\n{vars} }} }}"));
    assert_eq!(found, vec!["W0102"; 100]);
}

#[test]
fn excessively_large_numbers_are_refused() {
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
fn nesting_of_thousands_of_levels_is_refused() {
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

#[test]
fn nesting_over_64_levels_is_one_error_with_its_place() {
    let program = |before: &str, within: &str, after: &str| {
        format!(
            "control c(inout bit<8> x)\n{{ apply {{\n{before}{within}{after} }} }}\n\
             control d() {{ apply {{ }} }}"
        )
    };
    for (open, within, close) in [
        ("x = ", "1", ";"),
        ("if (x == 1) { } else ", "x = 1;", ""),
        ("if (x == 1) { x = 1; } else if (x == 2) { ", "x = 3;", " }"),
    ] {
        let n = 100;
        let text = if close == ";" {
            program(open, &format!("{}{within}{}", "(".repeat(n), ")".repeat(n)), close)
        } else {
            program(&open.repeat(n), within, &close.repeat(n))
        };
        let found = check("deep.p4", &text, &NoIncludes, &Options::default()).plain();
        let [one] = found.as_slice() else { panic!("{open}: {found:?}") };
        assert_eq!((one.code, one.line, &*one.message), ("E0901", 3, "nested more than 64 levels deep"));
        assert!(one.hint.as_ref().is_some_and(|h| h.contains("split")), "{one:?}");
        let shallow = text.replace(&"(".repeat(n), "((").replace(&")".repeat(n), "))");
        if close == ";" {
            assert_eq!(check("deep.p4", &shallow, &NoIncludes, &Options::default()).plain().len(), 0);
        }
    }
}

/// A uBPF program around the declarations and the body of a control.
fn ubpf(locals: &str, body: &str) -> String {
    let mut text = String::from(
        "#include <ubpf_model.p4>\nheader h_t { bit<8> a; }\nstruct hs { h_t h; }\nstruct m { }\n",
    );
    let _ = write!(
        text,
        "parser prs(packet_in p, out hs hdr, inout m meta, inout standard_metadata std) {{ state start {{ \
            p.extract(hdr.h); transition accept; }} }}\n\
         control pipe(inout hs hdr, inout m meta, inout standard_metadata std) {{\n{locals}\n\
         apply {{ {body} }} }}\n\
         control dprs(packet_out p, in hs hdr) {{ apply {{ p.emit(hdr); }} }}\n\
         ubpf(prs(), pipe(), dprs()) main;\n"
    );
    text
}

#[test]
fn a_long_chain_of_action_calls_is_refused() {
    let actions = repeated(5_000, |i| format!("action a{}() {{ a{i}(); }}\n", i + 1));
    let text = ubpf(&format!("action a0() {{ hdr.h.a = 1; }}\n{actions}"), "a5000();");
    assert!(codes(&text).iter().any(|c| c.starts_with("E09")), "{:?}", codes(&text));
}

#[test]
fn deeply_nested_loops_are_refused() {
    let open = repeated(12, |i| format!("for (bit<8> i{i} in 0 .. 200) {{ "));
    let text = ubpf("", &format!("{open} hdr.h.a = hdr.h.a + 1; {}", "}".repeat(12)));
    assert!(codes(&text).iter().any(|c| c.starts_with("E09")), "{:?}", codes(&text));
}
