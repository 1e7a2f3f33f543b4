//! Programs that are compiled for tracing: the events of a run, as a reader sees them.

use crate::common::Bench;
use p4shield_bpf::Object;
use p4shield_p4::{NoIncludes, Options, compile};
use p4shield_tables::trace::{event, points};

const PROGRAM: &str = r"
#include <v1model.p4>
header h_t { bit<8> kind; bit<48> address; bit<128> wide; }
struct headers { h_t[2] h; }
struct metadata { }
parser P(packet_in p, out headers hdr, inout metadata m, inout standard_metadata_t std) {
    state start { p.extract(hdr.h.next); transition select(hdr.h.last.kind) { 1: start; default: accept; } }
}
control V(inout headers hdr, inout metadata m) { apply { } }
control I(inout headers hdr, inout metadata m, inout standard_metadata_t std) {
    action drop() { mark_to_drop(std); }
    action set(bit<9> port, bit<128> wide) { std.egress_spec = port; hdr.h[0].wide = wide; }
    table t {
        key = { hdr.h[0].address: exact; hdr.h[0].kind: exact @name(quoted); }
        actions = { set; drop; }
        const entries = { (0x0a0b0c0d0e0f, 2): set(7, 0x112233445566778899aabbccddeeff00); }
        const default_action = drop();
    }
    apply { if (hdr.h[0].isValid()  &&  std.ingress_port != 3) { t.apply(); } else { drop(); } }
}
control E(inout headers hdr, inout metadata m, inout standard_metadata_t std) { apply { } }
control D(packet_out p, in headers hdr) { apply { p.emit(hdr); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
";

/// Returns kinds, names and values of the events of a run.
fn traced(packet: &[u8]) -> Vec<String> {
    let program = PROGRAM.replace("@name(quoted)", "@name(\"kind\")");
    let options = Options { trace: true, ..Options::default() };
    let compiled = compile("test.p4", &program, &NoIncludes, &options).unwrap_or_else(|e| panic!("{e}"));
    let object = Object::parse(&compiled.object).expect("an object");
    let known = points(object.trace_points().expect("trace points")).expect("valid points");
    let mut bench = Bench::of(compiled);
    let events = bench.events(packet);
    let shown = events.iter().map(|words| {
        let e = event(&known, words).expect("a point");
        let values: Vec<_> = e.values.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert!(e.place.starts_with("test.p4:"), "{e:?}");
        [format!("{:?} {}", e.kind, e.name)].into_iter().chain(values).collect::<Vec<_>>().join(" ")
    });
    shown.collect()
}

fn packet(kind: u8, address: u64) -> Vec<u8> {
    [&[kind], &address.to_be_bytes()[2..], &[0xee; 16]].concat()
}

#[test]
fn a_trace_shows_states_tables_actions_and_values() {
    let expected = [
        "Run run from=arrival port=0x0000",
        "State start",
        "Parsed parser error=NoError",
        "Control V",
        "Control I",
        "Condition hdr.h[0].isValid() && std.ingress_port != 3 is=0x1",
        "Table I.t hdr.h[0].address=0x0a0b0c0d0e0f kind=0x02",
        "Action I.set hit=0x1 port=0x007 wide=0x112233445566778899aabbccddeeff00",
        "Control E",
        "Control V",
        "Control D",
    ];
    assert_eq!(traced(&packet(2, 0x0a0b_0c0d_0e0f)), expected);
}

#[test]
fn a_trace_shows_misses_externs_and_parser_errors() {
    let missed = traced(&packet(2, 5));
    let end = ["Action I.drop hit=0x0", "Extern mark_to_drop"];
    assert_eq!(missed[missed.len() - 2..], end, "{missed:?}");
    let short = traced(&[1, 2, 3]);
    assert_eq!(short[1..3], ["State start", "Parsed parser error=PacketTooShort"], "{short:?}");
    let called = "Call drop";
    assert!(short.iter().any(|e| e == called), "{short:?}");
    assert!(short.iter().any(|e| e.ends_with("is=0x0")), "{short:?}");
}

#[test]
fn each_turn_of_a_parser_loop_is_an_event() {
    let stacked = [packet(1, 5), packet(2, 6)].concat();
    let states = traced(&stacked).iter().filter(|e| *e == "State start").count();
    assert_eq!(states, 2);
}

#[test]
fn a_program_has_trace_points_only_on_demand() {
    let plain = compile(
        "test.p4",
        include_str!("../../../../../examples/programs/router.p4"),
        &NoIncludes,
        &Options::default(),
    )
    .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(Object::parse(&plain.object).expect("an object").trace_points(), None);
    assert!(!plain.facts.maps.iter().any(|m| m.name == p4shield_abi::trace::TRACE_MAP));
}
