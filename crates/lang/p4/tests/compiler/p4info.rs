//! P4Info: its contents for a controller, feature by feature, and both formats.

use p4shield_p4::p4info::p4info;
use p4shield_p4::{NoIncludes, Options};

/// A v1model program: types, the parser's declarations and states, ingress's declarations and statements.
fn program(types: &str, parser: &str, locals: &str, apply: &str) -> String {
    format!(
        "#include <v1model.p4>\n{types}\n\
         header h_t {{ bit<16> t; bit<8> n; }}\nstruct headers_t {{ h_t h; }}\nstruct meta_t {{ }}\n\
         parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{ \
         {parser} }}\n\
         control V(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}\n\
         control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{\n\
         {locals}\napply {{ {apply} }} }}\n\
         control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{ apply {{ }} }}\n\
         control U(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}\n\
         control D(packet_out p, in headers_t hdr) {{ apply {{ p.emit(hdr); }} }}\n\
         V1Switch(P(), V(), ingress(), E(), U(), D()) main;\n"
    )
}

const PARSER: &str = "state start { p.extract(hdr.h); transition accept; }";

fn text_of(source: &str) -> String {
    match p4info("p.p4", source, &NoIncludes, &Options::default()) {
        Ok(info) => info.to_text(),
        Err(e) => panic!("{e}"),
    }
}

/// Returns the P4Info of an ingress with these declarations and statements.
fn ingress(locals: &str, apply: &str) -> String {
    text_of(&program("", PARSER, locals, apply))
}

/// Checks that the text contains each part; ignores white space.
fn has(text: &str, parts: &[&str]) {
    let flat = |s: &str| s.split_whitespace().collect::<Vec<_>>().join(" ");
    let all = flat(text);
    for part in parts {
        assert!(all.contains(&flat(part)), "{part} is not in\n{text}");
    }
}

fn has_not(text: &str, parts: &[&str]) {
    parts.iter().for_each(|p| assert!(!text.contains(p), "{p} is in\n{text}"));
}

/// Returns the codes and lines of the errors.
fn mistakes(source: &str) -> Vec<(&'static str, u32)> {
    let found = p4info("p.p4", source, &NoIncludes, &Options::default()).expect_err("a mistake");
    found.plain().iter().filter(|p| p.error).map(|p| (p.code, p.line)).collect()
}

