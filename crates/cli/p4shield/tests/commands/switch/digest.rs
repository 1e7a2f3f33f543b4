//! `p4shield switch digest`: messages of a program that runs.

use super::*;
use std::io::{BufRead as _, BufReader, Lines};
use std::process::{ChildStdout, Stdio};

/// A hub that reports each packet's source address.
const LEARNING: &str = r"
#include <v1model.p4>
header ethernet_t { bit<48> destination; bit<48> source; bit<16> kind; }
struct headers { ethernet_t ethernet; }
struct metadata { }
struct learn_t { bit<48> source; bit<9> port; }
parser P(packet_in p, out headers hdr, inout metadata m, inout standard_metadata_t std) {
    state start { p.extract(hdr.ethernet); transition accept; }
}
control V(inout headers hdr, inout metadata m) { apply { } }
control I(inout headers hdr, inout metadata m, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 3 - std.ingress_port;
        digest<learn_t>(1, { hdr.ethernet.source, std.ingress_port });
    }
}
control E(inout headers hdr, inout metadata m, inout standard_metadata_t std) { apply { } }
control D(packet_out p, in headers hdr) { apply { p.emit(hdr); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
";

/// A client that gets messages of a switch as JSON lines.
pub(super) struct Client {
    process: Guarded,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Client {
    /// Starts the command, and waits until it follows the switch.
    pub(super) fn start(scene: &Scene, words: &[&str]) -> Self {
        let mut command = scene.host.command(env!("CARGO_BIN_EXE_p4shield"));
        command.arg("switch").args(words).args(["--json", "--socket"]).arg(scene.socket());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Guarded::spawn(&mut command).unwrap();
        let mut note = String::new();
        BufReader::new(process.child().stderr.take().unwrap()).read_line(&mut note).unwrap();
        assert!(note.contains("Ctrl-C ends it"), "{note}");
        let lines = BufReader::new(process.child().stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// Returns the next message.
    pub(super) fn next(&mut self) -> serde_json::Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }

    /// Waits for the end of the command, which has no further message, and returns its exit code.
    pub(super) fn end(&mut self) -> Option<i32> {
        assert!(self.lines.next().is_none());
        wait_until("the end of the client", 20, || self.process.ended().is_some()).unwrap();
        self.process.ended().unwrap().code()
    }
}

impl Scene {
    /// Sends a packet from this source address, as if it had arrived at a port.
    fn send_from(&self, source: u8, port: u8) {
        let packet = format!("02000000000102000000{source:04x}0800{}", "00".repeat(46));
        self.asks(&["trace", "--packet", &packet, "--port", &port.to_string()]);
    }
}

#[test]
fn each_client_gets_all_digests_as_they_come() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start_program(&scene.file("learning.p4", LEARNING));
    assert_eq!(scene.asks(&["digest", "list"]), "learn_t: source bit<48>, port bit<9>\n");
    let mut first = Client::start(&scene, &["digest", "watch", "learn_t"]);
    let mut second = Client::start(&scene, &["digest", "watch", "--count", "2"]);
    scene.send_from(0xaa, 1);
    scene.send_from(0xbb, 2);
    scene.send_from(0xcc, 1);
    for (source, port) in [("aa", "0x001"), ("bb", "0x002"), ("cc", "0x001")] {
        let digest = first.next();
        let values = serde_json::json!([["source", format!("0x0200000000{source}")], ["port", port]]);
        assert_eq!((&digest["name"], &digest["values"]), (&"learn_t".into(), &values));
    }
    second.next();
    second.next();
    assert_eq!(second.end(), Some(0));
}

#[test]
fn digests_that_are_not_there_are_refused() {
    let Some(scene) = Scene::new() else { return };
    let switch = scene.start_program(&scene.file("learning.p4", LEARNING));
    scene.refuses(&["digest", "watch", "other_t"], "no digest carries other_t; the program sends learn_t");
    drop(switch);
    let _switch = scene.start();
    scene.refuses(&["digest", "watch"], "the program sends no digests: it calls digest() nowhere");
}

#[test]
fn digests_go_on_after_the_program_is_replaced() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start_program(&scene.file("learning.p4", LEARNING));
    let mut client = Client::start(&scene, &["digest", "watch"]);
    scene.send_from(0xaa, 1);
    assert_eq!(client.next()["values"][0][1], "0x0200000000aa");
    let other = LEARNING.replace("bit<9> port; }", "bit<9> port; bit<8> more; }");
    let other = other.replace("std.ingress_port });", "std.ingress_port, 8w5 });");
    scene.asks(&["load", &scene.file("other.p4", &other)]);
    scene.send_from(0xbb, 2);
    let next = client.next();
    assert_eq!(next["values"][0][1], "0x0200000000bb");
    assert_eq!(next["values"][2], serde_json::json!(["more", "0x05"]));
}
