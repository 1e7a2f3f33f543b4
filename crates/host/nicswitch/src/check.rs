//! Checks that the ports of a list do not contradict each other.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::net::IpAddr;

use macaddr::MacAddr6;
use p4shield_topology::{Port, Role};

use crate::NicError;

/// The most ports, as in `maps.bpf.h`.
pub(crate) const MAX_PORTS: usize = 4096;
/// The most addresses of all ports.
const MAX_ADDRESSES: usize = 1 << 16;
/// VLANs of IEEE 802.1Q, without the reserved ones.
const VLANS: std::ops::RangeInclusive<u16> = 1..=4094;
/// Bytes of an interface's name (`IFNAMSIZ`, with the zero at its end).
const LONGEST_NAME: usize = 15;

/// A property that only one port may have, by the port's interface.
struct Unique<'a, K> {
    owners: HashMap<K, &'a str>,
    property: &'static str,
}

impl<'a, K: Hash + Eq> Unique<'a, K> {
    fn new(property: &'static str) -> Self {
        Self { owners: HashMap::new(), property }
    }

    fn take(&mut self, key: K, shown: impl Display, port: &'a Port) -> Result<(), NicError> {
        match self.owners.insert(key, &port.interface) {
            None => Ok(()),
            Some(other) => Err(refusal(format_args!(
                "{other} and {} have the same {} {shown}; give one of them another",
                port.interface, self.property
            ))),
        }
    }
}

fn refusal(text: impl Display) -> NicError {
    NicError::Ports(text.to_string())
}

/// Checks a list of ports.
///
/// # Errors
/// [`NicError::Ports`] with the first contradiction.
pub(crate) fn check(ports: &[Port]) -> Result<(), NicError> {
    let addresses: usize = ports.iter().map(|port| addresses(port).len()).sum();
    if ports.len() > MAX_PORTS || addresses > MAX_ADDRESSES {
        return Err(refusal(format_args!(
            "{} ports with {addresses} addresses; the limits are {MAX_PORTS} and {MAX_ADDRESSES}",
            ports.len()
        )));
    }
    let mut interfaces = Unique::new("interface");
    for port in ports {
        check_port(port)?;
        interfaces.take(&port.interface, &port.interface, port)?;
    }
    check_vlans(ports)?;
    check_outside(ports)
}

/// Returns the addresses from which a port may send.
pub(crate) fn addresses(port: &Port) -> &[IpAddr] {
    match &port.role {
        Role::Vm { addresses, .. } | Role::InOut { addresses, .. } => addresses,
        Role::Gateway { .. } | Role::Uplink => &[],
    }
}

/// Returns the MAC address of the party at a port; an uplink has many.
pub(crate) const fn mac(port: &Port) -> Option<MacAddr6> {
    match port.role {
        Role::Vm { mac, .. } | Role::InOut { mac, .. } | Role::Gateway { mac, .. } => Some(mac),
        Role::Uplink => None,
    }
}

/// Returns the port's VLAN; ports to the outside have none.
pub(crate) const fn vlan(port: &Port) -> Option<u16> {
    match port.role {
        Role::Vm { vlan, .. } | Role::Gateway { vlan, .. } => Some(vlan),
        Role::InOut { .. } | Role::Uplink => None,
    }
}

fn check_port(port: &Port) -> Result<(), NicError> {
    let name = &port.interface;
    let is_bad = |c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ':';
    if name.is_empty() || name.len() > LONGEST_NAME || name == "." || name == ".." || name.contains(is_bad) {
        return Err(refusal(format_args!("{name:?} is no name of a network interface; see `ip link`")));
    }
    if let Some(mac) = mac(port)
        && (mac.is_nil() || mac.is_multicast())
    {
        return Err(refusal(format_args!(
            "{name} has the MAC address {mac}, which no single station can have"
        )));
    }
    if let Some(vlan) = vlan(port)
        && !VLANS.contains(&vlan)
    {
        let (first, last) = (VLANS.start(), VLANS.end());
        return Err(refusal(format_args!("{name} has the VLAN {vlan}; VLANs are {first} to {last}")));
    }
    let broadcast = IpAddr::from([255; 4]);
    match addresses(port).iter().find(|a| a.is_unspecified() || a.is_multicast() || **a == broadcast) {
        Some(bad) => {
            Err(refusal(format_args!("{name} has the address {bad}, which no single host can have")))
        }
        None => Ok(()),
    }
}

fn check_vlans(ports: &[Port]) -> Result<(), NicError> {
    let (mut macs, mut gateways) =
        (Unique::new("MAC address in their VLAN:"), Unique::new("role, gateway of VLAN"));
    let mut tenants: HashMap<u16, &Port> = HashMap::new();
    for port in ports {
        let (Some(vlan), Some(mac)) = (vlan(port), mac(port)) else { continue };
        macs.take((vlan, mac), mac, port)?;
        if matches!(port.role, Role::Gateway { .. }) {
            gateways.take(vlan, vlan, port)?;
        }
        if port.tenant.is_none() {
            continue;
        }
        let first = tenants.entry(vlan).or_insert(port);
        if first.tenant != port.tenant {
            return Err(refusal(format_args!(
                "{} and {} are of different tenants in the VLAN {vlan}; give each tenant VLANs of its own",
                first.interface, port.interface
            )));
        }
    }
    Ok(())
}

