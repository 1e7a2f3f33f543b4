//! Names in the control plane: the runtime's and P4Info's are the same, with the author's `@name`s.

use p4shield_p4::p4info::p4info;
use p4shield_p4::{Facts, NoIncludes, Options, check, compile};

/// Every kind of object, each with a `@name`.
const NAMED: &str = r#"
#include <v1model.p4>
header h_t { @name("first") bit<16> t; bit<8> n; }
struct headers_t { @name("outer") h_t h; @name(".alone") h_t k; }
struct meta_t { }
parser Inner(packet_in p, out h_t h) {
    @name("types") value_set<bit<16>>(4) vs;
    state start { p.extract(h); transition select(h.t) { vs: accept; default: reject; } }
}
parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    @name("within") Inner() inner;
    state start { inner.apply(p, hdr.h); transition accept; }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control C(inout headers_t hdr) {
    @name("seen") counter(4, CounterType.packets) c_0;
    @name("hits") direct_counter(CounterType.packets) d_0;
    @name("set") action a(@name("value") bit<8> v_0) { hdr.h.n = v_0; c_0.count(1); }
    @name(".all") action b() { hdr.h.n = 0; }
    @name("lookup") table t_0 {
        key = { hdr.h.t : exact; hdr.h.n : ternary @name("number"); hdr.h.isValid() : exact;
                hdr.k.n : exact; hdr.h.t[7:4] : exact; }
        actions = { a; b; }
        counters = d_0;
    }
    apply { t_0.apply(); }
}
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    @name("c") C() c_1;
    @name(".top") C() c_2;
    @name("kept") register<bit<8>>(4) r_0;
    @name(".whole.table") table u_0 { key = { hdr.h.n : exact; } actions = { NoAction; } }
    apply { c_1.apply(hdr); c_2.apply(hdr); u_0.apply(); r_0.write(0, hdr.h.n); }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply { } }
control U(inout headers_t hdr, inout meta_t meta) { apply { } }
control D(packet_out p, in headers_t hdr) { apply { p.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
"#;

fn facts() -> Facts {
    compile("n.p4", NAMED, &NoIncludes, &Options::default()).expect("compiles").facts
}

#[test]
fn the_runtime_uses_the_names_that_the_author_gave() {
    let f = facts();
    let [t1, t2, _] = f.tables.as_slice() else { panic!("{:?}", f.tables) };
    assert_eq!([&t1.name, &t2.name], ["I.c.lookup", "top.lookup"]);
    assert!(f.tables.iter().any(|t| t.name == "whole.table"));
    let keys: Vec<&str> = t1.keys.iter().map(|k| &*k.name).collect();
    assert_eq!(keys, ["hdr.outer.first", "number", "hdr.outer.$valid$", "alone.n", "hdr.outer.first[7:4]"]);
    let actions: Vec<&str> = t1.actions.iter().map(|a| &*a.name).collect();
    assert_eq!(actions[..2], ["I.c.set", "all"]);
    assert_eq!(t1.actions[0].params[0].name, "value");
    assert_eq!(t1.counter.as_ref().map(|c| &*c.name), Some("I.c.hits"));
    let arrays: Vec<&str> = f.arrays.iter().map(|a| &*a.name).collect();
    assert_eq!(arrays, ["I.c.seen", "top.seen", "I.kept"]);
    assert_eq!(f.value_sets.iter().map(|s| &*s.name).collect::<Vec<_>>(), ["P.within.types"]);
}

#[test]
fn the_runtime_and_p4info_agree_on_names() {
    let f = facts();
    let info = p4info("n.p4", NAMED, &NoIncludes, &Options::default()).expect("an info").to_text();
    let tables = f.tables.iter();
    let parts = tables.clone().flat_map(|t| t.keys.iter().map(|k| &k.name));
    let parts = parts.chain(tables.clone().flat_map(|t| t.actions.iter().map(|a| &a.name)));
    let objects = tables.map(|t| &t.name).chain(f.arrays.iter().map(|a| &a.name));
    for name in objects.chain(parts).chain(f.value_sets.iter().map(|s| &s.name)) {
        assert!(info.contains(&format!("name: \"{name}\"")), "{name} is not in\n{info}");
    }
}

/// Returns line and label line of each error with the code of names that clash.
fn clashes(text: &str) -> Vec<(u32, u32, String)> {
    let found = check("n.p4", text, &NoIncludes, &Options::default());
    assert!(found.plain().iter().all(|p| !p.error || p.code == "E0306" && p.hint.is_some()), "{found}");
    let errors = found.plain().into_iter().filter(|p| p.error);
    errors.map(|p| (p.line, p.related[0].line, p.message)).collect()
}

/// A program with these declarations in a control, from line 3, and this body.
fn with(locals: &str, body: &str) -> String {
    format!(
        "#include <v1model.p4>\n\
         header E {{ bit<8> a; bit<8> b; }} struct H {{ E e; }} struct M {{ }} \
         parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {{ \
         state start {{ p.extract(h.e); transition accept; }} }} \
         control V(inout H h, inout M m) {{ apply {{ }} }} \
         control X(inout H h, inout M m, inout standard_metadata_t s) {{ apply {{ }} }} \
         control D(packet_out p, in H h) {{ apply {{ p.emit(h.e); }} }}\n\
         control I(inout H h, inout M m, inout standard_metadata_t s) {{ {locals}\n\
         apply {{ {body} }} }}\n\
         V1Switch(P(), V(), I(), X(), V(), D()) main;\n"
    )
}

#[track_caller]
fn clash(text: &str, at: (u32, u32), message: &str) {
    assert_eq!(clashes(text), [(at.0, at.1, format!("two {message}"))], "{text}");
}

#[test]
fn two_objects_of_a_kind_with_one_name_are_refused() {
    let table = "table t { key = { h.e.a : exact; } actions = { one; two; } }";
    let actions = |a: &str, b: &str| {
        format!("{a} action one() {{ h.e.b = 1; }}\n{b} action two() {{ h.e.b = 2; }}\n{table}")
    };
    let set = "@name(\"set\")";
    clash(&with(&actions(set, set), "t.apply();"), (4, 3), "actions have the control-plane name `I.set`");
    clash(
        &with(&actions("", "@name(\"one\")"), "t.apply();"),
        (4, 3),
        "actions have the control-plane name `I.one`",
    );
    // Called only: P4Info describes them, too.
    clash(&with(&actions(set, set), "one(); two();"), (4, 3), "actions have the control-plane name `I.set`");
    assert!(clashes(&with(&actions(set, "@name(\".set\")"), "t.apply();")).is_empty());
    let tables = "table t { actions = { NoAction; } }\n@name(\"t\") table u { actions = { NoAction; } }";
    clash(&with(tables, "t.apply(); u.apply();"), (4, 3), "tables have the control-plane name `I.t`");
    let arrays = "register<bit<8>>(2) r;\n@name(\"r\") register<bit<8>>(2) s_0; @name(\"r\") counter(2, \
                  CounterType.packets) c;";
    let body = "r.write(0, 1); s_0.write(0, 1); c.count(1);";
    clash(&with(arrays, body), (4, 3), "registers have the control-plane name `I.r`");
    let counted = "direct_counter(CounterType.bytes) d;\n@name(\"d\") direct_counter(CounterType.bytes) f;\n\
        table t { key = { h.e.a : exact; } actions = { NoAction; } counters = d; }\n\
        table u { key = { h.e.a : exact; } actions = { NoAction; } counters = f; }";
    clash(
        &with(counted, "t.apply(); u.apply();"),
        (4, 3),
        "direct counters have the control-plane name `I.d`",
    );
}

#[test]
fn a_table_of_two_instances_of_one_name_is_refused() {
    let twice = NAMED.replace("@name(\".top\")", "@name(\"c\")");
    let found = clashes(&twice);
    let names: Vec<&str> = found.iter().filter_map(|(_, _, m)| m.split('`').nth(1)).collect();
    assert_eq!(names, ["I.c.lookup", "I.c.hits", "I.c.seen"], "{found:?}");
    assert!(found.iter().all(|(at, other, _)| at - other == 1), "the places of the instances: {found:?}");
}

#[test]
fn an_object_that_is_used_twice_is_one() {
    let locals = "direct_counter(CounterType.bytes) d; action a() { h.e.b = 1; } register<bit<8>>(2) r;\n\
        table t { key = { h.e.a : exact; } actions = { a; } counters = d; }\n\
        table u { key = { h.e.a : exact; } actions = { a; } }";
    let body =
        "if (h.e.b == 0) { t.apply(); } else { t.apply(); } u.apply(); a(); r.write(0, 1); r.write(1, 1);";
    assert!(clashes(&with(locals, body)).is_empty());
}

/// P4_16 15.1: an instance of a direct invocation has the name of its type, in each scope anew.
#[test]
fn direct_invocations_have_the_name_of_their_type() {
    let leaf = "control Leaf(inout headers_t hdr) { table t { key = { hdr.h.n : exact; } \
                actions = { NoAction; } } apply { t.apply(); } }\n\
                control One(inout headers_t hdr) { apply { Leaf.apply(hdr); } }\n\
                control Two(inout headers_t hdr) { apply { Leaf.apply(hdr); } }\ncontrol I(";
    let text = NAMED
        .replace("control I(", leaf)
        .replace("apply { c_1.apply(hdr);", "apply { One.apply(hdr); Two.apply(hdr); c_1.apply(hdr);");
    let facts = compile("n.p4", &text, &NoIncludes, &Options::default()).expect("compiles").facts;
    let names: Vec<&str> = facts.tables.iter().map(|t| &*t.name).filter(|n| n.contains("Leaf")).collect();
    assert_eq!(names, ["I.One.Leaf.t", "I.Two.Leaf.t"]);
}
