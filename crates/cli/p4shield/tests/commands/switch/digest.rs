//! `p4shield switch digest`: messages of a program that runs.

use super::*;
use std::io::{BufRead as _, BufReader};

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

impl Scene {
    /// Starts to watch digests with these options, and waits until it does.
    fn watch_digests(&self, options: &[&str]) -> (Guarded, impl Iterator<Item = String>) {
        let mut command = self.host.command(env!("CARGO_BIN_EXE_p4shield"));
        command
            .args(["switch", "digest", "watch", "--json"])
            .args(options)
            .arg("--socket")
            .arg(self.socket());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = Guarded::spawn(&mut command).unwrap();
        let mut note = String::new();
        BufReader::new(child.child().stderr.take().unwrap()).read_line(&mut note).unwrap();
        assert!(note.contains("watching digests"), "{note}");
        let lines = BufReader::new(child.child().stdout.take().unwrap()).lines().map(Result::unwrap);
        (child, lines)
    }

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
    let (_first, mut first) = scene.watch_digests(&["learn_t"]);
    let (mut second, others) = scene.watch_digests(&["--count", "2"]);
    scene.send_from(0xaa, 1);
    scene.send_from(0xbb, 2);
    scene.send_from(0xcc, 1);
    let digest = |line: Option<String>| {
        let digest: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        let value = |n: usize| digest["values"][n][1].as_str().unwrap().to_owned();
        (digest["name"].as_str().unwrap().to_owned(), value(0), value(1))
    };
    for (source, port) in [("aa", "0x001"), ("bb", "0x002"), ("cc", "0x001")] {
        let expected = ("learn_t".to_owned(), format!("0x0200000000{source}"), port.to_owned());
        assert_eq!(digest(first.next()), expected);
    }
    assert_eq!(others.count(), 2);
    wait_until("the end of the watch", 20, || second.ended().is_some()).unwrap();
    assert_eq!(second.ended().unwrap().code(), Some(0));
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
    let (_client, mut digests) = scene.watch_digests(&[]);
    scene.send_from(0xaa, 1);
    assert!(digests.next().unwrap().contains("0x0200000000aa"));
    let other = LEARNING.replace("bit<9> port; }", "bit<9> port; bit<8> more; }");
    let other = other.replace("std.ingress_port });", "std.ingress_port, 8w5 });");
    scene.asks(&["load", &scene.file("other.p4", &other)]);
    scene.send_from(0xbb, 2);
    let next = digests.next().unwrap();
    assert!(next.contains("0x0200000000bb") && next.contains(r#"["more","0x05"]"#), "{next}");
}
