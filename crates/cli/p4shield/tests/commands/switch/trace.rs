//! `p4shield switch trace` and `capture`: what happens to packets that flow.

use super::*;
use std::io::{BufRead as _, BufReader};

/// An ICMP packet from the left host to this address, as hexadecimal.
fn icmp(destination: &str, ttl: u8) -> String {
    let destination: Vec<u8> = destination.split('.').map(|n| n.parse().unwrap()).collect();
    let mut ip = [&[0x45, 0, 0, 28, 0, 0, 0, 0, ttl, 1, 0, 0, 10, 9, 1, 1][..], &destination].concat();
    let sum: u32 = ip.as_chunks().0.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let ip: String = ip.iter().map(|b| format!("{b:02x}")).collect();
    format!("0200000000fe0200000000010800{ip}0800f7ff00000000")
}

#[test]
fn a_trace_shows_the_way_of_packets_that_flow() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    scene.add_routes();
    let shown = scene.asks_while_pinging(&["trace", "--count", "2", "--leaves-by", "2"]);
    for part in [
        "port 1, 98 bytes",
        "state ipv4",
        "parser ends: NoError",
        "table RouterIngress.routes: hdr.ipv4.destination=0x0a090201",
        "hit: RouterIngress.forward next_hop=0x020000000002 port=0x002",
        "leaves by port 2, 98 bytes",
    ] {
        assert_eq!(shown.matches(part).count(), 2, "{part}: {shown}");
    }
    assert!(shown.lines().any(|l| l.contains("state ipv4") && l.contains("router.p4:")), "{shown}");
    assert!(scene.answers(), "the switch goes on");
}

#[test]
fn a_trace_keeps_registers_and_entries() {
    let Some(scene) = Scene::new() else { return };
    let router = std::fs::read_to_string(example("programs/router.p4")).unwrap();
    let counting = router
        .replace("    table routes {", "    counter(4, CounterType.packets) seen;\n    table routes {")
        .replace("routes.apply();", "routes.apply(); seen.count((bit<32>) std.ingress_port);");
    let _switch = scene.start_program(&scene.file("counting.p4", &counting));
    scene.add_routes();
    let routes = scene.asks(&["table", "list", "routes"]);
    for _ in 0..3 {
        scene.asks(&["trace", "--packet", &icmp("10.9.2.1", 64), "--port", "1"]);
    }
    let shown: serde_json::Value =
        serde_json::from_str(&scene.asks(&["counter", "list", "seen", "--json"])).unwrap();
    assert_eq!(shown["objects"][0]["rows"][1]["packets"], 3, "{shown}");
    assert_eq!(scene.asks(&["table", "list", "routes"]), routes);
}

#[test]
fn a_given_packet_passes_the_program() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    scene.add_routes();
    let sends = |to, ttl| scene.asks(&["trace", "--packet", &icmp(to, ttl), "--port", "1"]);
    let shown = sends("10.9.2.1", 64);
    assert!(shown.contains("leaves by port 2, 42 bytes"), "{shown}");
    let shown = sends("10.77.0.1", 64);
    assert!(shown.contains("miss: RouterIngress.drop") && shown.contains("dropped: program"), "{shown}");
    let shown = sends("10.9.2.1", 1);
    assert!(shown.contains("std.checksum_error == 0): false"), "{shown}");
    let json = scene.asks(&["trace", "--packet", &icmp("10.9.2.1", 64), "--port", "1", "--json"]);
    let record: serde_json::Value = serde_json::from_str(&json).unwrap();
    let steps = record["steps"].as_array().unwrap();
    assert_eq!(steps.last().unwrap()["sent"]["port"], 2, "{json}");
    scene.refuses(&["trace", "--packet", "00", "--port", "7"], "the switch has no port 7");
    scene
        .refuses(&["trace", "--through", "rotes"], "unknown state, control, table, action or extern `rotes`");
}

