//! P4Info: ids, names and both formats.

use p4shield_p4::p4info::p4info;
use p4shield_p4::{NoIncludes, Options, compile};

const PROGRAM: &str = r#"#include <v1model.p4>
header h_t { bit<16> t; bit<8> n; }
struct headers_t { h_t h; }
struct meta_t { }
parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start { p.extract(hdr.h); transition accept; }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    counter(16, CounterType.bytes) seen;
    register<bit<48>>(8) last;
    direct_counter(CounterType.packets) hits;
    action a() { }
    action to(bit<9> port) { std.egress_spec = port; }
    table t_ternary {
        key = { hdr.h.t : ternary; hdr.h.n : exact @name("number"); }
        actions = { a; to; }
        default_action = to(3);
        size = 512;
        counters = hits;
    }
    table other { key = { hdr.h.n : lpm; } actions = { a; } }
    apply {
        t_ternary.apply();
        other.apply();
        seen.count(1);
        bit<48> x;
        last.read(x, 0);
        last.write(0, x + 1);
    }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply { } }
control U(inout headers_t hdr, inout meta_t meta) { apply { } }
control D(packet_out p, in headers_t hdr) { apply { p.emit(hdr); } }
V1Switch(P(), V(), ingress(), E(), U(), D()) main;
"#;

#[test]
fn objects_go_by_the_names_that_annotations_give_them() {
    let text = PROGRAM
        .replace("action a() { }", "@name(\"renamed\") action a() { }")
        .replace("action to(", "@name(\".whole.name\") action to(")
        .replace("hdr.h.n : lpm;", "hdr.h.n[6:1] : exact; hdr.h.t & 0x0ff0 : exact;");
    let compiled = compile("p.p4", &text, &NoIncludes, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let text = p4info(&compiled.facts).to_text();
    for part in ["\"ingress.renamed\"", "\"whole.name\"", "\"hdr.h.n[6:1]\"", "\"hdr.h.t & 0xff0\""] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn a_program_is_described_for_controllers() {
    let compiled =
        compile("p.p4", PROGRAM, &NoIncludes, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let info = p4info(&compiled.facts);
    let text = info.to_text();
    // Ids as p4c gives them: type in the upper byte, one-at-a-time hash of the name below.
    for part in [
        "arch: \"v1model\"",
        "id: 44370079\n    name: \"ingress.t_ternary\"\n    alias: \"t_ternary\"",
        "id: 21186165\n    name: \"ingress.a\"",
        "name: \"number\"\n    bitwidth: 8\n    match_type: EXACT",
        "bitwidth: 16\n    match_type: TERNARY",
        "id: 21257015\n    annotations: \"@defaultonly\"\n    scope: DEFAULT_ONLY",
        "value: \"\\000\\003\"",
        "size: 512",
        "unit: BYTES",
        "unit: PACKETS",
        "bitwidth: 48",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    // The binary form starts with pkg_info { arch: "v1model" }.
    assert!(info.to_bytes().starts_with(b"\x0a\x09\x2a\x07v1model\x12"));
}
