//! Digests: messages that programs write to their map, as a reader sees them.

use crate::common::Bench;
use p4shield_abi::digest::{DIGEST_MAP, MAX_DIGESTS};
use p4shield_abi::schema::{MessageKind, Schema};
use p4shield_bpf::Object;
use p4shield_p4::{NoIncludes, Options, compile};
use p4shield_tables::Described;
use p4shield_tables::message::{DigestMap, messages, sent, view};

const PROGRAM: &str = r#"
#include <v1model.p4>
header h_t { bit<8> kind; bit<48> address; bit<72> wide; }
@controller_header("packet_in") header in_t { bit<9> port; bit<7> rest; }
@controller_header("packet_out") header out_t { bit<16> port; }
struct headers { h_t h; in_t i; out_t o; }
struct metadata { }
struct learn_t { @name("mac") bit<48> address; bit<9> port; bool first; }
parser P(packet_in p, out headers hdr, inout metadata m, inout standard_metadata_t std) {
    state start { p.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout metadata m) { apply { } }
control I(inout headers hdr, inout metadata m, inout standard_metadata_t std) {
    apply {
        if (hdr.h.kind == 1) { digest<learn_t>(1, { hdr.h.address, std.ingress_port, true }); }
        if (hdr.h.kind == 2) { digest(1, { hdr.h.wide, hdr.h.kind + 1 }); }
        if (hdr.h.kind == 3) { digest(1, hdr.h); hdr.h.address = 0; digest(1, hdr.h.address); }
    }
}
control E(inout headers hdr, inout metadata m, inout standard_metadata_t std) { apply { } }
control D(packet_out p, in headers hdr) { apply { p.emit(hdr); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
"#;

/// A program that sends digests, and what its object says of it.
struct Sender {
    bench: Bench,
    described: Described,
}

impl Sender {
    fn new(text: &str) -> Self {
        let bench = Bench::new(text);
        let object = Object::parse(&bench.compiled.object).expect("an object");
        let maps = object.maps().map(|(symbol, definition)| (symbol.to_owned(), *definition)).collect();
        let schema = object.schema().map(Schema::decode);
        Self { bench, described: Described { program: [0; 32], maps, schema } }
    }

    fn run(&mut self, kind: u8, address: u64) {
        let packet = [&[kind], &address.to_be_bytes()[2..], &[0xee; 9]].concat();
        self.bench.run(&packet);
    }

    fn sent(&self) -> u64 {
        sent(&self.bench.map_value(DIGEST_MAP, &0_u32.to_ne_bytes()))
    }

    /// Returns name and values of a digest.
    fn digest(&self, number: u64) -> Option<String> {
        let map = DigestMap::find(&self.described).expect("the map of digests");
        let element = self.bench.map_value(DIGEST_MAP, &DigestMap::index(number).to_ne_bytes());
        let digest = map.digest(number, &element)?;
        let values: Vec<_> = digest.values.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Some(format!("{} {}", digest.name, values.join(" ")))
    }
}

#[test]
fn digests_carry_structs_lists_headers_and_values() {
    let mut sender = Sender::new(PROGRAM);
    sender.bench.meta.input_port = 7;
    sender.run(0, 0);
    assert_eq!((sender.sent(), sender.digest(0)), (0, None));
    for kind in 1..=3 {
        sender.run(kind, 0xa_0b0c_0d0e);
    }
    let all: Vec<_> = (0..sender.sent()).map(|n| sender.digest(n).unwrap()).collect();
    let expected = [
        "learn_t mac=0x000a0b0c0d0e port=0x007 first=0x1",
        "digest_0 hdr.h.wide=0xeeeeeeeeeeeeeeeeee field1=0x03",
        "h_t $valid$=0x1 kind=0x03 address=0x000a0b0c0d0e wide=0xeeeeeeeeeeeeeeeeee",
        "digest_1 hdr.h.address=0x000000000000",
    ];
    assert_eq!(all, expected);
}

#[test]
fn later_digests_overwrite_the_oldest() {
    let mut sender = Sender::new(PROGRAM);
    for n in 0..u64::from(MAX_DIGESTS) + 2 {
        sender.run(1, n);
    }
    assert_eq!(sender.sent(), u64::from(MAX_DIGESTS) + 2);
    assert_eq!((sender.digest(0), sender.digest(1)), (None, None));
    assert!(sender.digest(2).unwrap().contains("mac=0x000000000002"));
    assert!(sender.digest(1025).unwrap().contains("mac=0x000000000401"));
}

#[test]
fn headers_of_packets_to_the_controller_are_described() {
    let sender = Sender::new(PROGRAM);
    let fields = |kind| messages(&sender.described, kind).map(|m| view(m).fields).collect::<Vec<_>>();
    assert_eq!(fields(MessageKind::PacketIn), [[("port".to_owned(), 9), ("rest".to_owned(), 7)]]);
    assert_eq!(fields(MessageKind::PacketOut), [[("port".to_owned(), 16)]]);
}

#[test]
fn a_program_without_digests_has_no_map_for_them() {
    let silent = PROGRAM.lines().filter(|l| !l.contains("digest")).collect::<Vec<_>>().join("\n");
    assert!(DigestMap::find(&Sender::new(&silent).described).is_none());
}

#[test]
fn what_a_digest_cannot_carry_is_refused() {
    let refused = |data: &str, why: &str| {
        let wide: String = (0..70).map(|n| format!("bit<8> f{n}; ")).collect();
        let text = PROGRAM
            .replace("digest(1, hdr.h.address)", &format!("digest(1, {data})"))
            .replace("struct headers { h_t h;", "struct headers { h_t h; h_t[2] s;")
            .replace("struct metadata { }", &format!("struct metadata {{ {wide} }}"));
        let error = compile("test.p4", &text, &NoIncludes, &Options::default()).unwrap_err();
        assert!(error.plain().iter().any(|p| p.message.contains(why)), "{data}: {error}");
    };
    refused("hdr", "a digest cannot carry headers");
    refused("{ hdr.h.kind, hdr.s }", "a digest cannot carry");
    refused("m", "a digest carries at most 64 words of 64 bits, not 70");
}
