//! Warnings about likely mistakes: reported for mistakes and only for those.

use crate::common::{example, program};
use p4shield_p4::diagnostics::PlainDiagnostic;
use p4shield_p4::{NoIncludes, Options, check, compile};

/// Returns codes and source lines of the warnings of a program without errors.
fn warnings(text: &str) -> Vec<(&'static str, String)> {
    let found = check("test.p4", text, &NoIncludes, &Options::default());
    assert!(!found.has_errors(), "{found}");
    for d in found.items() {
        assert!(d.hint.is_some(), "{} has no hint", d.message);
    }
    found.plain().into_iter().map(|p| (p.code, p.source.trim().to_owned())).collect()
}

/// Returns the warnings of a control's body, with each statement on its own line.
fn body(locals: &str, body: &str) -> Vec<(&'static str, String)> {
    let lines = |t: &str| t.replace("; ", ";\n").replace("{ ", "{\n");
    warnings(&program(
        "bit<8> a; bit<8> b;",
        "bit<8> x; bit<8> y;",
        &format!("\n{}\n", lines(locals)),
        &format!("\n{}\n", lines(body)),
    ))
}

#[track_caller]
fn warns(locals: &str, text: &str, want: &[(&str, &str)]) {
    let found = body(locals, text);
    let found: Vec<(&str, &str)> = found.iter().map(|(c, l)| (*c, l.as_str())).collect();
    assert_eq!(found, want, "{locals} {text}");
}

#[test]
fn a_variable_is_read_before_it_is_written() {
    warns("bit<8> v;", "hdr.h.a = v;", &[("W0103", "hdr.h.a = v;")]);
    warns("bit<8> v;", "if (hdr.h.a == 1) { v = 2; } hdr.h.a = v;", &[("W0103", "} hdr.h.a = v;")]);
    warns("bit<8> v;", "if (hdr.h.a == 1) { v = 2; } else { v = 3; } hdr.h.a = v;", &[]);
    warns("bit<8> v;", "if (hdr.h.a == 1) { return; } else { v = 3; } hdr.h.a = v;", &[]);
    warns("meta_t m;", "m.x = 1; hdr.h.a = m.y;", &[("W0103", "hdr.h.a = m.y;")]);
    warns("meta_t m;", "m.x = 1; meta = m;", &[]);
    warns("meta_t m;", "meta = m;", &[("W0103", "meta = m;")]);
    warns("bit<8> v;", "v[3:0] = 1; hdr.h.a = v;", &[]);
}

#[test]
fn loops_and_switches_are_followed() {
    warns(
        "bit<8> s;",
        "for (bit<8> i in 1 .. 3) { s = s + i; } hdr.h.a = s;",
        &[("W0103", "s = s + i;"), ("W0103", "} hdr.h.a = s;")],
    );
    warns("bit<8> s = 0;", "for (bit<8> i in 1 .. 3) { s = s + i; } hdr.h.a = s;", &[]);
    warns("bit<8> v;", "switch (hdr.h.a) { 1: { v = 1; } default: { v = 2; } } hdr.h.a = v;", &[]);
    warns(
        "bit<8> v;",
        "switch (hdr.h.a) { 1: { v = 1; } 2: { v = 2; } } hdr.h.a = v;",
        &[("W0103", "} } hdr.h.a = v;")],
    );
}

const TABLE: &str = "bit<8> v; action set(bit<8> x) { v = x; } action none() { } \
    table t { key = { hdr.h.a : exact; } actions = { set; none; } default_action = none; }";

#[test]
fn actions_of_a_table_are_followed() {
    warns(TABLE, "t.apply(); hdr.h.a = v;", &[("W0103", "hdr.h.a = v;")]);
    warns(TABLE, "switch (t.apply().action_run) { set: { hdr.h.a = v; } }", &[]);
    let hit =
        TABLE.replace("none; } default_action = none", "@defaultonly none; } const default_action = none");
    warns(&hit, "if (t.apply().hit) { hdr.h.a = v; }", &[]);
    warns(&hit, "if (t.apply().miss) { hdr.h.a = v; }", &[("W0103", "hdr.h.a = v;")]);
}

