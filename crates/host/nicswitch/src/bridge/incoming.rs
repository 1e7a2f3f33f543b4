//! The rules for frames that a port sends: whether they are in its own name.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZero;

use macaddr::MacAddr6;
use p4shield_topology::{Port, Role};
use serde_json::{Value, json};

use super::chain::Chain;
use super::expression::*;
use crate::Reason;
use crate::check::{addresses, mac};

/// The set of all ports' MAC addresses.
pub(super) const MACS: &str = "macs";
/// The counter of frames that a port's interface received.
pub(super) const RECEIVED: &str = "received";
/// A burst is what a rate allows in a second, divided by this: 10 ms, as in the XDP back end.
const BURSTS: u32 = 100;
/// Frames of a burst at least.
const LEAST_BURST: u32 = 64;
/// Bytes of an ARP packet.
const ARP_PACKET: u32 = 28;

pub(super) const ICMPV6: u8 = 58;
const AUTHENTICATION: u8 = 51;
/// Hop-by-hop options, routing, fragment, authentication, ICMPv6, destination options.
const HIDES_DISCOVERY: [u8; 6] = [0, 43, 44, AUTHENTICATION, ICMPV6, 60];
const ROUTER_SOLICITATION: u8 = 133;
pub(super) const SOLICITATION: u8 = 135;
pub(super) const ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;
/// Bytes of an ICMPv6 header.
const ICMPV6_HEADER: usize = 4;
/// Bytes of a message before its options, without and with a target.
const HEAD: usize = 8;
const HEAD_WITH_TARGET: usize = 24;
/// A nonce option of 8 bytes, with which a host asks whether its address is free (RFC 7527).
const NONCE: u16 = 0x0e01;

/// Returns the rules for what a port sends.
pub(super) fn rules(label: &str, port: &Port) -> Vec<Value> {
    let mut chain = Chain::new(label);
    chain.count(RECEIVED);
    if let Some(rate) = port.packet_rate {
        chain.drop(Reason::Rate, [limit(rate)]);
    }
    chain.drop(Reason::Tag, [is(field("ether", "type"), set(TAGS))]);
    source_mac(&mut chain, port);
    chain.drop(Reason::Ethertype, [is_not(field("ether", "type"), set([IPV4, ARP, IPV6]))]);
    chain.drop(Reason::Malformed, [is_type(ARP), is_below(meta("length"), ARP_PACKET)]);
    chain.drop(Reason::Malformed, [is_type(IPV6), is_not(field("ip6", "version"), 6)]);
    short_messages(&mut chain);
    match (&port.role, mac(port)) {
        (Role::Vm { .. } | Role::InOut { .. }, Some(mac)) => {
            let owner = Owner::of(port, mac);
            owner.arp(&mut chain, matches!(port.role, Role::Vm { .. }));
            owner.ipv4(&mut chain);
            owner.discovery(&mut chain);
            owner.ipv6(&mut chain);
        }
        _ => {
            chain.pass([is_type(ARP)]);
            chain.pass([is_type(IPV4), is_well_formed()]);
            chain.pass([is_type(IPV6), is_well_formed()]);
            chain.pass([is_type(IPV6), is_not(fragment_offset(), 0)]);
        }
    }
    chain.drop(Reason::Malformed, []);
    chain.rules()
}

/// Matches frames beyond a rate, in frames of each second.
fn limit(rate: NonZero<u32>) -> Value {
    let burst = (rate.get() / BURSTS).max(LEAST_BURST);
    json!({"limit": {"rate": rate.get(), "per": "second", "burst": burst, "inv": true}})
}

fn source_mac(chain: &mut Chain<'_>, port: &Port) {
    let source = || field("ether", "saddr");
    match mac(port) {
        Some(mac) => chain.drop(Reason::SourceMac, [is_not(source(), mac.to_string())]),
        None => {
            chain.drop(Reason::SourceMac, [is_from_group()]);
            chain.drop(Reason::SourceMac, [is(source(), format!("@{MACS}"))]);
        }
    }
}

