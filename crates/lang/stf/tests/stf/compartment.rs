//! Functions in a compartment do what they do in the program.

use std::path::{Path, PathBuf};

use p4shield_p4::{Compiled, NoIncludes, Options, Placement, compile};
use p4shield_stf::device::{Device, Engine, SentPacket};
use p4shield_stf::externs;

/// Returns the path of an example.
fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/externs").join(name)
}

fn compiled(text: &str, placement: Placement) -> Compiled {
    let options = Options { placement, ..Options::default() };
    compile("program.p4", text, &NoIncludes, &options).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Returns what leaves for each packet, by placement; `None` without clang.
fn run(text: &str, functions: &Path, packets: &[Vec<u8>]) -> Option<[Vec<Vec<SentPacket>>; 2]> {
    let both = [Placement::Inline, Placement::Extern].map(|placement| {
        let compiled = compiled(text, placement);
        let object = match externs::compile(functions, &compiled.c_header) {
            Ok(object) => object,
            Err(why @ externs::ExternError::NoCompiler { .. }) => {
                p4shield_need::skip("clang", why);
                return None;
            }
            Err(why) => panic!("{why}"),
        };
        let mut device = Device::load(&compiled, &[object], Engine::Both).expect("a device");
        let runs = packets.iter().enumerate();
        Some(runs.map(|(n, p)| device.receive(1 + n as u32 % 2, p).expect("a result")).collect())
    });
    let [inline, placed] = both;
    Some([inline?, placed?])
}

fn ipv4(last: u8) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend([10, 0, 0, last, 10, 0, 1, 7, 1, 2, 3, 4, 5, 6, 7, 8]);
    packet
}

#[test]
fn a_keyed_function_marks_the_same_in_a_compartment() {
    let text = std::fs::read_to_string(example("keyed_mark.p4")).expect("the program");
    let packets: Vec<_> = (0..20).map(ipv4).chain([vec![0xee; 60], vec![1; 4]]).collect();
    let Some([inline, placed]) = run(&text, &example("keyed_mark.c"), &packets) else { return };
    assert_eq!(placed, inline);
    let mark = |sent: &[SentPacket]| sent.first().map(|s| [s.bytes[18], s.bytes[19]]);
    let marks: Vec<_> = inline.iter().step_by(2).take(10).map(|sent| mark(sent)).collect();
    assert!(marks.iter().all(|m| m.is_some_and(|m| m != [0, 0])), "{marks:?}");
    assert!(marks.windows(2).all(|m| m[0] != m[1]), "{marks:?}");
    // Packets without the right mark do not pass from port 2 to port 1; others do.
    assert!(inline.iter().skip(1).step_by(2).take(10).all(Vec::is_empty), "{inline:?}");
    let marked: Vec<_> = inline.iter().step_by(2).take(10).map(|sent| sent[0].bytes.clone()).collect();
    let back: Vec<_> = marked.iter().flat_map(|p| [vec![1; 4], p.clone()]).collect();
    let Some([inline, placed]) = run(&text, &example("keyed_mark.c"), &back) else { return };
    assert_eq!(placed, inline);
    assert!(inline.iter().skip(1).step_by(2).all(|sent| sent.len() == 1), "{inline:?}");
}

#[test]
fn only_the_compartment_has_the_map_with_the_key() {
    let text = std::fs::read_to_string(example("keyed_mark.p4")).expect("the program");
    let c = compiled(&text, Placement::Extern);
    let has = |object: &[u8], name: &str| object.windows(name.len()).any(|w| w == name.as_bytes());
    assert_eq!(
        (c.facts.externs.as_slice(), c.facts.placed.as_slice()),
        (&[][..], &["keyed_mark".to_owned()][..])
    );
    assert!(!has(&c.object, "keyed_mark\0"), "the switch's program does not name the function");
    assert!(has(&c.functions.expect("the compartment's program"), "keyed_mark\0"));
    let inline = compiled(&text, Placement::Inline);
    assert_eq!((c.facts.longest_message, inline.facts.longest_message), (56, 0));
    assert!(inline.functions.is_none() && has(&inline.object, "keyed_mark\0"));
}

/// A function that only counts gives nothing back, and its packet goes on all the same.
#[test]
fn a_function_without_a_result_answers_in_a_compartment() {
    let text = r"
        #include <v1model.p4>
        @compartment extern void note(in bit<8> x);
        header h_t { bit<8> x; }
        struct headers { h_t h; }
        struct metadata { }
        parser P(packet_in p, out headers hdr, inout metadata m, inout standard_metadata_t std) {
            state start { p.extract(hdr.h); transition accept; }
        }
        control V(inout headers hdr, inout metadata m) { apply { } }
        control I(inout headers hdr, inout metadata m, inout standard_metadata_t std) {
            apply { note(hdr.h.x); std.egress_spec = 1; }
        }
        control E(inout headers hdr, inout metadata m, inout standard_metadata_t std) { apply { } }
        control D(packet_out p, in headers hdr) { apply { p.emit(hdr); } }
        V1Switch(P(), V(), I(), E(), V(), D()) main;
    ";
    let folder = tempfile::tempdir().expect("a folder");
    let functions = folder.path().join("note.c");
    let c = r#"
        #include "p4shield_program.h"
        P4_MAP(notes, P4_ARRAY, uint32_t, uint64_t, 1);
        void note(uint8_t x) {
            uint32_t slot = 0;
            uint64_t *sum = p4_map_lookup(&notes, &slot);
            if (sum)
                *sum += x;
        }
    "#;
    std::fs::write(&functions, c).expect("a file");
    let Some([inline, placed]) = run(text, &functions, &[ipv4(1)]) else { return };
    assert_eq!((inline[0].len(), placed), (1, inline));
}
