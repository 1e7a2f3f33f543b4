//! Names in the control plane: the runtime's and P4Info's are the same, with the author's `@name`s.

use p4shield_p4::p4info::p4info;
use p4shield_p4::{Facts, NoIncludes, Options, compile};

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
    @name(".whole.table") table u_0 { key = { hdr.h.n : exact; } actions = { a; } }
    apply { t_0.apply(); u_0.apply(); }
}
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    @name("c") C() c_1;
    @name(".top") C() c_2;
    @name("kept") register<bit<8>>(4) r_0;
    apply { c_1.apply(hdr); c_2.apply(hdr); r_0.write(0, hdr.h.n); }
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
    let [t1, _, t2, _] = f.tables.as_slice() else { panic!("{:?}", f.tables) };
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

#[test]
fn instances_of_one_name_keep_their_own_state() {
    let twice = NAMED.replace("@name(\".top\")", "@name(\"c\")");
    let f = compile("n.p4", &twice, &NoIncludes, &Options::default()).expect("compiles").facts;
    assert_eq!((f.tables.len(), f.arrays.len()), (4, 3));
    let mut maps: Vec<_> = f.arrays.iter().map(|a| &a.map).collect();
    maps.dedup();
    assert_eq!(maps.len(), 3, "{maps:?}");
}
