//! The policy of a list of ports as the program reads it: entries of one map.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use macaddr::MacAddr6;
use p4shield_topology::{Port, Role};

use crate::check::{addresses, mac, vlan};

/// Bytes of `struct key` in `maps.bpf.h`.
pub(crate) const KEY: usize = 24;
/// Bytes of `struct entry` in `maps.bpf.h`.
pub(crate) const ENTRY: usize = 28;

/// Nanoseconds.
const SECOND: u32 = 1_000_000_000;
/// A burst is what a rate allows in a second, divided by this: 10 ms.
const BURSTS: u32 = 100;
/// Frames of a burst at least: what a machine sends at once.
const LEAST_BURST: u32 = 64;

/// The entries of a policy, by key.
pub(crate) type Policy = BTreeMap<[u8; KEY], [u8; ENTRY]>;

/// The kinds of keys, as `enum kind`.
const PORT: u8 = 1;
const SOURCE: u8 = 2;
const VM_MAC: u8 = 3;
const OUTSIDE_MAC: u8 = 4;
const OUTSIDE_ADDRESS: u8 = 5;
const ANY_MAC: u8 = 6;

/// Flags of an entry, as in `maps.bpf.h`.
const HAS_TARGET: u8 = 1;
const DIRECTLY: u8 = 2;

/// A key, as `struct key`.
#[derive(Default)]
struct Key {
    interface: u32,
    vlan: u16,
    kind: u8,
    family: u8,
    value: [u8; 16],
}

impl Key {
    fn of_mac(kind: u8, vlan: u16, mac: MacAddr6) -> Self {
        let mut value = [0; 16];
        value[..6].copy_from_slice(mac.as_bytes());
        Self { vlan, kind, value, ..Self::default() }
    }

    fn of_address(kind: u8, interface: u32, address: IpAddr) -> Self {
        let mut value = [0; 16];
        let family = match address {
            IpAddr::V4(address) => {
                value[..4].copy_from_slice(&address.octets());
                4
            }
            IpAddr::V6(address) => {
                value = address.octets();
                6
            }
        };
        Self { interface, kind, family, value, ..Self::default() }
    }

    fn bytes(&self) -> [u8; KEY] {
        let mut bytes = [0; KEY];
        bytes[..4].copy_from_slice(&self.interface.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.vlan.to_ne_bytes());
        bytes[6] = self.kind;
        bytes[7] = self.family;
        bytes[8..].copy_from_slice(&self.value);
        bytes
    }
}

/// An entry, as `struct entry`.
#[derive(Default)]
struct Entry {
    target: u32,
    vlan: u16,
    role: u8,
    flags: u8,
    mac: MacAddr6,
    gateway: MacAddr6,
    /// Nanoseconds for each frame; 0: there is no limit.
    interval: u32,
    /// Frames that may come at once.
    burst: u32,
}

impl Entry {
    fn to(target: u32, flags: u8) -> Self {
        Self { target, flags, ..Self::default() }
    }

    fn bytes(&self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..4].copy_from_slice(&self.target.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.vlan.to_ne_bytes());
        bytes[6] = self.role;
        bytes[7] = self.flags;
        bytes[8..14].copy_from_slice(self.mac.as_bytes());
        bytes[14..20].copy_from_slice(self.gateway.as_bytes());
        bytes[20..24].copy_from_slice(&self.interval.to_ne_bytes());
        bytes[24..].copy_from_slice(&self.burst.to_ne_bytes());
        bytes
    }
}

const fn role(port: &Port) -> u8 {
    match port.role {
        Role::Vm { .. } => 1,
        Role::Gateway { .. } => 2,
        Role::InOut { .. } => 3,
        Role::Uplink => 4,
    }
}

/// Returns the port to which another may send: a VM's gateway, a compartment's uplink.
fn target<'a>(ports: &'a [Port], of: &Port) -> Option<&'a Port> {
    ports.iter().find(|port| match (&of.role, &port.role) {
        (Role::Vm { vlan, .. }, Role::Gateway { vlan: its, .. }) => vlan == its,
        (Role::InOut { .. }, Role::Uplink) => true,
        _ => false,
    })
}

/// Returns the flag of a target: compartments' sides are reached directly if all of these are.
const fn way_to(port: &Port, are_direct: bool) -> u8 {
    match port.role {
        Role::Gateway { .. } | Role::InOut { .. } if are_direct => DIRECTLY,
        _ => 0,
    }
}

/// Returns the policy of checked ports. `indexes` has the interfaces that are there; the others are the
/// target 0. `are_direct`: frames go to compartments without passing their ports' interfaces.
pub(crate) fn of(ports: &[Port], indexes: &BTreeMap<&str, u32>, are_direct: bool) -> Policy {
    let mut policy = Policy::new();
    let index = |port: &Port| indexes.get(port.interface.as_str()).copied().unwrap_or(0);
    let mut put = |key: Key, entry: Entry| {
        policy.insert(key.bytes(), entry.bytes());
    };
    for port in ports {
        let own = index(port);
        let way = way_to(port, are_direct);
        if let Some(mac) = mac(port) {
            put(Key::of_mac(ANY_MAC, 0, mac), Entry::default());
        }
        match &port.role {
            Role::Vm { vlan, mac, .. } => put(Key::of_mac(VM_MAC, *vlan, *mac), Entry::to(own, way)),
            Role::InOut { mac, addresses } => {
                put(Key::of_mac(OUTSIDE_MAC, 0, *mac), Entry::to(own, way));
                for address in addresses {
                    put(Key::of_address(OUTSIDE_ADDRESS, 0, *address), Entry::to(own, way));
                }
            }
            Role::Gateway { .. } | Role::Uplink => {}
        }
        if own == 0 {
            continue;
        }
        for address in addresses(port) {
            put(Key::of_address(SOURCE, own, *address), Entry::default());
        }
        let target = target(ports, port);
        let entry = Entry {
            target: target.map_or(0, index),
            vlan: vlan(port).unwrap_or(0),
            role: role(port),
            flags: target.map_or(0, |target| HAS_TARGET | way_to(target, are_direct)),
            mac: mac(port).unwrap_or_default(),
            gateway: target.and_then(mac).unwrap_or_default(),
            interval: port.packet_rate.map_or(0, |rate| (SECOND / rate).max(1)),
            burst: port.packet_rate.map_or(0, |rate| (rate.get() / BURSTS).max(LEAST_BURST)),
        };
        put(Key { interface: own, kind: PORT, ..Key::default() }, entry);
    }
    policy
}

/// Returns the interfaces of ports whose entries differ between two policies.
pub(crate) fn changed(old: &Policy, new: &Policy) -> BTreeSet<u32> {
    let one_way = |from: &Policy, to: &Policy| -> BTreeSet<u32> {
        let differ = from.iter().filter(|(key, entry)| to.get(*key) != Some(*entry));
        differ.map(|(key, entry)| owner(key, entry)).collect()
    };
    &one_way(old, new) | &one_way(new, old)
}

/// Returns the interface of the port that an entry is about: in the key, or else the target.
fn owner(key: &[u8; KEY], entry: &[u8; ENTRY]) -> u32 {
    match word(key) {
        0 => word(entry),
        interface => interface,
    }
}

/// Returns the first four bytes, an interface in keys and entries.
fn word(bytes: &[u8]) -> u32 {
    bytes.first_chunk().copied().map_or(0, u32::from_ne_bytes)
}
