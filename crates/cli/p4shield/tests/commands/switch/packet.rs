//! `p4shield switch packet`: packets to and from the controller of a switch.

use super::digest::Client;
use super::*;

/// Sends packets from port 1 to the controller, and those of the controller where it says.
const PUNTING: &str = r#"
#include <v1model.p4>
@controller_header("packet_in") header packet_in_t { bit<9> ingress_port; bit<7> pad; }
@controller_header("packet_out") header packet_out_t { bit<9> egress_port; bit<7> pad; }
header ethernet_t { bit<48> destination; bit<48> source; bit<16> kind; }
struct headers { packet_out_t packet_out; packet_in_t packet_in; ethernet_t ethernet; }
struct metadata { }
parser P(packet_in p, out headers hdr, inout metadata m, inout standard_metadata_t std) {
    state start { transition select(std.ingress_port) { 510: out_first; default: ethernet; } }
    state out_first { p.extract(hdr.packet_out); transition ethernet; }
    state ethernet { p.extract(hdr.ethernet); transition accept; }
}
control V(inout headers hdr, inout metadata m) { apply { } }
control I(inout headers hdr, inout metadata m, inout standard_metadata_t std) {
    apply {
        if (hdr.packet_out.isValid()) {
            std.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else {
            std.egress_spec = 510;
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = std.ingress_port;
        }
    }
}
control E(inout headers hdr, inout metadata m, inout standard_metadata_t std) { apply { } }
control D(packet_out p, in headers hdr) { apply { p.emit(hdr); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
"#;

/// An Ethernet frame with a payload of this byte, as hexadecimal.
fn frame(byte: u8) -> String {
    format!("0200000000020200000000010801{}", format!("{byte:02x}").repeat(46))
}

impl Scene {
    fn start_punting(&self) -> Guarded {
        let mut command = self.program_command(&self.file("punting.p4", PUNTING));
        self.start_command(command.args(["--cpu-port", "510"]))
    }
}

#[test]
fn each_controller_gets_the_packets_of_the_cpu_port() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start_punting();
    let mut first = Client::start(&scene, &["packet", "receive"]);
    let mut second = Client::start(&scene, &["packet", "receive", "--count", "1"]);
    for byte in [1, 2] {
        scene.asks(&["trace", "--packet", &frame(byte), "--port", "1"]);
    }
    for byte in [1, 2] {
        let packet = first.next();
        assert_eq!(packet["values"][0], serde_json::json!(["ingress_port", "0x001"]), "{packet}");
        assert_eq!(packet["payload"], frame(byte), "{packet}");
    }
    assert_eq!(second.next()["payload"], frame(1));
    assert_eq!(second.end(), Some(0));
}

#[test]
fn a_packet_of_the_controller_leaves_by_the_port_that_it_names() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start_punting();
    for _ in 0..3 {
        scene.asks(&["packet", "send", &frame(0x5a), "egress_port=2"]);
    }
    // Nothing else leaves by port 2.
    let counts = |name: &str, number: u64| {
        let status: serde_json::Value = serde_json::from_str(&scene.asks(&["status", "--json"])).unwrap();
        let port = status["ports"].as_array().unwrap().iter().find(|p| p["number"] == number).unwrap();
        assert_eq!(port["state"], "up", "{status}");
        port[name].as_u64().unwrap()
    };
    wait_until("the packets at port 2", 20, || counts("sent", 2) == 3).unwrap();
    assert_eq!(counts("sent_bytes", 2), 3 * 60);
    assert_eq!(counts("received", 510), 3);
    scene.refuses(
        &["packet", "send", &frame(1), "egress_port=512"],
        "the value of egress_port does not fit 9 bits",
    );
    scene.refuses(&["packet", "send", &frame(1), "port=2"], "known: egress_port, pad");
    scene.refuses(&["port", "delete", "510"], "the CPU port is one until the switch stops");
}

#[test]
fn a_switch_without_a_cpu_port_refuses_packets_of_controllers() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    let remedy = "the switch has no CPU port; stop it, and give it --cpu-port NUMBER";
    scene.refuses(&["packet", "receive"], remedy);
    scene.refuses(&["packet", "send", &frame(1)], remedy);
    let wrong = scene.ask(&["port", "add", "9=cpu:controller"]);
    assert_eq!(code(&wrong), 2);
    assert!(stderr(&wrong).contains("by --cpu-port NUMBER"), "{}", stderr(&wrong));
}