fn check_outside(ports: &[Port]) -> Result<(), NicError> {
    let (mut macs, mut addresses) = (Unique::new("MAC address"), Unique::new("address to the outside"));
    let mut uplinks = Unique::new("role,");
    for port in ports {
        match &port.role {
            Role::Uplink => uplinks.take((), "uplink", port)?,
            Role::InOut { mac, addresses: own } => {
                macs.take(*mac, mac, port)?;
                for address in own.iter().collect::<std::collections::BTreeSet<_>>() {
                    addresses.take(address, address, port)?;
                }
            }
            Role::Gateway { .. } | Role::Vm { .. } => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(interface: &str, tenant: &str, vlan: u16, last: u8) -> Port {
        let addresses = vec![IpAddr::from([10, 0, 0, last])];
        let role = Role::Vm { vlan, mac: MacAddr6::new(2, 0, 0, 0, 0, last), addresses };
        Port { interface: interface.into(), tenant: Some(tenant.into()), role, packet_rate: None }
    }

    fn in_out(interface: &str, last: u8, address: u8) -> Port {
        let mac = MacAddr6::new(2, 1, 0, 0, 0, last);
        let role = Role::InOut { mac, addresses: vec![IpAddr::from([192, 0, 2, address])] };
        Port { interface: interface.into(), tenant: None, role, packet_rate: None }
    }

    fn with(mut port: Port, role: Role) -> Port {
        port.role = role;
        port
    }

    #[test]
    fn contradictory_lists_name_the_ports() {
        let gateway = |name, last| {
            let role = Role::Gateway { vlan: 7, mac: MacAddr6::new(2, 2, 0, 0, 0, last) };
            with(vm(name, "a", 7, last), role)
        };
        let mac = MacAddr6::new(2, 0, 0, 0, 0, 1);
        let up = |name| with(vm(name, "a", 7, 1), Role::Uplink);
        let lists = [
            vec![vm("one", "a", 7, 1), vm("two", "a", 7, 1)],
            vec![vm("one", "a", 7, 1), vm("two", "b", 7, 2)],
            vec![vm("one", "a", 7, 1), with(vm("two", "a", 7, 2), Role::Gateway { vlan: 7, mac })],
            vec![gateway("one", 1), gateway("two", 2)],
            vec![in_out("one", 1, 1), in_out("two", 1, 2)],
            vec![in_out("one", 1, 1), in_out("two", 2, 1)],
            vec![up("one"), up("two")],
        ];
        for list in lists {
            let error = check(&list).unwrap_err().to_string();
            assert!(error.contains("one") && error.contains("two"), "{error}");
        }
        let twice = [vm("one", "a", 7, 1), vm("one", "a", 8, 2)];
        assert!(check(&twice).unwrap_err().to_string().contains("interface one"));
    }

    #[test]
    fn impossible_ports_are_named() {
        let vm = |vlan, mac, address: &str| {
            let role = Role::Vm { vlan, mac, addresses: vec![address.parse().unwrap()] };
            Port { interface: "tap0".into(), tenant: None, role, packet_rate: None }
        };
        let mac = MacAddr6::new(2, 0, 0, 0, 0, 1);
        assert!(check(&[vm(1, mac, "10.0.0.1")]).is_ok());
        for port in [
            vm(0, mac, "10.0.0.1"),
            vm(4095, mac, "10.0.0.1"),
            vm(1, MacAddr6::nil(), "10.0.0.1"),
            vm(1, MacAddr6::broadcast(), "10.0.0.1"),
            vm(1, mac, "0.0.0.0"),
            vm(1, mac, "255.255.255.255"),
            vm(1, mac, "ff02::1"),
        ] {
            assert!(check(std::slice::from_ref(&port)).unwrap_err().to_string().contains("tap0"), "{port:?}");
        }
        for name in ["", ".", "..", "a/b", "a b", "a:b", "abcdefghijklmnop"] {
            let port = Port { interface: name.into(), ..vm(1, mac, "10.0.0.1") };
            assert!(check(&[port]).unwrap_err().to_string().contains(name));
        }
    }

    #[test]
    fn what_tenants_share_is_no_contradiction() {
        assert!(check(&[]).is_ok());
        let list = [vm("one", "a", 7, 1), vm("two", "b", 8, 1), in_out("out", 1, 1)];
        assert!(check(&list).is_ok(), "the same addresses in two VLANs");
    }

    #[test]
    fn the_planned_extent_is_within_the_limits() {
        let addresses: Vec<IpAddr> = (1..=8).map(|last| IpAddr::from([10, 0, 0, last])).collect();
        let vms = (0..64u8).flat_map(|tenant| (0..4u8).map(move |vm| (tenant, vm)));
        let ports: Vec<Port> = vms
            .map(|(tenant, vm)| Port {
                packet_rate: None,
                interface: format!("t{tenant}v{vm}"),
                tenant: Some(format!("t{tenant}")),
                role: Role::Vm {
                    vlan: u16::from(tenant) + 1,
                    mac: MacAddr6::new(2, 0, 0, 0, tenant, vm),
                    addresses: addresses.clone(),
                },
            })
            .collect();
        assert!(check(&ports).is_ok());
    }
}
