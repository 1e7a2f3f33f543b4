//! Tests that run in the guest.

use std::collections::BTreeMap;
use std::num::NonZero;

use macaddr::MacAddr6;
use p4shield_nicswitch::{Changes, Function, NicError, NicSwitch, Sriov};
use p4shield_topology::Role;

use crate::bed::*;

#[test]
#[ignore = "runs in a guest"]
fn functions_get_their_settings() {
    start();
    let changes = apply(&ports()).unwrap();
    assert_eq!((changes.added, changes.policy), (["a1", "b1", "ga", "ia"].map(String::from).into(), true));
    assert_eq!((changes.changed, changes.removed, changes.absent), (vec![], vec![], vec![]));
    let lines = shown();
    assert_eq!(lines.len(), 4, "{lines:?}");
    for (line, (mac, vlan)) in lines.iter().zip([(IA, None), (GA, Some(A)), (A1, Some(A)), (B1, Some(B))]) {
        let vlan_shown = line.split("vlan ").nth(1).map(|rest| rest.split(',').next().unwrap().to_owned());
        assert_eq!(vlan_shown, vlan.map(|vlan| vlan.to_string()), "{line}");
        let mac = mac.to_string().to_lowercase();
        assert!(line.contains(&mac), "{mac}: {line}");
        assert!(line.contains("spoof checking on") && line.contains("trust off"), "{line}");
    }
    let counted: Vec<_> = nic().counters().unwrap().into_iter().map(|port| port.interface).collect();
    assert_eq!(counted, ["a1", "b1", "ga", "ia"]);
}

#[test]
#[ignore = "runs in a guest"]
fn a_change_concerns_its_port_only() {
    start();
    apply(&ports()).unwrap();
    let before = shown();
    assert_eq!(apply(&ports()).unwrap(), Changes::default());
    assert_eq!(shown(), before);
    // What another changed is set back.
    run("ip", &format!("link set {CARD} vf 2 vlan 99 spoofchk off trust on"));
    assert_eq!(apply(&ports()).unwrap().changed, ["a1"]);
    assert_eq!(shown(), before);
    let mut moved = ports();
    moved[3].role = Role::Vm { vlan: A, mac: mac(0x77), addresses: vec![] };
    assert_eq!(apply(&moved).unwrap().changed, ["a1"]);
    let after = shown();
    assert_eq!((&after[..2], &after[3]), (&before[..2], &before[3]));
    assert!(after[2].contains("02:00:00:00:00:77"), "{after:?}");
    // The function of a port that is gone loses its address and VLAN.
    let changes = apply(&ports()[..4]).unwrap();
    assert_eq!((changes.changed, changes.removed), (vec!["a1".to_owned()], vec!["b1".to_owned()]));
    let after = shown();
    assert!(after[3].contains("00:00:00:00:00:00") && !after[3].contains("vlan"), "{after:?}");
    assert_eq!(apply(&ports()[..4]).unwrap(), Changes::default());
    assert_eq!(apply(&ports()).unwrap().added, ["b1"]);
    assert_eq!(shown(), before);
}

#[test]
#[ignore = "runs in a guest"]
fn vlans_isolate_functions() {
    start();
    apply(&ports()).unwrap();
    let bed = Bed::build(0);
    assert_eq!(bed.send("a1", &frame(GA, A1)), ["ga"]);
    assert_eq!(bed.send("ga", &frame(A1, GA)), ["a1"]);
    assert_eq!(bed.send("ia", &frame(ROUTER, IA)), ["wire"]);
    assert_eq!(bed.send("wire", &frame(IA, ROUTER)), ["ia"]);
    // Another VLAN, and none, are out of reach in both directions.
    for (from, frame) in [
        ("a1", frame(B1, A1)),
        ("ga", frame(B1, GA)),
        ("b1", frame(A1, B1)),
        ("b1", frame(GA, B1)),
        ("a1", frame(IA, A1)),
        ("ia", frame(A1, IA)),
        ("ia", frame(B1, IA)),
    ] {
        let at = bed.send(from, &frame);
        assert!(at.iter().all(|name| name.starts_with("wire")), "{from} reaches {at:?}");
    }
    let at = bed.send("a1", &frame(MacAddr6::broadcast(), A1));
    assert!(!at.contains(&"b1") && !at.contains(&"ia"), "a broadcast reaches {at:?}");
    assert!(!bed.reaches("a1", B, &frame(B1, A1), "b1"), "a tag of its own");
    // The wire has the tenant's tag, and its VLAN is the only one that reaches the tenant.
    assert_eq!(bed.send("b1", &frame(ROUTER, B1)), ["wire", "wire20"]);
    assert_eq!(bed.send("wire20", &frame(B1, ROUTER)), ["b1", "wire"], "eth1 is below wire20");
    assert!(bed.reaches("wire", B, &frame(B1, ROUTER), "b1"));
    assert!(!bed.reaches("wire", A, &frame(B1, ROUTER), "b1"));
    assert!(!bed.send("wire", &frame(B1, ROUTER)).contains(&"b1"));
    // A compartment has no VLAN, as in the paper, and may use any that its driver is granted.
    let reaches = bed.reaches("ia", A, &frame(A1, IA), "a1");
    println!("a compartment without a VLAN reaches a tenant's by a tag: {reaches}");
}

#[test]
#[ignore = "runs in a guest"]
fn a_vlan_outside_keeps_compartments_out_of_tenants() {
    start();
    let changes = nic().outside_vlan(30).apply(&ports()).unwrap();
    assert_eq!(changes.added.len(), 4);
    assert!(shown()[0].contains("vlan 30,"), "{:?}", shown());
    let bed = Bed::build(30);
    assert!(!bed.reaches("ia", A, &frame(A1, IA), "a1"));
    assert!(!bed.send("wire", &frame(IA, ROUTER)).contains(&"ia"), "a frame without a tag");
    assert!(bed.reaches("wire", 30, &frame(IA, ROUTER), "ia"));
    assert_eq!(nic().outside_vlan(30).apply(&ports()).unwrap(), Changes::default());
}