#[test]
fn tables_actions_and_arrays_have_the_ids_of_their_names() {
    let source = program(
        "",
        PARSER,
        "counter(16, CounterType.bytes) seen;
         register<bit<48>>(8) last;
         direct_counter(CounterType.packets) hits;
         action a() { }
         action to(bit<9> port) { std.egress_spec = port; }
         table t_ternary {
             key = { hdr.h.t : ternary; hdr.h.n : exact @name(\"number\"); }
             actions = { a; to; }
             default_action = to(3);
             size = 512;
             counters = hits;
         }
         table other { key = { hdr.h.n : lpm; } actions = { a; } }",
        "t_ternary.apply(); other.apply(); seen.count(1);",
    );
    let info = p4info("p.p4", &source, &NoIncludes, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    // Ids as from p4c: the type in the upper byte, one-at-a-time hash of the name in the others.
    has(
        &info.to_text(),
        &[
            "arch: \"v1model\"",
            "id: 44370079 name: \"ingress.t_ternary\" alias: \"t_ternary\"",
            "id: 21186165 name: \"ingress.a\"",
            "name: \"number\" bitwidth: 8 match_type: EXACT",
            "bitwidth: 16 match_type: TERNARY",
            "id: 21257015 annotations: \"@defaultonly\" scope: DEFAULT_ONLY",
            "param_id: 1 value: \"\\000\\003\"",
            "size: 512",
            "direct_counters { preamble {",
            "spec { unit: BYTES } size: 16",
            "spec { unit: PACKETS } direct_table_id: 44370079",
            "bitstring { bit { bitwidth: 48 } } } size: 8",
        ],
    );
    // The binary form starts with pkg_info { arch: "v1model" }.
    assert!(info.to_bytes().starts_with(b"\x0a\x09\x2a\x07v1model\x12"));
}

#[test]
fn annotations_name_objects_keys_and_parameters() {
    let text = ingress(
        "@name(\"renamed\") action a() { }
         @name(\".whole.name\") action to(@name(\"out\") bit<9> port) { std.egress_spec = port; }
         @name(\"kept\") register<bit<8>>(4) r;
         @name(\"first\") table t {
             key = { hdr.h.n[6:1] : exact; hdr.h.t & 0x0ff0 : exact; }
             actions = { a; to; }
         }",
        "t.apply();",
    );
    let names = ["ingress.renamed", "whole.name", "hdr.h.n[6:1]", "hdr.h.t & 0xff0", "ingress.first", "out"];
    names.iter().for_each(|n| has(&text, &[&format!("name: \"{n}\"")]));
    has(&text, &["name: \"ingress.kept\" alias: \"kept\""]);
}

#[test]
fn field_names_are_part_of_the_name_of_a_key() {
    let source = program(
        "",
        PARSER,
        "table t { key = { hdr.h.t[7:4] : exact; hdr.h.isValid() : exact; } actions = { NoAction; } }",
        "t.apply();",
    );
    let renamed =
        source.replace("struct headers_t { h_t h; }", "struct headers_t { @name(\"outer\") h_t h; }");
    has(&text_of(&renamed), &["name: \"hdr.outer.t[7:4]\"", "name: \"hdr.outer.$valid$\""]);
    let whole =
        source.replace("struct headers_t { h_t h; }", "struct headers_t { @name(\".outer\") h_t h; }");
    has(&text_of(&whole), &["name: \"outer.$valid$\""]);
}

#[test]
fn ids_that_the_author_sets_are_kept() {
    let text = ingress(
        "@id(7) action a(@id(5) bit<8> x, bit<8> y) { hdr.h.n = x + y; }
         @id(0x02000009) table t { key = { hdr.h.n : exact @id(3); hdr.h.t : exact; } actions = { a; } }",
        "t.apply();",
    );
    has(&text, &["id: 16777223 name: \"ingress.a\"", "id: 33554441 name: \"ingress.t\""]);
    has(&text, &["params { id: 5 name: \"x\"", "params { id: 2 name: \"y\""]);
    has(&text, &["match_fields { id: 3 name: \"hdr.h.n\"", "match_fields { id: 2 name: \"hdr.h.t\""]);
}

#[test]
fn invalid_ids_are_refused_at_their_location() {
    let wrong = |locals: &str| mistakes(&program("", PARSER, locals, "t.apply();"));
    let table = "table t { key = { hdr.h.n : exact; } actions = { a; } }";
    assert_eq!(wrong(&format!("@id(0x02000001) action a() {{ }}\n{table}")), [("E0607", 9)]);
    let twice = "action a(@id(1) bit<8> x, @id(1) bit<8> y) { hdr.h.n = x + y; }";
    assert_eq!(wrong(&format!("{twice}\n{table}")), [("E0607", 9)]);
}

#[test]
fn only_reachable_objects_are_listed() {
    let text = ingress(
        "action part() { hdr.h.n = 7; }
         action called(bit<8> x) { hdr.h.n = x; part(); }
         action never() { hdr.h.n = 2; }
         table unused { key = { hdr.h.n : exact; } actions = { never; } }
         table dead { key = { hdr.h.n : exact; } actions = { never; } }
         counter(4, CounterType.packets) idle;",
        "called(1); if (false) { dead.apply(); }",
    );
    has(&text, &["name: \"ingress.called\"", "name: \"ingress.idle\""]);
    has_not(&text, &["unused", "dead", "never", "ingress.part", "params"]);
}

#[test]
fn nested_controls_have_their_own_objects() {
    let types = "header x_t { bit<8> a; }
         control C(inout bit<8> v)(bit<32> size) {
             register<bit<8>>(size) r;
             action set() { v = 1; }
             table t { key = { v : exact; } actions = { set; } }
             apply { t.apply(); r.write(0, v); }
         }";
    let text =
        text_of(&program(types, PARSER, "C(3) one; C(5) two;", "one.apply(hdr.h.n); two.apply(hdr.h.n);"));
    has(&text, &["name: \"ingress.one.t\" alias: \"one.t\"", "name: \"ingress.two.t\" alias: \"two.t\""]);
    has(
        &text,
        &["name: \"ingress.one.set\"", "name: \"ingress.two.r\" alias: \"two.r\"", "size: 3", "size: 5"],
    );
}

#[test]
fn documentation_and_annotations_are_kept() {
    let text = ingress(
        "@brief(\"Drops.\") @description(\"For all.\") @mine(\"x\", 3) action a(@brief(\"How.\") bit<8> n) \
            { hdr.h.n = n; }
         @list[1, \"two\", true] @pairs[k=\"v\", n=-2]
         table t { key = { hdr.h.n : exact; } actions = { @tableonly @mark[0] a; @defaultonly NoAction; } }",
        "t.apply();",
    );
    has(&text, &["annotations: \"@mine(\\\"x\\\", 3)\" doc { brief: \"Drops.\" description: \"For all.\" }"]);
    has(&text, &["bitwidth: 8 doc { brief: \"How.\" }"]);
    has(
        &text,
        &["expressions { int64_value: 1 } expressions { string_value: \"two\" } expressions { bool_value: \
                true }"],
    );
    has(&text, &["kv_pairs { key: \"n\" value { int64_value: -2 } }"]);
    has(&text, &["annotations: \"@tableonly\" scope: TABLE_ONLY structured_annotations { name: \"mark\""]);
    has(&text, &["expressions { int64_value: 0 }", "annotations: \"@defaultonly\" scope: DEFAULT_ONLY"]);
}

#[test]
fn package_information_comes_from_its_annotations() {
    let source = program("", PARSER, "", "").replace(
        "V1Switch(",
        "@pkginfo(name=\"guard\", version=\"2\") @pkginfo(url=\"u\") @brief(\"All.\")\n\
         @platform_property(multicast_group_table_size=10)\nV1Switch(",
    );
    has(
        &text_of(&source),
        &["pkg_info { name: \"guard\" version: \"2\" doc { brief: \"All.\" } arch: \"v1model\" url: \"u\" \
           platform_properties { multicast_group_table_size: 10 } }"],
    );
}

#[test]
fn digests_have_the_type_of_their_data() {
    let types = "struct inner_t { bool b; error e; }
         struct seen_t { bit<48> mac; inner_t i; }";
    let apply = "seen_t s = { 1, { true, error.NoError } }; digest<seen_t>(1, s); digest(2, { hdr.h.n });";
    let text = text_of(&program(types, PARSER, "", apply));
    has(&text, &["name: \"seen_t\" alias: \"seen_t\" } type_spec { struct { name: \"seen_t\" } }"]);
    has(&text, &["name: \"digest_0\"", "tuple { members { bitstring { bit { bitwidth: 8 } } } }"]);
    has(&text, &["structs { key: \"inner_t\"", "type_spec { bool { } }", "type_spec { error { } }"]);
    has(&text, &["error { members: \"NoError\" members: \"PacketTooShort\""]);
}

#[test]
fn controller_headers_are_packet_metadata() {
    let types = "struct s_t { bit<4> b; }
         @controller_header(\"packet_in\") header in_t { @id(4) bit<9> port; bit<3> rest; s_t s; }";
    let text = text_of(&program(types, PARSER, "", ""));
    has(
        &text,
        &["name: \"packet_in\" alias: \"packet_in\" \
                annotations: \"@controller_header(\\\"packet_in\\\")\" } \
           metadata { id: 4 name: \"port\" bitwidth: 9 } metadata { id: 2 name: \"rest\" bitwidth: 3 } \
           metadata { id: 3 name: \"s.b\" bitwidth: 4 }"],
    );
}

#[test]
fn value_sets_have_the_match_kinds_of_their_fields() {
    let types = "struct m_t { bit<16> a; @match(ternary) @id(9) bit<8> b; }";
    let parser = "value_set<m_t>(4) pairs; value_set<bit<16>>(8) kinds;
         state start { p.extract(hdr.h); transition select(hdr.h.t, hdr.h.n) { pairs: accept; _: more; } }
         state more { transition select(hdr.h.t) { kinds: accept; _: accept; } }";
    let text = text_of(&program(types, parser, "", ""));
    has(
        &text,
        &["name: \"P.pairs\" alias: \"pairs\"", "match { id: 1 bitwidth: 16 match_type: EXACT } size: 8"],
    );
    has(&text, &["match { id: 1 name: \"a\" bitwidth: 16 match_type: EXACT }"]);
    has(&text, &["match { id: 9 name: \"b\" bitwidth: 8 match_type: TERNARY } size: 4"]);
}

#[test]
fn translated_types_have_the_controllers_width() {
    let types = "@p4runtime_translation(\"x.org/Port\", bit<32>) type bit<9> port_t;
         @p4runtime_translation(\"x.org/Name\", string) type bit<8> name_t;
         type bit<16> plain_t;
         enum bit<8> Kind { A = 1, B = 0x20 }
         enum Mood { good, bad }";
    let locals = "action to(port_t p, name_t n, plain_t t, Kind k, Mood m) { std.egress_spec = (bit<9>) p; }
         table t { key = { (port_t) std.ingress_port : exact @name(\"in\"); } actions = { to; } }
         register<Kind>(2) r;";
    let text = text_of(&program(types, PARSER, locals, "t.apply();"));
    has(&text, &["name: \"in\" bitwidth: 32 match_type: EXACT type_name { name: \"port_t\" }"]);
    has(&text, &["id: 1 name: \"p\" bitwidth: 32 type_name { name: \"port_t\" }"]);
    has(&text, &["id: 2 name: \"n\" type_name { name: \"name_t\" }"]);
    has(
        &text,
        &["id: 3 name: \"t\" bitwidth: 16 type_name { name: \"plain_t\" }", "id: 4 name: \"k\" bitwidth: 8"],
    );
    has(&text, &["key: \"port_t\" value { translated_type { uri: \"x.org/Port\" sdn_bitwidth: 32 } }"]);
    has(&text, &["translated_type { uri: \"x.org/Name\" sdn_string { } }"]);
    has(&text, &["key: \"plain_t\" value { original_type { bitstring { bit { bitwidth: 16 } } } }"]);
    has(
        &text,
        &["serializable_enums { key: \"Kind\" value { underlying_type { bitwidth: 8 } members { \
                name: \"A\" value: \"\\001\" }"],
    );
    has(&text, &["type_spec { serializable_enum { name: \"Kind\" } } size: 2"]);
    has(&text, &["enums { key: \"Mood\" value { members { name: \"good\" } members { name: \"bad\" } }"]);
}

#[test]
fn resources_and_timeouts_belong_to_their_tables() {
    let text = ingress(
        "@max_group_size(4) @selector_size_semantics(\"sum_of_members\") @max_member_weight(9) @mode(\"fair\")
         action_selector(HashAlgorithm.crc16, 64, 10) choice;
         direct_meter<bit<2>>(MeterType.bytes) speed;
         meter(8, MeterType.packets) m;
         action a() { }
         table t {
             key = { hdr.h.n : exact; hdr.h.t : selector; }
             actions = { a; }
             implementation = choice;
             support_timeout = true;
         }
         table u {
             key = { hdr.h.t : range; hdr.h.n : optional; }
             actions = { a; }
             @name(\"own\") implementation = action_profile(32);
             meters = speed;
         }",
        "t.apply(); u.apply();",
    );
    has(&text, &["name: \"ingress.choice\" alias: \"choice\" annotations: \"@mode(\\\"fair\\\")\" }"]);
    has(&text, &["with_selector: true size: 64 max_group_size: 4 sum_of_members { max_member_weight: 9 }"]);
    has(&text, &["name: \"own\" alias: \"own\"", "size: 32", "idle_timeout_behavior: NOTIFY_CONTROL"]);
    has(
        &text,
        &[
            "direct_meters { preamble {",
            "match_type: RANGE",
            "match_type: OPTIONAL",
            "spec { unit: PACKETS } size: 8",
        ],
    );
    has_not(&text, &["hdr.h.t\"\n    bitwidth: 16\n    match_type: UNSPECIFIED"]);
}

#[test]
fn entries_and_constant_defaults_are_marked() {
    let text = ingress(
        "action a() { }
         table t { key = { hdr.h.n : exact; } actions = { a; } const default_action = a(); const entries = \
         { 1 : a(); } }
         table u { key = { hdr.h.n : exact; } actions = { a; } entries = { 1 : a(); } }",
        "t.apply(); u.apply();",
    );
    has(&text, &["const_default_action_id: 21186165", "is_const_table: true has_initial_entries: true"]);
    has(&text, &["size: 1024 has_initial_entries: true"]);
}

#[test]
fn a_file_without_main_has_an_empty_p4info() {
    assert!(!text_of("#include <core.p4>\nheader h { bit<8> x; }\n").contains('{'));
}

#[test]
fn other_architectures_have_their_names() {
    let ubpf = "#include <ubpf_model.p4>\nstruct h_t { }\nstruct m_t { }
        parser P(packet_in p, out h_t h, inout m_t m, inout standard_metadata s) { state start { transition \
        accept; } }
        control C(inout h_t h, inout m_t m, inout standard_metadata s) { apply { } }
        control D(packet_out p, in h_t h) { apply { } }
        ubpf(P(), C(), D()) main;";
    has(&text_of(ubpf), &["arch: \"ubpf\""]);
}

#[test]
fn deeply_nested_types_are_refused() {
    use std::fmt::Write;
    let mut types = String::from("struct S0 { bit<8> a; }\n");
    for i in 1..2000 {
        let _ = writeln!(types, "struct S{i} {{ S{} a; }}", i - 1);
    }
    let found = mistakes(&program(&types, PARSER, "", "S1999 s; digest<S1999>(1, s);"));
    assert_eq!(found.first().map(|(code, _)| *code), Some("E0901"), "{found:?}");
}

#[test]
fn exponentially_nested_controls_are_refused() {
    use std::fmt::Write;
    let mut types = String::from("control C0(inout bit<8> v) { apply { v = v + 1; } }\n");
    for i in 1..24 {
        let below = i - 1;
        let _ = writeln!(
            types,
            "control C{i}(inout bit<8> v) {{ C{below}() a; C{below}() b; apply {{ a.apply(v); b.apply(v); \
                }} }}"
        );
    }
    let found = mistakes(&program(&types, PARSER, "C23() c;", "c.apply(hdr.h.n);"));
    assert!(found.iter().any(|(code, _)| *code == "E0902"), "{found:?}");
}
