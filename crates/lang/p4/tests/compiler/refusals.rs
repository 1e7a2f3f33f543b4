//! Programs that the language forbids, and the locations of the errors.

use p4shield_p4::{NoIncludes, Options, check};

/// Returns the lines of the errors with this code.
fn lines(text: &str, code: &str) -> Vec<u32> {
    let found = check("test.p4", text, &NoIncludes, &Options::default());
    found.plain().iter().filter(|p| p.code == code).map(|p| p.line).collect()
}

#[track_caller]
fn refused(text: &str, code: &str, at: &[u32]) {
    assert_eq!(lines(text, code), at, "{text}");
}

#[test]
fn structured_annotations_hold_constants_of_one_form() {
    refused("@a[x = 1, 2] const bit<8> A = 1;", "E0201", &[1]);
    refused("@a[1, x = 2] const bit<8> A = 1;", "E0201", &[1]);
    refused("@a[\n{1, 2}] const bit<8> A = 1;", "E0607", &[2]);
    refused("@a[x = 1]\n@a[2] const bit<8> A = 1;", "E0607", &[2]);
    refused("@a(1)\n@a[] const bit<8> A = 1;", "E0607", &[2]);
    refused("extern e { e(); }\ne() x;\ne() y;\n@a[x == y] const bit<8> A = 1;", "E0303", &[4, 4]);
    refused("@a[b < 2] const bit<8> A = 1;", "E0301", &[1]);
    refused(
        "const bit<8> B = 1;\n@a[k = B + 2, t = \"x\" ++ \"y\", u = B < 3] const bit<8> A = 1;",
        "E0607",
        &[],
    );
}

#[test]
fn prescribed_forms_of_annotations_are_checked() {
    refused("@pkginfo\nconst bit<8> A = 1;", "E0607", &[1]);
    refused("#include <core.p4>\nstruct s {\n@match(1 + 1) bit<8> f; }", "E0607", &[3]);
    refused("#include <core.p4>\nstruct s {\n@match(ternary) bit<8> f; }", "E0607", &[]);
    refused("@p4runtime_translation(\"x\", bool)\ntypedef bit<8> t;", "E0607", &[1]);
    refused("@p4runtime_translation(\"x\", bit<32>)\ntypedef bit<8> t;", "E0607", &[]);
    refused("@free(it's - any, $text) const bit<8> A = 1;", "E0101", &[]);
}

#[test]
fn initializers_are_checked_even_where_not_allowed() {
    refused(
        "extern e { e(); }\nparser P() {\n e() x = {\n bit<8> f<T,\n T>(in T a) { return 1; } };\n state \
            start { } }",
        "E0302",
        &[5],
    );
}

fn table(entries: &str) -> String {
    format!(
        "#include <core.p4>\ncontrol c(inout bit<8> k) {{ table t {{\nkey = {{ k : ternary; }}\n\
            actions = {{ NoAction; }}\n{entries} }}\napply {{ t.apply(); }} }}"
    )
}

#[test]
fn priorities_of_entries_are_checked() {
    // If one entry has a priority, the first must have one.
    refused(&table("entries = {\n1 : NoAction;\npriority = 3: 2 : NoAction; }"), "E0603", &[6]);
    // The third would have the priority -8; the error is at the table.
    let steps = "priority_delta = 10; entries = { priority = 12: 1 : NoAction; 2 : NoAction; 3 : NoAction; }";
    refused(&table(steps), "E0603", &[2]);
    refused(&table(&steps.replace("12", "22")), "E0603", &[]);
    refused(
        &table(&steps.replace("priority_delta", "largest_priority_wins = false; priority_delta")),
        "E0603",
        &[],
    );
    let exact = table("entries = { priority = 1: 1 : NoAction; }").replace("ternary", "exact");
    refused(&exact, "E0603", &[3]);
}

#[test]
fn types_that_cannot_be_inferred_are_refused() {
    refused(
        "extern E<T> { E(); void f(in T x); }\ncontrol c() { E<_>() e; apply {\ne.f(0); } }",
        "E0405",
        &[3],
    );
    refused("extern void f<T>(in T x);\ncontrol c() { apply {\nf({ a = 8w1 }); } }", "E0405", &[3]);
    refused(
        "control n<H>(inout H h) { apply { } }\ncontrol C<H>(inout H h);\npackage P<H>(C<H> c = n<H>());\n\
            P() main;",
        "E0405",
        &[4],
    );
}