#[test]
#[ignore = "runs in a guest"]
fn a_rate_is_set_and_taken_back() {
    start();
    apply(&ports()).unwrap();
    let before = shown();
    let limited = |rate| {
        let rate = |number| NonZero::new(rate).filter(|_| number == 3);
        let function = |number| Function { number, rate: rate(number) };
        let functions = (0..).zip(NAMES).map(|(number, name)| (name.to_owned(), function(number)));
        Sriov::new(CARD, functions.collect(), Sriov::FOLDER).apply(&ports())
    };
    assert_eq!(limited(50).unwrap().changed, ["b1"]);
    assert!(shown()[3].contains("50Mbps"), "{:?}", shown());
    assert_eq!(limited(50).unwrap(), Changes::default());
    assert_eq!(apply(&ports()).unwrap().changed, ["b1"]);
    assert_eq!(shown(), before);
    // More than the link has is refused, and the other ports are served.
    run("ip", &format!("link set {CARD} vf 0 vlan 99"));
    let error = limited(5000).unwrap_err();
    assert!(matches!(&error, NicError::Function { port, .. } if port == "b1"), "{error}");
    assert_eq!(shown(), before);
}

/// States that a process leaves that is killed between two steps.
#[test]
#[ignore = "runs in a guest"]
fn a_killed_processs_change_is_completed() {
    let record = |text: &str| {
        std::fs::create_dir_all(Sriov::FOLDER).unwrap();
        std::fs::write(std::path::Path::new(Sriov::FOLDER).join("0000:01:00.0"), text).unwrap();
    };
    start();
    record("made 4\n");
    assert_eq!(apply(&ports()).unwrap().added.len(), 4, "killed before functions were made");
    let done = shown();
    start();
    record("made 4\n");
    make(4);
    assert_eq!(apply(&ports()).unwrap().added.len(), 4, "killed after that");
    assert_eq!(shown(), done);
    run("ip", &format!("link set {CARD} vf 1 mac 00:00:00:00:00:00 vlan 0"));
    record("made 4\nport 0 ia\nport 1 ga\nport 2 a1\nport 3 b1\n");
    assert_eq!(apply(&ports()).unwrap().changed, ["ga"], "killed while functions were set");
    assert_eq!(shown(), done);
    record("made 4\nport 3 ia\nport 1 ga\nport 2 a1\nclosed 0\n");
    assert_eq!(apply(&ports()).unwrap().added, ["b1"], "a port that moved to another function");
    nic().delete().unwrap();
    assert_eq!(count(), "0");
}

/// Cards drop such a frame. QEMU's does not enforce the check, so that only the setting can be tested.
#[test]
#[ignore = "runs in a guest"]
fn source_checks_are_on() {
    start();
    apply(&ports()).unwrap();
    let lines = shown();
    assert!(lines.len() == 4 && lines.iter().all(|line| line.contains("spoof checking on")), "{lines:?}");
    let bed = Bed::build(0);
    let at = bed.send("a1", &frame(GA, mac(0x66)));
    println!("the emulated card delivers a frame with a foreign source address to {at:?}");
}

#[test]
#[ignore = "runs in a guest"]
fn a_card_that_is_too_small_is_refused() {
    start();
    let last = |number| {
        let mut functions = BTreeMap::new();
        for (at, name) in (0..).zip(NAMES) {
            functions
                .insert(name.to_owned(), Function { number: if at == 3 { number } else { at }, rate: None });
        }
        Sriov::new(CARD, functions, Sriov::FOLDER).apply(&ports())
    };
    let error = last(7).unwrap_err().to_string();
    assert!(error.contains("8 virtual functions are needed, and it has at most 7"), "{error}");
    assert_eq!(count(), "0");
    make(3);
    let error = last(3).unwrap_err().to_string();
    assert!(error.contains("4 virtual functions are needed, and 3 were made"), "{error}");
    assert_eq!((count().as_str(), shown().len()), ("3", 3));
    make(0);
    run("ip", &format!("link set {CARD} down"));
    let error = last(3).unwrap_err();
    assert!(matches!(&error, NicError::Card { reason, .. } if reason.contains("up")), "{error}");
    let mut none = Sriov::new("lo", BTreeMap::new(), Sriov::FOLDER);
    let error = none.apply(&[]).unwrap_err().to_string();
    assert!(error.contains("lo") && error.contains("PCI"), "{error}");
}

#[test]
#[ignore = "runs in a guest"]
fn delete_removes_what_apply_made() {
    start();
    apply(&ports()).unwrap();
    assert_eq!(count(), "4");
    nic().delete().unwrap();
    assert_eq!((count().as_str(), shown()), ("0", vec![]));
    assert!(!std::path::Path::new(Sriov::FOLDER).exists());
    nic().delete().unwrap();
}

#[test]
#[ignore = "runs in a guest"]
fn delete_leaves_what_another_made() {
    start();
    make(5);
    run("ip", &format!("link set {CARD} vf 4 mac 02:00:00:00:00:44 vlan 44"));
    apply(&ports()).unwrap();
    nic().delete().unwrap();
    let lines = shown();
    assert_eq!((count().as_str(), lines.len()), ("5", 5));
    for line in &lines[..4] {
        assert!(line.contains("00:00:00:00:00:00") && !line.contains("vlan"), "{line}");
    }
    assert!(lines[4].contains("02:00:00:00:00:44") && lines[4].contains("vlan 44"), "{lines:?}");
}
