//! Programs that call functions in a compartment do what they do with the functions inline.

use super::differential::{Form, compare, random_packets};
use super::generate;

/// A program with two headers, these declarations of ingress and egress, and their bodies.
fn program(ingress: &str, egress: &str) -> String {
    format!(
        "#include <v1model.p4>\nheader h_t {{ bit<8> first; bit<8> a; bit<8> b; bit<16> c; }}\n\
         header v_t {{ bit<8> v; }}\n\
         struct headers_t {{ h_t h; v_t v; v_t w; }}\nstruct meta_t {{ bit<8> m; bit<8> n; }}\n\
         {}\
         parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{\n\
         state start {{ p.extract(hdr.h); transition select(hdr.h.first) {{ 0 .. 9: more; \
         default: accept; }} }}\n\
         state more {{ p.extract(hdr.v); transition accept; }} }}\n\
         control V(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}\n\
         control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{\n\
         register<bit<8>>(8) reg;\n{ingress} }}\n\
         control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{ {egress} }}\n\
         control D(packet_out p, in headers_t hdr) {{ apply {{ p.emit(hdr); }} }}\n\
         V1Switch(P(), V(), I(), E(), V(), D()) main;\n",
        generate::EFFECT_ROUTINES
    )
}

/// Compares a program with functions in a compartment with the evaluator, and has the verifier prove it.
fn behaves(ingress: &str, egress: &str) {
    let text = program(ingress, egress);
    for trace in [false, true] {
        let form = Form { proof: true, trace, placed: true };
        let packets = random_packets(b"any bytes will do for these packets");
        let compared = compare(&text, &crate::NoIncludes, &packets, form);
        let compared = compared.unwrap_or_else(|e| panic!("{ingress}: {e}"));
        assert_eq!(compared.skipped, Vec::<String>::new(), "{ingress}");
        assert_eq!(compared.packets, packets.len(), "{ingress}");
    }
}

const NOTHING: &str = "apply { }";

#[test]
fn a_call_ends_a_run_and_another_one_goes_on() {
    behaves("apply { std.egress_spec = 1; hdr.h.b = step(hdr.h.a); }", NOTHING);
    behaves("apply { std.egress_spec = 1; hdr.h.b = step(hdr.h.a) + step(hdr.h.b) * hdr.h.a; }", NOTHING);
    behaves(
        "apply { std.egress_spec = 1; bit<8> x; hdr.h.b = mix(hdr.h.a, hdr.h.b, x); hdr.h.c[7:0] = x; }",
        NOTHING,
    );
    behaves("apply { std.egress_spec = 1; fill(hdr.w, hdr.h.a); touch(hdr.v, 3); }", NOTHING);
}

#[test]
fn calls_under_conditions_join_with_other_paths() {
    behaves(
        "apply { std.egress_spec = 1; bit<8> x = hdr.h.b; \
         if (hdr.h.first > 9) { x = step(hdr.h.a); } else if (hdr.h.a == 3) { swap(hdr.h.a, hdr.h.b); } \
         hdr.h.c[15:8] = x + hdr.h.a; if (x > 7 && step(hdr.h.b) != 0) { mark_to_drop(std); } }",
        NOTHING,
    );
}

#[test]
fn results_are_keys_and_arguments_of_tables() {
    behaves(
        "action set(bit<8> by, bit<9> to) { hdr.h.b = hdr.h.b + by; std.egress_spec = to; }\n\
         action called(bit<8> by) { hdr.h.a = step(hdr.h.b) + by; std.egress_spec = 2; }\n\
         table t { key = { step(hdr.h.a): ternary @name(\"k\"); hdr.h.first: exact; }\n\
         actions = { set; called; }\n\
         const entries = { (1 &&& 1, 0): set(1, 1); (_, 1): called(7); (_, 0x40): set(3, 2); }\n\
         default_action = set(9, 3); }\n\
         apply { if (t.apply().hit) { hdr.h.c[7:0] = step(hdr.h.b); } }",
        NOTHING,
    );
}

#[test]
fn registers_keep_their_values_around_calls() {
    behaves(
        "apply { std.egress_spec = 1; bit<8> x; reg.read(x, (bit<32>)(hdr.h.first & 7)); \
         hdr.h.b = step(x); reg.write((bit<32>)(hdr.h.first & 7), x + hdr.h.b); }",
        NOTHING,
    );
}

#[test]
fn copies_call_functions_in_egress() {
    let egress = "apply { hdr.h.b = step(hdr.h.a) + (bit<8>)std.egress_rid + (bit<8>)std.egress_port; \
         if (std.instance_type == 0 && hdr.h.first == 2) \
         { clone_preserving_field_list(CloneType.E2E, 1, 1); } }";
    behaves(
        "apply { if (hdr.h.first < 9) { std.mcast_grp = 1; } else { std.egress_spec = 3; } step(hdr.h.b); }",
        egress,
    );
    behaves(
        "apply { std.egress_spec = 2; if (step(meta.m) == 1 && hdr.h.first == 5 && std.instance_type == 0) \
         { resubmit_preserving_field_list(1); } if (step(hdr.h.b) > 100) { clone(CloneType.I2E, 1); } }",
        egress,
    );
}
