//! The schema of an object describes the program's state as its author wrote it.

use crate::common::{Bench, compiled};
use p4shield_abi::schema::{ArraySchema, Element, KeyKind, Schema, TableSchema, Unit};
use p4shield_bpf::Object;
use p4shield_p4::{Compiled, NoIncludes, Options, check, compile};
use p4shield_tables::model::{ActionFacts, ParamFacts, TableFacts};
use p4shield_tables::{Control, Described};

/// A program with these declarations and statements in its ingress control.
fn program(locals: &str, body: &str) -> String {
    format!(
        "#include <v1model.p4>\n\
         header h_t {{ bit<8> a; bit<16> b; bit<8> c; }} struct headers_t {{ h_t h; }} struct meta_t {{ }}\n\
         parser prs(packet_in p, out headers_t hdr, inout meta_t m, inout standard_metadata_t s) {{\n\
         state start {{ p.extract(hdr.h); transition accept; }} }}\n\
         control none(inout headers_t hdr, inout meta_t m) {{ apply {{ }} }}\n\
         control ing(inout headers_t hdr, inout meta_t m, inout standard_metadata_t s) {{\n\
         {locals}\napply {{ {body} }} }}\n\
         control eg(inout headers_t hdr, inout meta_t m, inout standard_metadata_t s) {{ apply {{ }} }}\n\
         control dprs(packet_out p, in headers_t hdr) {{ apply {{ p.emit(hdr); }} }}\n\
         V1Switch(prs(), none(), ing(), eg(), none(), dprs()) main;\n"
    )
}

fn schema(locals: &str, body: &str) -> Schema {
    let object = Object::parse(&compiled(&program(locals, body)).object).unwrap();
    let schema = Schema::decode(object.schema().expect("a schema")).unwrap();
    let is_map = |symbol: &String| object.maps().any(|(name, _)| name == symbol);
    assert!(schema.arrays.iter().map(|a| &a.map).all(is_map), "{schema:?}");
    assert!(schema.tables.iter().flat_map(|t| &t.map).all(is_map), "{schema:?}");
    schema
}

#[test]
fn arrays_have_their_names_widths_and_units() {
    let s = schema(
        "@name(\"seen\") counter(4, CounterType.packets_and_bytes) c;\n\
         register<int<12>>(100) r; register<bit<100>>(2) w; meter(3, MeterType.bytes) m0;",
        "c.count(0); r.write(0, 1); w.write(0, 1); m0.execute_meter(0, hdr.h.c);",
    );
    let facts = |a: &ArraySchema| (a.name.clone(), a.element, a.unit, a.width);
    assert_eq!(
        s.arrays.iter().map(facts).collect::<Vec<_>>(),
        [
            ("ing.seen".to_owned(), Element::Counter, Unit::Both, 64),
            ("ing.r".to_owned(), Element::SignedRegister, Unit::Packets, 12),
            ("ing.w".to_owned(), Element::Register, Unit::Packets, 100),
            ("ing.m0".to_owned(), Element::Meter, Unit::Bytes, 2),
        ]
    );
}

const TABLE: &str = "direct_counter(CounterType.packets) hits;\n\
    action drop() { mark_to_drop(s); } action set(bit<8> v) { hdr.h.c = v; }\n\
    @name(\"ports\") table t { key = { hdr.h.b: exact @name(\"port\"); } actions = { drop; set; }\n\
    const entries = { 80: set(1); 443: set(2); } default_action = drop();";

fn table(properties: &str) -> TableSchema {
    let mut s = schema(&format!("{TABLE} {properties} }}"), "t.apply();");
    assert_eq!(s.tables.len(), 1);
    s.tables.remove(0)
}