#[test]
fn out_parameters_are_written() {
    warns("action f(out bit<8> x) { } ", "f(hdr.h.a);", &[("W0103", "action f(out bit<8> x) {")]);
    warns("action f(out bit<8> x) { x = 1; } ", "f(hdr.h.a);", &[]);
    warns("action f(inout bit<8> x) { x = x + 1; } bit<8> v;", "f(v); hdr.h.a = v;", &[("W0103", "f(v);")]);
}

#[test]
fn fields_of_invalid_headers() {
    warns("", "if (!hdr.h.isValid()) { meta.x = hdr.h.a; }", &[("W0110", "meta.x = hdr.h.a;")]);
    warns("", "if (hdr.h.isValid()) { meta.x = hdr.h.a; }", &[]);
    warns("", "if (!hdr.h.isValid()) { return; } meta.x = hdr.h.a;", &[]);
    warns("", "hdr.h.setInvalid(); hdr.h.a = 1;", &[("W0110", "hdr.h.a = 1;")]);
    warns("", "hdr.h.setInvalid(); hdr.h.setValid(); hdr.h.a = 1; hdr.h.b = 1;", &[]);
    warns("h_t o;", "o.setValid(); o.a = 1; hdr.h.a = o.a + o.b;", &[("W0103", "hdr.h.a = o.a + o.b;")]);
    warns("h_t o;", "o = hdr.h; hdr.h.a = o.b;", &[]);
    let early = program("bit<8> a;", "", "", "")
        .replace("state start { p.extract(hdr.h);", "state start {\nhdr.h.a = 1;\np.extract(hdr.h);");
    assert_eq!(warnings(&early), [("W0110", "hdr.h.a = 1;".to_owned())]);
}

#[test]
fn states_are_followed_through_their_loops() {
    let text = |first: &str| {
        program("bit<8> a;", "", "", "").replace(
            "state start { p.extract(hdr.h); transition accept; }",
            &format!(
                "bit<8> n;\nstate start {{ {first} transition next; }}\nstate next {{ p.extract(hdr.h);\n\
                 n = n - 1;\ntransition select(n) {{ 0: accept; default: next; }} }}"
            ),
        )
    };
    assert_eq!(warnings(&text("")), [("W0103", "n = n - 1;".to_owned())]);
    assert!(warnings(&text("n = 3;")).is_empty());
}

#[test]
fn unused_declarations_are_reported() {
    warns("bit<8> v = 1;", "", &[("W0102", "bit<8> v = 1;")]);
    warns("bit<8> v;", "v = hdr.h.a;", &[("W0102", "bit<8> v;")]);
    warns("action a() { } ", "", &[("W0102", "action a() {")]);
    warns("table t { actions = { NoAction; } } ", "", &[("W0102", "table t {")]);
    warns("Counter<bit<32>>(4) c;", "", &[("W0102", "Counter<bit<32>>(4) c;")]);
    warns("", "meta.x = meta.x;", &[("W0102", "meta.x = meta.x;")]);
    let unreached = program("bit<8> a;", "", "", "")
        .replace("transition accept; }", "transition accept; }\nstate lost { transition accept; }");
    assert_eq!(warnings(&unreached), [("W0105", "state lost { transition accept; } }".to_owned())]);
}

#[test]
fn unused_results_are_reported() {
    let top =
        "bit<8> twice(in bit<8> x) { return x + x; }\nbit<8> next(inout bit<8> x) { x = x + 1; return x; }\n";
    let text = |body: &str| {
        let p = program("bit<8> a;", "", "", &format!("\n{body}\n"));
        p.replacen("control pipe", &format!("{top}control pipe"), 1)
    };
    assert_eq!(warnings(&text("twice(hdr.h.a);")), [("W0102", "twice(hdr.h.a);".to_owned())]);
    assert!(warnings(&text("next(hdr.h.a);")).is_empty());
    assert_eq!(warnings(&text("hdr.h.isValid();")), [("W0102", "hdr.h.isValid();".to_owned())]);
}