/// The addresses that a port may send from.
#[derive(Debug)]
struct Owner {
    mac: MacAddr6,
    ipv4: Vec<IpAddr>,
    ipv6: Vec<Ipv6Addr>,
    /// The link-local address that a host makes from its MAC address (RFC 4291, appendix A).
    link_local: Ipv6Addr,
}

impl Owner {
    fn of(port: &Port, mac: MacAddr6) -> Self {
        let [a, b, c, d, e, f] = mac.into_array();
        let word = |high, low| u16::from_be_bytes([high, low]);
        Self {
            mac,
            ipv4: addresses(port).iter().filter(|address| address.is_ipv4()).copied().collect(),
            ipv6: ipv6(addresses(port)),
            link_local: [0xfe80, 0, 0, 0, word(a ^ 2, b), word(c, 0xff), word(0xfe, d), word(e, f)].into(),
        }
    }

    fn arp(&self, chain: &mut Chain<'_>, may_probe: bool) {
        let with = |sender: Value, operations: Value| {
            let its = [
                is(field("arp", "operation"), operations),
                is(field("arp", "saddr ether"), self.mac.to_string()),
                is(field("arp", "saddr ip"), sender),
            ];
            and(arp_of_ethernet(), its)
        };
        if !self.ipv4.is_empty() {
            chain.pass(with(words(&self.ipv4), set([1, 2])));
        }
        // A probe asks whether an address is free.
        if may_probe {
            chain.pass(with("0.0.0.0".into(), 1.into()));
        }
        chain.drop(Reason::Arp, [is_type(ARP)]);
    }

    fn ipv4(&self, chain: &mut Chain<'_>) {
        if !self.ipv4.is_empty() {
            let own = words(&self.ipv4);
            chain.pass([is_type(IPV4), is_well_formed(), is(field("ip", "saddr"), own)]);
        }
        chain.drop(Reason::SourceIp, [is_type(IPV4), is_well_formed()]);
        chain.drop(Reason::Malformed, [is_type(IPV4)]);
    }

    /// Neighbour discovery right behind the IPv6 header; elsewhere it is not let through.
    fn discovery(&self, chain: &mut Chain<'_>) {
        let own = || self.ipv6.iter().chain([&self.link_local]);
        let (source, is_other) = (|| field("ip6", "saddr"), || is_not(discovery_target(), targets(own())));
        let senders = words(own().chain([&Ipv6Addr::UNSPECIFIED]));
        let asking = message(set([ROUTER_SOLICITATION, SOLICITATION, ADVERTISEMENT]));
        Self::malformed_options(chain, &asking);
        chain.drop(Reason::SourceIp, and(asking, [is_not(source(), senders)]));
        // A solicitation without an address asks whether the address that it names is free.
        let unspecified = [is(source(), "::"), is_other()];
        chain.drop(Reason::Neighbour, and(message(SOLICITATION), unspecified));
        chain.drop(Reason::Neighbour, and(message(ADVERTISEMENT), [is_other()]));
        self.options(chain, &message(ROUTER_SOLICITATION), HEAD);
        self.options(chain, &message(set([SOLICITATION, ADVERTISEMENT])), HEAD_WITH_TARGET);
        // Here it is a router's message, has options that are not let through, or is hidden.
        let discovery = is(field("icmpv6", "type"), range(ROUTER_SOLICITATION, REDIRECT));
        chain.drop(Reason::Neighbour, [is_type(IPV6), is(protocol(), ICMPV6), discovery]);
        let hides = is(behind_authentication(), set(HIDES_DISCOVERY));
        chain.drop(Reason::Neighbour, [is_type(IPV6), is(protocol(), AUTHENTICATION), hides]);
    }

