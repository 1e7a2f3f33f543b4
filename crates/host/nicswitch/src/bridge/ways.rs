//! From which port to which one frames may go.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use p4shield_topology::{Port, Role};
use serde_json::Value;

use super::chain::Chain;
use super::expression::*;
use super::incoming::{ADVERTISEMENT, ICMPV6, MACS, SOLICITATION, and, arp_of_ethernet, ipv6, message};
use crate::Reason;
use crate::check::{addresses, mac, vlan};

/// The counter of frames that left through a port's interface.
pub(super) const DELIVERED: &str = "delivered";
/// The first byte of the marks of packets that a port may have sent.
const MARKS: u32 = 0x4e << 24;

/// All ports, and the indexes of the interfaces that are there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene<'a> {
    pub(super) ports: &'a [Port],
    pub(super) indexes: &'a BTreeMap<&'a str, u32>,
}

impl<'a> Scene<'a> {
    /// Returns the ports of a role, those that are there and the others.
    fn split(self, is_it: impl Fn(&Role) -> bool) -> [Vec<&'a Port>; 2] {
        let ports = self.ports.iter().filter(|port| is_it(&port.role));
        let (present, absent) = ports.partition(|port| self.indexes.contains_key(port.interface.as_str()));
        [present, absent]
    }
}

/// The origin of a packet: a role, and a VLAN or none.
fn mark(role: u32, vlan: u16) -> u32 {
    MARKS | role << 16 | u32::from(vlan)
}

fn own_mark(port: &Port) -> u32 {
    let role = match port.role {
        Role::Vm { .. } => 1,
        Role::Gateway { .. } => 2,
        Role::InOut { .. } => 3,
        Role::Uplink => 4,
    };
    mark(role, vlan(port).unwrap_or(0))
}

/// Returns the mark of what may be sent to a port.
const fn mark_of_senders(port: &Port) -> (u32, u16) {
    match port.role {
        Role::Vm { vlan, .. } => (2, vlan),
        Role::Gateway { vlan, .. } => (1, vlan),
        Role::InOut { .. } => (4, 0),
        Role::Uplink => (3, 0),
    }
}

/// Returns the rules for the destinations of what a port may send.
pub(super) fn destinations(label: &str, port: &Port, scene: Scene<'_>) -> Vec<Value> {
    let mut chain = Chain::new(label);
    let to = |matches: Vec<Value>, is_present: bool, chain: &mut Chain<'_>| {
        if is_present {
            chain.accept(matches, set_mark(own_mark(port)))
        } else {
            chain.drop(Reason::NoPort, matches)
        }
    };
    match &port.role {
        Role::Vm { vlan, .. } => {
            chain.drop(Reason::Destination, [is_for_bridges()]);
            let gateways = scene.split(|role| matches!(role, Role::Gateway { vlan: its, .. } if its == vlan));
            for (gateways, is_present) in gateways.iter().zip([true, false]) {
                for mac in gateways.iter().filter_map(|gateway| mac(gateway)) {
                    to(vec![is(field("ether", "daddr"), mac.to_string())], is_present, &mut chain);
                    to(vec![is_to_group()], is_present, &mut chain);
                }
            }
        }
        Role::Gateway { vlan, .. } => {
            let vms = scene.split(|role| matches!(role, Role::Vm { vlan: its, .. } if its == vlan));
            for (vms, is_present) in vms.iter().zip([true, false]).filter(|(vms, _)| !vms.is_empty()) {
                let macs = words(vms.iter().filter_map(|vm| mac(vm)));
                to(vec![is(field("ether", "daddr"), macs)], is_present, &mut chain);
            }
        }
        Role::InOut { .. } => {
            let [present, absent] = scene.split(|role| matches!(role, Role::Uplink));
            if !present.is_empty() || !absent.is_empty() {
                let is_present = !present.is_empty();
                to(vec![is(field("ether", "daddr"), BROADCAST), is_type(ARP)], is_present, &mut chain);
                let asking = message(set([SOLICITATION, ADVERTISEMENT]));
                to(and(vec![is_ipv6_group()], asking), is_present, &mut chain);
                chain.drop(Reason::Destination, [is_to_group()]);
                chain.drop(Reason::Destination, [is(field("ether", "daddr"), format!("@{MACS}"))]);
                to(vec![], is_present, &mut chain);
            }
        }
        Role::Uplink => {
            let compartments = scene.split(|role| matches!(role, Role::InOut { .. }));
            for (compartments, is_present) in compartments.iter().zip([true, false]) {
                for matches in asks_for(compartments) {
                    to(matches, is_present, &mut chain);
                }
            }
        }
    }
    chain.drop(Reason::Destination, []);
    chain.rules()
}

/// Returns matches for what the outside may send to these compartments.
fn asks_for(compartments: &[&Port]) -> Vec<Vec<Value>> {
    if compartments.is_empty() {
        return Vec::new();
    }
    let all: Vec<IpAddr> = compartments.iter().flat_map(|port| addresses(port)).copied().collect();
    let macs = words(compartments.iter().filter_map(|port| mac(port)));
    let mut matches = vec![vec![is(field("ether", "daddr"), macs)]];
    let (ipv4, ipv6) = (ipv4(&all), ipv6(&all));
    if !ipv4.is_empty() {
        let asked = [
            is(field("ether", "daddr"), BROADCAST),
            is(field("arp", "operation"), 1),
            is(field("arp", "daddr ip"), words(&ipv4)),
        ];
        matches.push(and(arp_of_ethernet(), asked));
    }
    if !ipv6.is_empty() {
        let asked = [is_ipv6_group(), is(discovery_target(), targets(&ipv6))];
        matches.push(and(message(SOLICITATION), asked));
    }
    matches
}

/// Returns the rules for what leaves through a port. The bridge floods what the outside asks for; only the
/// compartment that is asked lets it out.
pub(super) fn outgoing(label: &str, port: &Port) -> Vec<Value> {
    let mut chain = Chain::new(label);
    let (role, vlan) = mark_of_senders(port);
    let is_allowed = || is(meta("mark"), mark(role, vlan));
    let is_addressed = |mac| vec![is_allowed(), is(destination(), number(mac))];
    let counter = chain.counter(DELIVERED);
    match (&port.role, mac(port)) {
        (Role::Vm { .. }, Some(mac)) => chain.accept(is_addressed(mac), counter),
        (Role::InOut { addresses, .. }, Some(mac)) => {
            chain.accept(is_addressed(mac), counter.clone());
            let (ipv4, ipv6) = (ipv4(addresses), ipv6(addresses));
            if !ipv4.is_empty() {
                let asked = [is(meta("protocol"), ARP), is(arp_target(), arp_targets(&ipv4))];
                chain.accept(and(vec![is_allowed(), is_to_group()], asked), counter.clone());
            }
            if !ipv6.is_empty() {
                let asked = [is(meta("protocol"), IPV6), is(field("ip6", "nexthdr"), ICMPV6)];
                let target = [is(discovery_target(), targets(&ipv6))];
                let matches = and(and(vec![is_allowed(), is_to_group()], asked), target);
                chain.accept(matches, counter);
            }
        }
        _ => chain.accept([is_allowed()], counter),
    }
    chain.rules()
}

fn ipv4(addresses: &[IpAddr]) -> Vec<Ipv4Addr> {
    let ipv4 = |address: &IpAddr| if let IpAddr::V4(address) = address { Some(*address) } else { None };
    addresses.iter().filter_map(ipv4).collect()
}
