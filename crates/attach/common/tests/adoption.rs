//! The daemon changes tenants and ports while a switch is connected and holds packets.

mod cloud;
use cloud::*;
use p4shield_attach::message::LibraryMessage;
use p4shield_attach::{Setup, SwitchEvent};
use p4shield_config::{Config, Role};
use p4shield_mediator::{Reason, VmRef};
use std::path::Path;

fn parse(text: &str) -> Config {
    Config::parse(Path::new("p4shield.toml"), text).unwrap()
}

/// The tenants of [`TENANTS`], with another one in front.
fn with_carol() -> String {
    let carol = "[[tenant]]\nname = \"carol\"\nslots = 64\ndeadline = \"10s\"\n[[tenant.vm]]\nname = \"x\"\n\
                 addresses = [\"10.0.0.7\"]\n";
    TENANTS.replacen("[[tenant]]", &format!("{carol}[[tenant]]"), 1)
}

#[test]
fn a_new_tenant_costs_others_no_held_packet() {
    let cloud = Cloud::new();
    let mut switch = Switch::new(&cloud, 1);
    let daemon = cloud.daemon();
    switch.until_judged(0, 0);
    switch.until_judged(0, 1);
    daemon.p4vm(0).stops();
    for _ in 0..10 {
        assert!(switch.lanes[0].submit(0, packet_to(0)).is_none());
    }
    let changed = parse(&with_carol()).numbered_like(&parse(TENANTS));
    daemon.server.change_setup(&Setup::from(&changed)).unwrap();
    // Carol has no channel, and her policy is to drop.
    switch.until(0, 7, dropped(Reason::NoChannel));
    assert_eq!(switch.lanes[0].held(), 10);
    let connections = daemon.count(|h| *h == SwitchEvent::Connected);
    daemon.p4vm(0).passes();
    let mut out = Vec::new();
    wait_for("held packets", || {
        switch.lanes[0].poll(0, 4, |r| out.push(r.disposition));
        out.len() >= 10
    });
    assert_eq!(out, vec![passed(); 10], "alice's P4 VM has judged them");
    assert_eq!(switch.send(0, 1), passed());
    assert_eq!(connections, 1, "nothing was connected anew");
    assert_eq!(daemon.count(|h| matches!(h, SwitchEvent::Message(LibraryMessage::Fault { .. }))), 0);
    switch.ends();
}

#[test]
fn counts_go_on_when_the_tenants_change() {
    let cloud = Cloud::new();
    let mut switch = Switch::new(&cloud, 1);
    let daemon = cloud.daemon();
    switch.until_judged(0, 0);
    let counted = |daemon: &Daemon| {
        let newest = std::cell::Cell::new(None);
        daemon.count(|h| {
            if let SwitchEvent::Message(LibraryMessage::Counts { counts, .. }) = h {
                let alice = counts.iter().find(|c| (c.tenant, c.vm, c.direction) == (0, 0, 0));
                newest.set(alice.map(|c| c.tally().packets_in));
            }
            false
        });
        newest.get()
    };
    wait_for("counts", || counted(&daemon) == Some(switch.sent[0]));
    let changed = parse(&with_carol()).numbered_like(&parse(TENANTS));
    daemon.server.change_setup(&Setup::from(&changed)).unwrap();
    switch.until(0, 7, dropped(Reason::NoChannel));
    assert_eq!(switch.send(0, 0), passed());
    wait_for("counts that include those before", || counted(&daemon) == Some(switch.sent[0]));
    switch.ends();
}

#[test]
fn a_port_of_a_removed_vm_belongs_to_no_vm() {
    let cloud = Cloud::new();
    let mut switch = Switch::new(&cloud, 1);
    let daemon = cloud.daemon();
    switch.until_judged(0, 0);
    let (peer, port) = daemon.port();
    peer.role(port, Role::Vm(VmRef { tenant: 1, vm: 0 }));
    switch.until(0, 0, dropped(Reason::Spoofed));
    let before = parse(TENANTS);
    let only_alice = TENANTS.split("[[tenant]]\nname = \"bob\"").next().unwrap();
    let without_bob = parse(only_alice).numbered_like(&before);
    daemon.server.change_setup(&Setup::from(&without_bob)).unwrap();
    switch.until(0, 0, passed());
    // Another tenant at bob's number does not inherit his port.
    let carol = with_carol().replace("\"bob\"", "\"dave\"").replace("10.0.0.2", "10.0.0.9");
    let third = parse(&carol).numbered_like(&without_bob);
    assert_eq!(third.tenants[1].name, "carol", "she gets the number that has been vacant");
    daemon.server.change_setup(&Setup::from(&third)).unwrap();
    switch.until(0, 7, dropped(Reason::NoChannel));
    assert_eq!(switch.send(0, 0), passed(), "the port is shared");
    switch.ends();
}

#[test]
fn an_invalid_setup_changes_nothing() {
    let cloud = Cloud::new();
    let mut switch = Switch::new(&cloud, 1);
    let daemon = cloud.daemon();
    switch.until_judged(0, 0);
    let mut changed = parse(TENANTS);
    changed.tenants[0].max_held = 0;
    assert!(daemon.server.change_setup(&Setup::from(&changed)).is_err());
    assert_eq!(switch.send(0, 0), passed());
    switch.ends();
}