#[test]
fn objects_that_could_not_be_applied_are_refused() {
    refused("parser P();\ncontrol c()(\nP p) { apply { } }", "E0407", &[3]);
    refused("control C();\nparser p()(\nC c) { state start { } }", "E0407", &[3]);
}

#[test]
fn a_missing_semicolon_is_shown_with_the_next_line() {
    let text = "bit<8> f() {\nreturn 1\n}";
    let found = check("test.p4", text, &NoIncludes, &Options::default()).plain();
    let missing = found.iter().find(|p| p.message.contains("`;`")).expect("an error");
    assert_eq!((missing.line, missing.related.first().map(|r| r.line)), (2, Some(3)));
}

#[test]
fn widths_may_contain_comparisons() {
    refused(
        "const bit<8> a = 2;\nconst bit<a < 3 ? 5 : 4> b = 6;\nconst bit<(a > 3 ? 5 : 4)> c = 6;",
        "E0201",
        &[],
    );
}

#[test]
fn the_field_order_of_action_arguments_does_not_matter() {
    let text = |second: &str| {
        format!(
            "#include <core.p4>\nstruct s {{ bit<8> x; bit<8> y; }}\nextern bit<8> e();\n\
                control c(inout bit<8> k) {{\n\
             action a(in s v) {{ k = v.x; }}\ntable t {{ actions = {{ a({{ x = e(), y = k }}); }}\n\
             default_action = a({second}); }}\napply {{ t.apply(); }} }}"
        )
    };
    refused(&text("{ y = k, x = e() }"), "E0603", &[]);
    refused(&text("{ y = e(), x = k }"), "E0603", &[7]);
}

/// A control with a constructor parameter `n` of -3, which the pipeline applies.
fn with_number(body: &str) -> String {
    let inner = format!("control C(inout bit<8> v)(int n) {{ apply {{ {body} }} }}\ncontrol pipe");
    crate::common::program("bit<8> a;", "", "C(-3) c;", "c.apply(hdr.h.a);").replace("control pipe", &inner)
}

#[test]
fn numbers_without_a_width_are_known_at_compile_time() {
    let one = |body: &str, code: &str| assert_eq!(lines(&with_number(body), code).len(), 1, "{body}");
    for known in ["v = (bit<8>)((int)v + 1 - n);", "v = (bit<8>)(-(int)v);", "v = v << -n;", "v[3:0] = n;"] {
        let found = check("t.p4", &with_number(known), &NoIncludes, &Options::default()).plain();
        assert!(found.iter().all(|p| !p.error), "{known}: {found:?}");
    }
    one("v = v << n;", "E0503");
    // The lowest bits of a quotient depend on the highest of the operands.
    one("v = (bit<8>)((int)v / 2);", "E0501");
    one("tuple<int, bool> t = { 1, true };", "E0407");
}

#[test]
fn the_last_element_is_read_only() {
    use crate::common::program;
    let stack = |body: &str| {
        program("bit<8> a;", "", "", "")
            .replace("{ h_t h; }", "{ h_t h; h_t[2] s; }")
            .replace("p.extract(hdr.h);", &format!("p.extract(hdr.h); p.extract(hdr.s.next); {body} "))
    };
    assert_eq!(lines(&stack("hdr.s.last.a = 3;"), "E0406").len(), 1);
    assert_eq!(lines(&stack("hdr.h.a = hdr.s.last.a;"), "E0406"), Vec::<u32>::new());
}

#[test]
fn a_call_is_no_key_set() {
    use crate::common::program;
    let select = |subject: &str, key: &str| {
        let functions = "bit<8> one(in bit<8> x) { return x; }\n\
                         tuple<bit<8>, bit<8>> two(in bit<8> x) { return { x, x }; }\nparser prs";
        let transition = format!("transition select({subject}) {{ {key}: accept; default: reject; }}");
        program("bit<8> a;", "", "", "")
            .replace("parser prs", functions)
            .replace("transition accept;", &transition)
    };
    assert_eq!(lines(&select("hdr.h.a", "one(hdr.h.a)"), "E0501").len(), 1);
    assert_eq!(lines(&select("{ hdr.h.a, hdr.h.a }", "two(hdr.h.a)"), "E0501").len(), 1);
}
