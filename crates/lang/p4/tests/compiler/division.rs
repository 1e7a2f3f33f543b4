//! Divided programs: their objects say what only a switch does, so that a host that judges each packet once
//! refuses them with the location. The tests of `lower` compare their behaviour with the evaluator's.

use p4shield_bpf::Object;
use p4shield_p4::{Compiled, NoIncludes, Options, check, compile};

/// A program with this ingress, whose first line is line 11.
fn program(ingress: &str) -> String {
    let mut text = String::from(
        "#include <v1model.p4>\nheader h_t { bit<16> a; }\nstruct hs { h_t h; }\nstruct m { bit<8> x; }\n\
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
fn what_only_a_switch_does_is_refused_where_it_is_written() {
    for (statement, what) in [
        ("std.mcast_grp = 7;", "standard_metadata.mcast_grp"),
        ("clone(CloneType.I2E, 5);", "clones packets"),
        ("clone_preserving_field_list(CloneType.E2E, 5, 1);", "clones packets"),
        ("resubmit_preserving_field_list(1);", "resubmits packets"),
        ("resubmit({ meta.x });", "resubmits packets"),
        ("recirculate_preserving_field_list(1);", "recirculates packets"),
    ] {
        let c = compiled(&format!("apply {{\n if (hdr.h.a == 1)\n {statement} }}"));
        assert!(c.facts.divided, "{statement}");
        let object = Object::parse(&c.object).expect("a valid object");
        let refusal = object.runs_once().expect_err("only a switch runs it").to_string();
        assert!(refusal.contains(what) && refusal.contains("flood.p4:13:"), "{refusal}");
        // The author gets a warning at compile time.
        let warned =
            |line| c.warnings.plain().iter().any(|w| w.line == line && w.message.contains("no P4 VM"));
        assert!(warned(13), "{statement}");
    }
}

#[test]
fn programs_that_ask_for_nothing_are_accepted() {
    for ingress in [
        "apply { std.egress_spec = 1; }",
        "apply { if (hdr.h.a == 1) mark_to_drop(std); }",
        "apply { std.mcast_grp = 3; std.mcast_grp = 0; }",
        "action never() { clone(CloneType.I2E, 1); } apply { std.egress_spec = 1; }",
    ] {
        let c = compiled(ingress);
        assert!(!c.facts.divided, "{ingress}");
        Object::parse(&c.object).expect("a valid object").runs_once().expect("one run for each packet");
    }
}

#[test]
fn functions_of_the_tenant_make_no_request() {
    let text = program("apply { std.egress_spec = (bit<9>) clone_port(hdr.h.a, 5); }")
        .replace("struct m {", "extern bit<16> clone_port(in bit<16> a, in bit<16> b);\nstruct m {");
    let c = compile("own.p4", &text, &NoIncludes, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    assert!(c.facts.externs == ["clone_port"] && !c.facts.divided, "{:?}", c.facts.externs);
}

#[test]
fn a_program_that_reads_queues_runs_where_there_are_none() {
    for ingress in [
        "apply { if (std.enq_qdepth > 3) { mark_to_drop(std); } }",
        "action act() { meta.x = (bit<8>) std.deq_timedelta; hdr.h.a = (bit<16>) meta.x; } apply { act(); }",
        "table t { key = { std.deq_qdepth : exact; } actions = { NoAction; } } apply { t.apply(); }",
    ] {
        let c = compiled(ingress);
        let object = Object::parse(&c.object).expect("a valid object");
        assert!(c.facts.divided && object.is_divided() && object.reads_queues(), "{ingress}");
        object.runs_once().expect("one run for each packet");
        assert!(c.warnings.plain().iter().all(|w| !w.message.contains("P4 VM")), "{ingress}");
    }
    assert!(!Object::parse(&compiled("apply { }").object).expect("a valid object").reads_queues());
}

#[test]
fn a_block_has_room_for_what_egress_reads_only() {
    let size = |ingress: &str| {
        let maps = compiled(ingress).facts.maps;
        maps.iter().find(|m| m.name == "p4shield_division").map(|m| m.definition.value_size)
    };
    assert_eq!(size("apply { std.egress_spec = 1; }"), None);
    let unchanged = size("apply { std.mcast_grp = 7; }").expect("a block");
    // Its new value, whether it is in the packet, and where.
    let changed = size("apply { std.mcast_grp = 7; hdr.h.a = hdr.h.a + 1; }").expect("a block");
    assert_eq!((unchanged, changed), (32, 32 + 3 * 8));
}

#[test]
fn wrong_field_lists_are_refused() {
    let refused = |text: &str| -> Vec<(&'static str, u32)> {
        let found = check("flood.p4", text, &NoIncludes, &Options::default()).plain();
        found.into_iter().filter(|p| p.error).map(|p| (p.code, p.line)).collect()
    };
    let listed = |list: &str| {
        program("apply { }").replace("{ bit<8> x; }", &format!("{{ @field_list({list}) bit<8> x; }}"))
    };
    assert_eq!(refused(&listed("1, 2")), []);
    assert_eq!(refused(&listed("256")), [("E0607", 4)]);
    assert_eq!(refused(&listed("\"one\"")), [("E0607", 4)]);
    assert_eq!(refused(&listed("1 2")), [("E0201", 4)]);
    let unknown = "apply {\n resubmit_preserving_field_list(hdr.h.a[7:0]); }";
    assert_eq!(refused(&program(unknown)), [("E0503", 12)]);
    assert_eq!(refused(&program("apply {\n resubmit({ hdr.h.a + 1 }); }")), [("E0801", 12)]);
}