#[test]
fn tables_that_are_code_have_their_entries() {
    let t = table("");
    assert_eq!((t.name.as_str(), t.map, t.counter), ("ing.ports", None, None));
    let key = &t.keys[0];
    assert_eq!((key.name.as_str(), key.kind, key.width), ("port", KeyKind::Exact, 16));
    let names: Vec<_> = t.actions.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["ing.drop", "ing.set"]);
    assert_eq!(t.actions[1].params[0].name, "v");
    // Priority, value and mask; the number of the action and its data.
    let entries: Vec<_> = t.entries.iter().map(|(k, v)| (&k[4..], v[0], v[4])).collect();
    assert_eq!(entries, [(&[0, 80, 0xff, 0xff][..], 1, 1), (&[1, 187, 0xff, 0xff][..], 1, 2)]);
    assert!(t.default_map.is_some(), "the control plane may change it");
}

#[test]
fn entries_with_a_counter_are_in_a_map_and_count() {
    let properties = "counters = hits;";
    let t = table(properties);
    assert!(t.entries.is_empty());
    let counter = t.counter.expect("a counter in each entry");
    assert_eq!((counter.name.as_str(), counter.unit), ("ing.hits", Unit::Packets));
    let mut bench = Bench::new(&program(&format!("{TABLE} {properties} }}"), "t.apply();"));
    assert!(bench.run(&[0, 0, 80, 0]).pass && bench.run(&[0, 0, 80, 0]).pass);
    let map = t.map.expect("a map");
    let value = bench.map_value(&map, &[0, 80]);
    let at = counter.offset as usize;
    assert_eq!(value[at..at + 8], 2_u64.to_le_bytes());
}

#[test]
fn marked_counters_are_metrics() {
    let locals = "@metric counter(4, CounterType.packets) a;\n\
         @metric(\"mine\") counter(4, CounterType.packets) b; counter(4, CounterType.packets) c;";
    let s = schema(locals, "a.count(0); b.count(0); c.count(0);");
    let metrics: Vec<_> = s.arrays.iter().map(|a| a.metric.as_deref()).collect();
    assert_eq!(metrics, [Some("ing.a"), Some("mine"), None]);
    let marked = TABLE.replace("direct_counter", "@metric direct_counter") + "counters = hits; }";
    let s = schema(&marked, "t.apply();");
    assert_eq!(s.tables[0].counter.as_ref().unwrap().metric.as_deref(), Some("ing.hits"));
}

/// Returns codes and columns of the diagnostics of `@metric`.
fn found(locals: &str, body: &str) -> Vec<(&'static str, String)> {
    let found = check("test.p4", &program(locals, body), &NoIncludes, &Options::default());
    found.plain().into_iter().map(|p| (p.code, p.source.trim().to_owned())).collect()
}

#[test]
fn a_misplaced_mark_is_warned_of() {
    for locals in [
        "@metric register<bit<8>>(4) r;",
        "@metric meter(4, MeterType.bytes) r;",
        "@metric action r() { }",
        "@metric bit<8> r;",
    ] {
        let codes: Vec<_> = found(locals, "").into_iter().map(|f| f.0).collect();
        assert!(codes.contains(&"W0113"), "{locals}: {codes:?}");
    }
    let table = "table r { key = { hdr.h.a: exact; } actions = { NoAction; } @metric size = 4; }";
    assert_eq!(found(table, "r.apply();").iter().map(|f| f.0).collect::<Vec<_>>(), ["W0113"]);
    let two =
        "@metric(\"x\") counter(4, CounterType.bytes) a;\n@metric(\"x\") counter(4, CounterType.bytes) b;";
    let twice = found(two, "a.count(0); b.count(0);");
    assert_eq!(twice, [("W0113", "@metric(\"x\") counter(4, CounterType.bytes) b;".to_owned())]);
    let right = "@metric(\"x\") counter(4, CounterType.bytes) a;\n@metric counter(4, CounterType.bytes) b;";
    assert_eq!(found(right, "a.count(0); b.count(0);"), []);
}

#[test]
fn a_mark_with_another_argument_is_refused() {
    for mark in ["@metric(5)", "@metric(\"\")", "@metric(x)", "@metric[\"x\"]"] {
        let text = program(&format!("{mark} counter(4, CounterType.bytes) a;"), "a.count(0);");
        let error = compile("test.p4", &text, &NoIncludes, &Options::default()).unwrap_err();
        assert!(error.plain().iter().any(|p| p.code == "E0607"), "{mark}: {error}");
    }
}

