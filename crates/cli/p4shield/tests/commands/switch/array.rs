//! `p4shield switch counter`, `register` and `meter`.

use super::*;

/// A wire between two ports that is open while a register says so, and polices what is not ARP.
const GATE: &str = r"
#include <v1model.p4>
header ethernet_t { bit<96> addresses; bit<16> kind; }
struct headers_t { ethernet_t ethernet; }
struct metadata_t { }
parser prs(packet_in p, out headers_t hdr, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(hdr.ethernet); transition accept; }
}
control none(inout headers_t hdr, inout metadata_t m) { apply { } }
control ing(inout headers_t hdr, inout metadata_t m, inout standard_metadata_t s) {
    register<bit<8>>(4) open;
    counter(1000, CounterType.packets_and_bytes) seen;
    meter(2, MeterType.packets) police;
    apply {
        bit<8> is_open;
        bit<2> colour = 0;
        open.read(is_open, 3);
        seen.count((bit<32>)s.ingress_port);
        if (hdr.ethernet.kind == 0x0800) { police.execute_meter(1, colour); }
        if (is_open != 1 || colour == 2) { mark_to_drop(s); } else { s.egress_spec = 3 - s.ingress_port; }
    }
}
control eg(inout headers_t hdr, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control dprs(packet_out p, in headers_t hdr) { apply { p.emit(hdr.ethernet); } }
V1Switch(prs(), none(), ing(), eg(), none(), dprs()) main;
";

fn rows(scene: &Scene, words: &[&str]) -> serde_json::Value {
    let view: serde_json::Value = serde_json::from_str(&scene.asks(&[words, &["--json"]].concat())).unwrap();
    assert_eq!(view["objects"].as_array().unwrap().len(), 1, "{view}");
    view["objects"][0]["rows"].clone()
}

#[test]
fn registers_counters_and_meters_are_set_by_command() {
    let Some(scene) = Scene::new() else { return };
    for (ns, other) in [(&scene.left, 2), (&scene.right, 1)] {
        ns.ip(&format!("route replace 10.9.{other}.0/24 dev eth0")).unwrap();
    }
    let _switch = scene.start_program(&scene.file("gate.p4", GATE));
    assert!(!scene.pings(), "the register is 0");
    scene.asks(&["register", "set", "open", "3", "1"]);
    wait_until("a ping through the open gate", 20, || scene.pings()).unwrap();
    assert_eq!(rows(&scene, &["register", "list"])[3]["value"], 1);
    assert!(rows(&scene, &["counter", "list"])[0]["packets"].as_u64().unwrap() > 0);

    // One packet in 1000 seconds: the second ping is red.
    scene.asks(&["meter", "set", "police", "1", "0.001:1"]);
    assert!(!scene.pings() || !scene.pings(), "the meter has no token left");
    assert_eq!(rows(&scene, &["meter", "list"])[1]["meter"]["peak_rate"], 1);
    scene.asks(&["meter", "reset", "police"]);
    wait_until("a ping without rates", 20, || scene.pings()).unwrap();

    let commands =
        "register_reset open\ncounter_write seen 999 5 600\nmeter_array_set_rates police 0.5:1 1:2\n";
    scene.asks(&["table", "load", &scene.file("arrays.txt", commands)]);
    assert!(!scene.pings(), "the file has closed the gate");
    let last = rows(&scene, &["counter", "list"]).as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["index"], &last["packets"], &last["bytes"]), (&999.into(), &5.into(), &600.into()));
    scene.asks(&["counter", "set", "seen", "all"]);
    assert_eq!(rows(&scene, &["counter", "list"]).as_array().unwrap().len(), 0, "all are 0");

    // A file that fails at its end leaves the register as it was.
    scene.asks(&["register", "set", "open", "all", "7"]);
    let before = rows(&scene, &["register", "list"]);
    let file = scene.file("wrong.txt", "register_reset open\nregister_write open 4 1\n");
    scene.refuses(&["table", "load", &file], "wrong.txt:2: ing.open has no element 4: its last one is 3");
    let file = scene.file(
        "wrong.txt",
        "register_reset open\nmc_mgrp_create 1\nmc_node_create 1 9\nmc_node_associate 1 0\n",
    );
    scene.refuses(&["table", "load", &file], "wrong.txt:4: the switch has no port 9");
    for (words, why) in [
        (&["register", "set", "open", "0", "256"][..], "256 does not fit the 8 bits of ing.open"),
        (&["register", "set", "seen", "0", "1"], "unknown register `seen`; known: ing.open"),
        (&["counter", "set", "seen", "1000"], "ing.seen has no element 1000"),
        (&["meter", "set", "police", "0", "2:1", "1:1"], "which is at least as great"),
    ] {
        scene.refuses(words, why);
    }
    assert_eq!(code(&scene.ask(&["meter", "set", "police", "0", "fast"])), 2);
    assert_eq!(rows(&scene, &["register", "list"]), before);
}