#[test]
fn names_that_shadow_others_are_reported() {
    let inner = "if (hdr.h.a == 1) { bit<8> v = 2; hdr.h.a = v; } hdr.h.b = v;";
    warns("bit<8> v = 1;", inner, &[("W0104", "bit<8> v = 2;")]);
    warns(
        "bit<8> v = 1; action a(bit<8> v) { hdr.h.a = v; } ",
        "a(v);",
        &[("W0104", "action a(bit<8> v) {")],
    );
    warns(
        "bit<8> i = 1;",
        "for (bit<8> i in 1 .. 3) { hdr.h.a = i; } hdr.h.b = i;",
        &[("W0104", "for (bit<8> i in 1 .. 3) {")],
    );
}

#[test]
fn the_examples_give_no_warning() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples");
    for dir in ["programs", "externs"] {
        for entry in std::fs::read_dir(format!("{root}/{dir}")).expect("the examples") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|e| e == "p4") {
                let name = path.file_name().expect("a name").to_string_lossy().into_owned();
                let found = warnings(&example(&format!("{dir}/{name}")));
                assert_eq!(found, [], "{name}");
            }
        }
    }
}

#[test]
fn exponentially_nested_calls_are_not_followed() {
    // Each action calls the previous one twice: following them all would take 2^40 calls.
    let mut locals = "bit<8> v; action a0() { v = v + 1; }\n".to_owned();
    for i in 1..40 {
        locals += &format!("action a{i}() {{ a{0}(); a{0}(); }}\n", i - 1);
    }
    let text = program("bit<8> a;", "", &locals, "a39();");
    // The compiler must refuse the program as too large, and soon.
    let found = check("test.p4", &text, &NoIncludes, &Options::default());
    assert!(found.plain().iter().any(|p| p.code == "E0902"), "{found}");
}

/// Returns the warnings after code generation of a program with this many statements in an action.
fn long(statements: usize) -> Vec<PlainDiagnostic> {
    let action =
        format!("action small() {{ hdr.h.b = 1; }}\naction large() {{\n{}}}", SQUARE.repeat(statements));
    let text = program("bit<16> a; bit<8> b;", "bit<8> x;", &action, "small(); large();");
    compile("test.p4", &text, &NoIncludes, &Options::default()).expect("compiles").warnings.plain()
}

const SQUARE: &str = "hdr.h.a = hdr.h.a * hdr.h.a + 1;\n";

#[test]
fn programs_too_long_to_load_are_warned_of() {
    assert!(long(100).is_empty());
    let [found] = long(4000).try_into().expect("one warning");
    assert_eq!((found.code, found.error, found.source.trim()), ("W0111", false, "action large() {"));
    assert!(found.message.contains("at most 8192"), "{}", found.message);
    assert!(found.hint.is_some() && found.related[0].message.contains("come from here"), "{found:?}");
}

/// Returns the warnings of a file with a parser `P` and what precedes it.
fn parser(before: &str, states: &str) -> Vec<(&'static str, String)> {
    warnings(&format!(
        "#include <core.p4>\nheader h_t {{ bit<8> a; }}\n{before}\nparser P(packet_in p, out h_t h)\n\
         {{ {states} }}\n"
    ))
}

#[test]
fn parsers_that_reject_every_packet_are_warned_of() {
    let warned = vec![("W0112", "parser P(packet_in p, out h_t h)".to_owned())];
    let sub = "parser S(packet_in p, out h_t h) { state start { p.extract(h); transition accept; } }";
    for (before, states) in [
        ("", "state start { p.extract(h); transition reject; }"),
        ("", "state start { p.extract(h); }"),
        ("", "state start { p.extract(h); verify(false, error.NoMatch); transition accept; }"),
        ("", "state start { p.extract(h); transition select(h.a) { 1: start; default: reject; } }"),
    ] {
        assert_eq!(parser(before, states), warned, "{states}");
    }
    assert_eq!(parser(sub, "S() s; state start { s.apply(p, h); transition accept; }"), []);
    let never = sub.replace("accept", "reject");
    let codes: Vec<_> = parser(&never, "S() s; state start { s.apply(p, h); transition accept; }");
    assert_eq!(codes.iter().map(|(c, _)| *c).collect::<Vec<_>>(), ["W0112", "W0112"]);
    let some = "state start { p.extract(h); transition select(h.a) { 1: accept; default: reject; } }";
    assert_eq!(parser("", some), []);
}