/// Compares what an object says of its tables with what the compiler knows.
fn assert_described(name: &str, compiled: &Compiled) {
    let object = Object::parse(&compiled.object).unwrap();
    let maps = object.maps().map(|(symbol, definition)| (symbol.to_owned(), *definition)).collect();
    let schema = object.schema().map(Schema::decode);
    let control = Control::of(&Described { program: [0; 32], maps, schema }).unwrap();
    assert_eq!(control.architecture, compiled.facts.architecture, "{name}");
    assert_eq!(control.value_sets, compiled.facts.value_sets, "{name}");
    // A wide parameter has more room than bytes of its own.
    let param = |p: &ParamFacts| ParamFacts { bytes: p.width.div_ceil(8), ..p.clone() };
    let action = |a: &ActionFacts| ActionFacts { params: a.params.iter().map(param).collect(), ..a.clone() };
    let known = |t: &TableFacts| {
        let in_map = t.map.is_some();
        // No write needs the rest.
        TableFacts {
            profile: None,
            initial_entries: 0,
            entries_are_const: false,
            default_is_const: false,
            counter: t.counter.clone().filter(|_| in_map),
            meter: t.meter.clone().filter(|_| in_map),
            counter_offset: t.counter_offset.filter(|_| in_map && t.counter.is_some()),
            meter_offset: t.meter_offset.filter(|_| in_map && t.meter.is_some()),
            size: if in_map { t.size } else { 0 },
            actions: t.actions.iter().map(action).collect(),
            ..t.clone()
        }
    };
    let of = |tables: &[TableFacts]| tables.iter().map(known).collect::<Vec<_>>();
    assert_eq!(of(&control.tables), of(&compiled.facts.tables), "{name}");
}

#[test]
fn an_object_says_all_that_entries_need() {
    let set = "@name(\"types\") value_set<bit<8>>(4) types;";
    for (locals, body) in [
        (format!("{TABLE} }}"), "t.apply();"),
        (format!("{TABLE} size = 7; }}").replace("const entries", "entries"), "t.apply();"),
        (
            "action set(bit<8> v, bit<100> w) { hdr.h.c = v + (bit<8>) w; } action no() { }\n\
             direct_counter(CounterType.packets_and_bytes) n; direct_meter<bit<2>>(MeterType.bytes) m0;\n\
             table t { key = { hdr.h.a: ternary; hdr.h.b: range; hdr.h.c: optional;\n\
             hdr.h.isValid(): exact; } actions = { set; @defaultonly no; } size = 9;\n\
             default_action = no(); counters = n; meters = m0; }"
                .to_owned(),
            "t.apply();",
        ),
        (
            "action set(bit<8> v) { hdr.h.c = v; } action_selector(HashAlgorithm.crc16, 8, 8) sel;\n\
             table t { key = { hdr.h.a: lpm; hdr.h.b: selector; } actions = { set; }\n\
             implementation = sel; } table u { actions = { set; } default_action = set(3); }\n\
             table v { key = { hdr.h.b[8:0]: lpm; } actions = { set; } const default_action = set(1); }"
                .to_owned(),
            "t.apply(); u.apply(); v.apply();",
        ),
    ] {
        assert_described(&locals, &compiled(&program(&locals, body)));
    }
    let with_set = program("", "").replace(
        "state start { p.extract(hdr.h); transition accept; }",
        &format!(
            "{set} state start {{ p.extract(hdr.h); \
             transition select(hdr.h.a) {{ types: accept; _: reject; }} }}"
        ),
    );
    assert_described("a value set", &compiled(&with_set));
}

#[test]
fn the_examples_say_all_that_entries_need() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/programs");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let programs: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "p4")).collect();
    assert!(programs.len() >= 8, "{programs:?}");
    for path in programs {
        let (name, text) = (path.display().to_string(), std::fs::read_to_string(&path).unwrap());
        let compiled = compile(&name, &text, &NoIncludes, &Options::default());
        assert_described(&name, &compiled.unwrap_or_else(|e| panic!("{e}")));
    }
}
