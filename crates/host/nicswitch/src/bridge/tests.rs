//! Tests of the generated rules. The tests of `tests/nic/bridge.rs` have a kernel judge frames by them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use macaddr::MacAddr6;
use p4shield_topology::{Port, Role};
use serde_json::Value;

use super::table::{PortRules, Table};
use super::ways::Scene;
use super::*;

const NAMES: [&str; 5] = ["a1", "ga", "b1", "ia", "wan"];

fn mac_of(last: u8) -> MacAddr6 {
    MacAddr6::new(2, 0, 0, 0, 0, last)
}

fn ports() -> Vec<Port> {
    let addresses = |last| vec![IpAddr::from([10, 0, 0, last]), format!("fd00::{last}").parse().unwrap()];
    let vm = |vlan, last| Role::Vm { vlan, mac: mac_of(last), addresses: addresses(last) };
    let roles = [
        vm(10, 1),
        Role::Gateway { vlan: 10, mac: mac_of(2) },
        vm(20, 3),
        Role::InOut { mac: mac_of(4), addresses: addresses(1) },
        Role::Uplink,
    ];
    let port = |(name, role): (&&str, Role)| Port {
        interface: (*name).to_owned(),
        tenant: (*name != "wan").then(|| name[..1].to_owned()),
        role,
        packet_rate: None,
    };
    NAMES.iter().zip(roles).map(port).collect()
}

/// Returns the rules of a port among others.
fn rules<'a>(ports: &'a [Port], name: &str) -> PortRules<'a> {
    let indexes: BTreeMap<&str, u32> = NAMES.into_iter().zip(5..).collect();
    let port = ports.iter().find(|port| port.interface == name).unwrap();
    PortRules::of(port, indexes[name], Scene { ports, indexes: &indexes })
}

/// Returns the table after commands, as `nft` would list it.
fn after(commands: &[Value]) -> Table {
    let mut table = Table::default();
    for command in commands {
        for (kind, object) in command["add"].as_object().into_iter().flatten() {
            table.take(if kind == "element" { "set" } else { kind }, object);
        }
    }
    table
}

/// Returns the rules of a chain in commands, each as text.
fn chain(commands: &[Value], name: &str) -> Vec<String> {
    let rules = commands.iter().map(|command| &command["add"]["rule"]);
    rules.filter(|rule| rule["chain"] == name).map(|rule| rule["expr"].to_string()).collect()
}

fn commands(ports: &[Port]) -> Vec<Value> {
    let all: Vec<_> = NAMES.iter().map(|name| rules(ports, name)).collect();
    let macs: BTreeSet<MacAddr6> = ports.iter().filter_map(mac).collect();
    Table::default().set("nic", &all.iter().collect::<Vec<_>>(), &macs)
}

#[test]
fn a_table_with_all_rules_needs_no_command() {
    let ports = ports();
    let table = after(&commands(&ports));
    let all: Vec<_> = NAMES.iter().map(|name| rules(&ports, name)).collect();
    assert!(all.iter().all(|port| table.has(port)));
    assert_eq!(table.labels(), all.iter().map(|port| port.label.as_str()).collect());
    let macs: BTreeSet<MacAddr6> = ports.iter().filter_map(mac).collect();
    assert_eq!(table.set("nic", &[], &macs), Vec::<Value>::new());
    let fewer: BTreeSet<MacAddr6> = macs.iter().skip(1).copied().collect();
    let commands = table.set("nic", &[], &fewer);
    assert_eq!(commands.len(), 1);
    assert_eq!(commands[0]["delete"]["element"]["elem"], serde_json::json!(["02:00:00:00:00:01"]));
}

