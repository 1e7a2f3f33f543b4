//! The entries of a P4 switch's tables, which say what [`Compartment::flows`] says to Open vSwitch. The
//! program is `tenant_switch.p4` of the crate `p4tenant`.

use super::model::{Compartment, Tenant, Vm};
use macaddr::MacAddr6;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Highest number of a port, which the program's architecture gives nine bits; 510 is the host's.
pub const MAX_PORT: u16 = 509;
/// The group of the port to the outside. A tenant's ports have its number.
const OUTSIDE: u16 = 0;

/// An entry of a table. Values are numbers in hexadecimal, with `0x`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TableEntry {
    /// The table.
    pub table: String,
    /// The values of its keys.
    pub keys: Vec<String>,
    /// The action.
    pub action: String,
    /// The values of its parameters.
    pub parameters: Vec<String>,
}

impl Compartment {
    /// Returns the entries of its switch, if that is a P4 switch. Packets to the outside leave to the router
    /// `gateway_mac`. Ports have the numbers of [`Self::switch_ports`].
    #[must_use]
    pub fn entries(&self, gateway_mac: MacAddr6) -> Vec<TableEntry> {
        let mut entries = vec![is_at(Self::OUTSIDE, self.mac, OUTSIDE)];
        for t in &self.tenants {
            let to_router = Way { port: Self::OUTSIDE, source: self.mac, destination: gateway_mac };
            entries.push(to("router", vec![hex(t.number)], &to_router));
            let ports: Vec<u16> = match &t.gateway {
                Some(_) => vec![t.port()],
                None => t.vms.iter().map(Vm::port).collect(),
            };
            entries.extend(ports.into_iter().map(|port| is_at(port, t.mac, t.number)));
            entries.extend(t.vms.iter().flat_map(|vm| of_vm(t, vm)));
        }
        entries
    }
}

/// Where packets leave, and their addresses then.
struct Way {
    port: u16,
    source: MacAddr6,
    destination: MacAddr6,
}

fn of_vm(t: &Tenant, vm: &Vm) -> Vec<TableEntry> {
    let port = if t.gateway.is_some() { t.port() } else { vm.port() };
    let way = Way { port, source: t.mac, destination: vm.mac };
    let mut entries = Vec::new();
    for address in &vm.addresses {
        let (table, value) = match address {
            IpAddr::V4(v4) => ("vms4", hex(v4.to_bits())),
            IpAddr::V6(v6) => ("vms6", hex(v6.to_bits())),
        };
        for group in [OUTSIDE, t.number] {
            entries.push(to(table, vec![hex(group), value.clone()], &way));
        }
        if address.is_ipv4() {
            let keys = vec![hex(port), number(vm.mac), value];
            let (table, action) = ("own4".to_owned(), "NoAction".to_owned());
            entries.push(TableEntry { table, keys, action, parameters: Vec::new() });
        }
    }
    entries
}

fn is_at(port: u16, mac: MacAddr6, group: u16) -> TableEntry {
    TableEntry {
        table: "ports".to_owned(),
        keys: vec![hex(port)],
        action: "is_at".to_owned(),
        parameters: vec![number(mac), hex(group)],
    }
}

fn to(table: &str, keys: Vec<String>, way: &Way) -> TableEntry {
    let parameters = vec![hex(way.port), number(way.source), number(way.destination)];
    TableEntry { table: table.to_owned(), keys, action: "to".to_owned(), parameters }
}

fn hex(value: impl std::fmt::LowerHex) -> String {
    format!("{value:#x}")
}

fn number(mac: MacAddr6) -> String {
    format!("0x{}", mac.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

#[cfg(test)]
mod tests {
    use crate::{Numbers, plan};
    use p4shield_config::Config;
    use std::path::Path;

    const TEXT: &str = r#"level = "2"
[topology]
uplink = "eth0"
gateway_mac = "02:00:00:00:00:fe"
switch = "p4"
[[tenant]]
name = "alice"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.2", "fd00::2"]
interface = "tap-web"
mac = "02:00:00:00:00:01"
"#;

    fn entries(text: &str) -> Vec<String> {
        let config = Config::parse(Path::new("/etc/p4shield.toml"), text).unwrap();
        let plan = plan(&config, &Numbers::default(), 1).unwrap();
        let all = plan.compartments[0].entries(plan.gateway_mac);
        all.iter()
            .map(|e| format!("{} {} {}({})", e.table, e.keys.join(","), e.action, e.parameters.join(",")))
            .collect()
    }

    #[test]
    fn a_tenants_switch_has_entries_for_its_vms() {
        let expected = [
            "ports 0x1 is_at(0x025034000001,0x0)",
            "router 0x1 to(0x1,0x025034000001,0x0200000000fe)",
            "ports 0x2 is_at(0x025034fff001,0x1)",
            "vms4 0x0,0xa000002 to(0x2,0x025034fff001,0x020000000001)",
            "vms4 0x1,0xa000002 to(0x2,0x025034fff001,0x020000000001)",
            "own4 0x2,0x020000000001,0xa000002 NoAction()",
            "vms6 0x0,0xfd000000000000000000000000000002 to(0x2,0x025034fff001,0x020000000001)",
            "vms6 0x1,0xfd000000000000000000000000000002 to(0x2,0x025034fff001,0x020000000001)",
        ];
        assert_eq!(entries(TEXT), expected);
    }

    #[test]
    fn at_the_baseline_each_vm_is_at_its_own_port() {
        let found = entries(&TEXT.replacen("\"2\"", "\"baseline\"", 1));
        assert!(found.iter().any(|entry| entry.starts_with("ports 0x2 is_at(")), "{found:?}");
        assert!(found.iter().any(|entry| entry.starts_with("own4 0x2,0x020000000001,")), "{found:?}");
    }
}