/// A wire that polices by the kind of a frame.
const LIMITS: &str = r"
#include <v1model.p4>
header ethernet_t { bit<48> destination; bit<48> source; bit<16> kind; }
struct headers_t { ethernet_t ethernet; }
struct metadata_t { bit<2> colour; }
parser prs(packet_in p, out headers_t hdr, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(hdr.ethernet); transition accept; }
}
control none(inout headers_t hdr, inout metadata_t m) { apply { } }
control ing(inout headers_t hdr, inout metadata_t m, inout standard_metadata_t s) {
    direct_counter(CounterType.packets_and_bytes) hits;
    direct_meter<bit<2>>(MeterType.packets) limit;
    action hit() { hits.count(); }
    action police() { limit.read(m.colour); }
    table kinds { key = { hdr.ethernet.kind: exact; } actions = { hit; NoAction; } counters = hits; }
    table limits { key = { hdr.ethernet.kind: ternary; } actions = { police; NoAction; } meters = limit; }
    apply {
        kinds.apply();
        limits.apply();
        if (m.colour == 2) { mark_to_drop(s); } else { s.egress_spec = 3 - s.ingress_port; }
    }
}
control eg(inout headers_t hdr, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control dprs(packet_out p, in headers_t hdr) { apply { p.emit(hdr.ethernet); } }
V1Switch(prs(), none(), ing(), eg(), none(), dprs()) main;
";

#[test]
fn counters_and_meters_of_entries_are_set_by_command() {
    let Some(scene) = Scene::new() else { return };
    scene.neighbours();
    let _switch = scene.start_program(&scene.file("limits.p4", LIMITS));
    let commands = "table_add kinds hit 0x800 =>\ntable_add kinds hit 0x806 =>\ncounter_write hits 1 5 600\n\
                    table_add limits police 0x800&&&0xffff => 1\nmeter_array_set_rates limit 0.5:9 0.5:9\n";
    scene.asks(&["table", "load", &scene.file("limits.txt", commands)]);
    let counted = |kind: &str| {
        let all = rows(&scene, &["counter", "list"]);
        let row = all.as_array().unwrap().iter().find(|row| row["keys"][0]["exact"] == kind).unwrap().clone();
        row["packets"].as_u64().unwrap()
    };
    assert!(counted("0x0806") >= 5, "the handle names the second entry");
    wait_until("a ping through the wire", 20, || scene.pings()).unwrap();
    assert!(counted("0x0800") >= 2);
    let rates = rows(&scene, &["meter", "list"]);
    let meter = &rates[0]["meter"];
    assert_eq!((&meter["committed_rate"], &meter["peak_burst"]), (&500_000_000.into(), &9.into()), "{rates}");

    // One packet in 1000 seconds: the second ping is red.
    let entry = ["meter", "entry", "limit", "0x800/0xffff", "--priority", "16777214"];
    scene.asks(&[&entry[..], &["--rates", "0.001:1"]].concat());
    assert!(!scene.pings() || !scene.pings(), "the meter has no token left");
    assert_eq!(rows(&scene, &["meter", "list"])[0]["meter"]["peak_rate"], 1);
    scene.asks(&entry);
    wait_until("a ping without rates", 20, || scene.pings()).unwrap();
    scene.asks(&["meter", "set", "limit", "all", "7:7"]);
    scene.asks(&["counter", "entry", "hits", "0x806", "--packets", "70"]);
    assert!(counted("0x0806") >= 70);
    scene.asks(&["counter", "reset", "hits"]);
    assert!(counted("0x0806") < 70);

    let before = rows(&scene, &["meter", "list"]);
    for (words, why) in [
        (&["meter", "set", "limit", "0", "1:1"][..], "ing.limit is in the entries of ing.limits"),
        (&["meter", "entry", "limit", "0x801/0xffff", "--priority", "1"], "ing.limits has no such entry"),
        (&["counter", "entry", "hits", "0x807"], "ing.kinds has no such entry"),
        (&["counter", "entry", "limit", "1"], "unknown counter `limit`; known: ing.hits"),
    ] {
        scene.refuses(words, why);
    }
    // What came before the last line is undone: the rates, and the entry that they were of.
    let wrong = "table_add limits police 0x806&&&0xffff => 2\nmeter_array_set_rates limit 2:2 2:2\n\
                 meter_set_rates limit 1 3:3 3:3\n";
    let file = scene.file("wrong.txt", wrong);
    scene.refuses(&["table", "load", &file], "wrong.txt:3: ing.limits has no entry 1 of this file");
    let wrong = wrong.replace("meter_set_rates limit 1", "mirroring_add 1 9\nmeter_set_rates limit 0");
    let file = scene.file("wrong.txt", &wrong);
    scene.refuses(&["table", "load", &file], "wrong.txt:3: the switch has no port 9");
    let wrong = wrong.replace("mirroring_add 1 9", "table_add limits police 0x806&&&0xffff => 2");
    let file = scene.file("wrong.txt", &wrong);
    scene.refuses(&["table", "load", &file], "wrong.txt:3: ing.limits has an entry that matches the same");
    assert_eq!(rows(&scene, &["meter", "list"]), before);
}