#[test]
fn each_chain_of_what_comes_ends_in_a_counted_drop() {
    let commands = commands(&ports());
    for (name, index) in NAMES.iter().zip(5..) {
        for (kind, reason) in [("in", "malformed"), ("to", "destination")] {
            let last = chain(&commands, &format!("{kind}-{name}-{index}")).pop().unwrap();
            assert_eq!(last, format!(r#"[{{"counter":"{name}-{index}.{reason}"}},{{"drop":null}}]"#));
        }
        let bases =
            commands.iter().map(|command| &command["add"]["chain"]).filter(|chain| chain["dev"] == *name);
        let policies: Vec<_> = bases.map(|chain| (&chain["hook"], &chain["policy"])).collect();
        assert_eq!(
            format!("{policies:?}"),
            r#"[(String("ingress"), String("drop")), (String("egress"), String("drop"))]"#
        );
    }
}

#[test]
fn rules_name_the_ports_own_addresses_only() {
    let text = chain(&commands(&ports()), "in-a1-5").concat();
    for own in ["02:00:00:00:00:01", r#""10.0.0.1""#, r#""fd00::1""#, "fe80::ff:fe00:1"] {
        assert!(text.contains(own), "{own}: {text}");
    }
    for other in ["02:00:00:00:00:02", "02:00:00:00:00:03", "10.0.0.3", "fd00::3"] {
        assert!(!text.contains(other), "{other}: {text}");
    }
}

#[test]
fn marks_tell_tenants_and_roles_apart() {
    let commands = commands(&ports());
    let mark = |rule: &str, key: &str| {
        let number: String =
            rule.split(key).nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
        number.parse::<u32>().unwrap()
    };
    let set = |name: &str| {
        let rules = chain(&commands, name);
        let marks = rules.iter().filter(|rule| rule.contains("mangle")).map(|rule| mark(rule, r#""value":"#));
        marks.collect::<BTreeSet<u32>>()
    };
    let wanted = |name: &str| mark(&chain(&commands, name)[0], r#""right":"#);
    assert_eq!(set("to-a1-5"), BTreeSet::from([wanted("out-ga-6")]));
    assert_eq!(set("to-ga-6"), BTreeSet::from([wanted("out-a1-5")]));
    assert_eq!(set("to-ia-8"), BTreeSet::from([wanted("out-wan-9")]));
    assert_eq!(set("to-wan-9"), BTreeSet::from([wanted("out-ia-8")]));
    // Tenant b has no gateway.
    assert_eq!(set("to-b1-7"), BTreeSet::new());
    let all: BTreeSet<u32> = ["out-a1-5", "out-ga-6", "out-b1-7", "out-ia-8", "out-wan-9"].map(wanted).into();
    assert_eq!(all.len(), 5);
}

#[test]
fn a_change_of_a_tenant_changes_no_others_rules() {
    let before = ports();
    let table = after(&commands(&before));
    let mut ports = before.clone();
    ports[2].role = Role::Vm { vlan: 20, mac: mac_of(9), addresses: vec![IpAddr::from([10, 0, 0, 9])] };
    let changed = NAMES.into_iter().filter(|name| !table.has(&rules(&ports, name)));
    assert_eq!(changed.collect::<Vec<_>>(), ["b1"]);
    // An interface of another index is another port.
    let indexes = BTreeMap::from([("a1", 99)]);
    let moved = PortRules::of(&before[0], 99, Scene { ports: &before, indexes: &indexes });
    assert!(!table.has(&moved));
    assert_eq!(table::interface(&moved.label), "a1");
}

#[test]
fn a_removed_port_is_closed_and_its_objects_deleted() {
    let table = after(&commands(&ports()));
    let labels = BTreeSet::from(["b1-7"]);
    let text = |commands: Vec<Value>| commands.iter().map(Value::to_string).collect::<Vec<_>>();
    let closed = text(table.close("nic", &labels));
    assert_eq!(closed.len(), 3);
    assert!(closed.iter().all(|command| command.contains("flush") && command.contains("b1-7")), "{closed:?}");
    let removed = text(table.remove("nic", &labels));
    assert!(
        removed.iter().all(|command| command.contains("delete") && command.contains("b1-7")),
        "{removed:?}"
    );
    assert_eq!(removed.len(), 3 + 12);
    assert_eq!(table.delete("nic").len(), 1);
    assert!(Table::default().delete("nic").is_empty());
}