    /// Drops options that end in their middle.
    fn malformed_options(chain: &mut Chain<'_>, asking: &[Value]) {
        let two = || message(set([SOLICITATION, ADVERTISEMENT]));
        let length = || field("ip6", "length");
        chain.drop(Reason::Malformed, and(asking.to_vec(), [is_not(rest_of_length(), 0)]));
        let fits = set([0, 1]);
        let single = [is(length(), HEAD_WITH_TARGET + 8), is_not(option_length(HEAD_WITH_TARGET), fits)];
        chain.drop(Reason::Malformed, and(two(), single));
    }

    /// Lets messages of `length` bytes pass without options, with the port's own link-layer address, a nonce,
    /// or both: what hosts send.
    fn options(&self, chain: &mut Chain<'_>, message: &[Value], length: usize) {
        let with = |options: &[Value]| {
            let length = is(field("ip6", "length"), length + 8 * options.len());
            and(message.to_vec(), [&[length], options].concat())
        };
        let address = |at| is(option(at), link_layer_options(self.mac));
        let nonce = |at| is(option_type(at), NONCE);
        let (first, second) = (length, length + 8);
        chain.pass(with(&[]));
        chain.pass(with(&[address(first)]));
        chain.pass(with(&[nonce(first)]));
        chain.pass(with(&[address(first), nonce(second)]));
        chain.pass(with(&[nonce(first), address(second)]));
    }

    fn ipv6(&self, chain: &mut Chain<'_>) {
        let is_own = || is(field("ip6", "saddr"), words(&self.ipv6));
        let is_discovery = || range(ROUTER_SOLICITATION, REDIRECT);
        // What a later fragment carries cannot be seen. Its first one is dropped if that is discovery.
        let ways: [Vec<Value>; 3] = [
            vec![is_not(fragment_offset(), 0)],
            vec![is_not(protocol(), ICMPV6)],
            vec![is(protocol(), ICMPV6), is_not(field("icmpv6", "type"), is_discovery())],
        ];
        for way in ways {
            let way = and(vec![is_type(IPV6)], way);
            if !self.ipv6.is_empty() {
                chain.pass(and(way.clone(), [is_own()]));
            }
            chain.drop(Reason::SourceIp, way);
        }
    }
}

/// Drops ICMPv6 without its header, and neighbour discovery that ends in its middle, right behind the IPv6
/// header.
fn short_messages(chain: &mut Chain<'_>) {
    let length = || field("ip6", "length");
    let direct = [is_type(IPV6), is(field("ip6", "nexthdr"), ICMPV6), is_below(length(), ICMPV6_HEADER)];
    chain.drop(Reason::Malformed, direct);
    let short = |types: Value, least: usize| and(message(types), [is_below(length(), least)]);
    chain.drop(Reason::Malformed, short(ROUTER_SOLICITATION.into(), HEAD));
    chain.drop(Reason::Malformed, short(set([SOLICITATION, ADVERTISEMENT]), HEAD_WITH_TARGET));
}

/// Matches messages of neighbour discovery of these types right behind the IPv6 header.
pub(super) fn message(types: impl Into<Value>) -> Vec<Value> {
    let is_direct = is(field("ip6", "nexthdr"), ICMPV6);
    vec![is_type(IPV6), is_well_formed(), is_direct, is(field("icmpv6", "type"), types)]
}

/// Matches ARP over Ethernet and IPv4.
pub(super) fn arp_of_ethernet() -> Vec<Value> {
    let is_field = |name, value: u16| is(field("arp", name), value);
    let fields = [is_field("htype", 1), is_field("ptype", IPV4), is_field("hlen", 6), is_field("plen", 4)];
    and(vec![is_type(ARP)], fields)
}

pub(super) fn and(mut matches: Vec<Value>, more: impl IntoIterator<Item = Value>) -> Vec<Value> {
    matches.extend(more);
    matches
}

/// Returns the IPv6 addresses among these.
pub(super) fn ipv6(addresses: &[IpAddr]) -> Vec<Ipv6Addr> {
    let ipv6 = |address: &IpAddr| if let IpAddr::V6(address) = address { Some(*address) } else { None };
    addresses.iter().filter_map(ipv6).collect()
}