#[test]
fn a_given_packet_is_followed_through_a_queue() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    scene.add_routes();
    scene.asks(&["queue", "set", "2", "--packets", "1", "--depth", "4"]);
    for _ in 0..2 {
        let shown = scene.asks(&["trace", "--packet", &icmp("10.9.2.1", 64), "--port", "1"]);
        let fates: Vec<_> = shown.lines().rev().take(4).map(str::trim).filter(|l| !l.is_empty()).collect();
        let [sent, leaves, waits] = fates.as_slice() else { panic!("{shown}") };
        assert_eq!(
            (*sent, *waits),
            ("leaves by port 2, 42 bytes", "waits in the queue of port 2"),
            "{shown}"
        );
        assert!(leaves.starts_with("leaves the queue of port 2 after "), "{shown}");
    }
    let shown = scene.asks(&["trace", "--packet", &icmp("10.9.2.1", 64), "--port", "1", "--json"]);
    let record: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let is_wait = |step: &serde_json::Value| step["waited"]["nanoseconds"].as_u64() > Some(0);
    assert!(record["steps"].as_array().unwrap().iter().any(is_wait), "{shown}");
}

#[test]
fn a_program_without_source_cannot_be_traced() {
    let Some(scene) = Scene::new() else { return };
    let object = scene.folder.path().join("router.o").display().to_string();
    let compiled = p4shield(&["compile", &example("programs/router.p4"), "-o", &object]);
    assert_eq!(code(&compiled), 0, "{}", stderr(&compiled));
    let _switch = scene.start_program(&object);
    scene.refuses(&["trace"], "start it with the P4 source to trace packets");
    scene.asks(&["load", &example("programs/router.p4")]);
    scene.asks(&["trace", "--packet", &icmp("10.9.2.1", 64), "--port", "1"]);
}

#[test]
fn a_capture_has_what_arrives_leaves_or_is_dropped() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    scene.add_routes();
    let file = |name: &str| scene.folder.path().join(name).display().to_string();
    let [arrived, left, dropped] = ["in.pcap", "out.pcap", "drops.pcap"].map(file);
    scene.asks_while_pinging(&["capture", &arrived, "--port", "1", "--count", "3"]);
    scene.asks_while_pinging(&["capture", &left, "--leaves-by", "2", "--count", "3"]);
    // The TTL of each packet, behind 24 bytes of the file, 16 of the packet, and 22 of the frame before it.
    let ttl = |path: &str| {
        let bytes = std::fs::read(path).unwrap();
        let packets = bytes[24..].chunks(16 + 98).map(|p| p[16 + 22]).collect::<Vec<_>>();
        (bytes.len() - 24, packets)
    };
    assert_eq!(ttl(&arrived), (3 * (16 + 98), vec![64; 3]));
    assert_eq!(ttl(&left), (3 * (16 + 98), vec![63; 3]));
    scene.asks(&["table", "set", "routes", "10.9.2.0/24", "--action", "drop"]);
    scene.asks_while_pinging(&["capture", &dropped, "--dropped", "--count", "2"]);
    assert_eq!(ttl(&dropped).1, [64, 64]);
    let full = scene.ask(&["capture", "/dev/full", "--port", "1", "--for", "1"]);
    assert!(stderr(&full).contains("/dev/full") && code(&full) == 1, "{}", stderr(&full));
    assert!(code(&scene.ask(&["status"])) == 0, "the switch goes on");
}

#[test]
fn one_client_records_at_a_time() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    let socket = scene.socket().display().to_string();
    let mut first = Command::new(env!("CARGO_BIN_EXE_p4shield"));
    first.args(["switch", "capture", "/dev/null", "--count", "1000000", "--socket", &socket]);
    let mut first = first.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(first.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("recording"), "{said}");
    scene.refuses(&["trace", "--for", "1"], "another client records packets");
    // One that is killed leaves nothing behind.
    first.kill().unwrap();
    first.wait().unwrap();
    wait_until("the end of the first recording", 60, || code(&scene.ask(&["trace", "--for", "1"])) == 0)
        .unwrap();
}
