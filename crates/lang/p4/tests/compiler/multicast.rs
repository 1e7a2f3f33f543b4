//! Programs that send packets to multicast groups: their objects require replication, so a host
//! that runs a program once per packet refuses them with the location. `crates/lang/stf` tests
//! their behaviour, because it replicates packets.

use p4shield_bpf::Object;
use p4shield_p4::{Compiled, NoIncludes, Options, check, compile};

/// A program with this ingress, whose first line is line 11.
fn program(ingress: &str) -> String {
    let mut text = String::from(
        "#include <v1model.p4>\nheader h_t { bit<16> a; }\nstruct hs { h_t h; }\nstruct m { }\n\
         parser P(packet_in p, out hs hdr, inout m meta, inout standard_metadata_t std) { state start { \
         p.extract(hdr.h); transition accept; } }\n\
         control V(inout hs hdr, inout m meta) { apply { } }\n\
         control E(inout hs hdr, inout m meta, inout standard_metadata_t std) { apply { } }\n\
         control D(packet_out p, in hs hdr) { apply { p.emit(hdr); } }\n\
         control I(inout hs hdr, inout m meta, inout standard_metadata_t std) {\n register<bit<16>>(4) \
         kept;\n",
    );
    text.push_str(ingress);
    text.push_str("\n}\nV1Switch(P(), V(), I(), E(), V(), D()) main;");
    text
}

fn compiled(ingress: &str) -> Compiled {
    match compile("flood.p4", &program(ingress), &NoIncludes, &Options::default()) {
        Ok(c) => c,
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn multicast_is_refused_where_the_group_is_chosen() {
    let c = compiled("apply {\n if (hdr.h.a == 1)\n std.mcast_grp = 7; }");
    assert!(c.facts.replicates);
    let object = Object::parse(&c.object).expect("a valid object");
    let refusal = object.runs_once().expect_err("the object requires replication").to_string();
    assert!(refusal.contains("standard_metadata.mcast_grp") && refusal.contains("flood.p4:13:"), "{refusal}");
    // The author gets a warning at compile time.
    assert!(c.warnings.plain().iter().any(|w| w.line == 13 && w.message.contains("multicast group")));
}

#[test]
fn programs_without_a_group_in_the_end_are_accepted() {
    for ingress in [
        "apply { std.egress_spec = 1; }",
        "apply { if (hdr.h.a == 1) mark_to_drop(std); }",
        "apply { std.mcast_grp = 3; std.mcast_grp = 0; }",
    ] {
        let c = compiled(ingress);
        assert!(!c.facts.replicates, "{ingress}");
        Object::parse(&c.object).expect("a valid object").runs_once().expect("no replication");
    }
}

#[test]
fn state_that_a_second_run_would_change_is_not_supported() {
    let refused = |ingress: &str| -> Vec<(&'static str, u32)> {
        let found = check("flood.p4", &program(ingress), &NoIncludes, &Options::default()).plain();
        found.into_iter().filter(|p| p.error).map(|p| (p.code, p.line)).collect()
    };
    let flood = "std.mcast_grp = 7;";
    assert_eq!(refused(&format!("apply {{\n kept.write(0, hdr.h.a);\n {flood} }}")), [("E0801", 12)]);
    assert_eq!(refused(&format!("apply {{ {flood}\n kept.read(hdr.h.a, 1); }}")), [("E0801", 12)]);
    assert_eq!(refused(&format!("apply {{\n random(hdr.h.a, 0, 9); {flood} }}")), [("E0801", 12)]);
    assert_eq!(refused(&format!("apply {{ {flood} }}")), []);
    assert_eq!(refused("apply { kept.write(0, hdr.h.a); }"), []);
}
