//! Expressions and statements of nftables in JSON (`man 5 libnftables-json`).

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use macaddr::MacAddr6;
use serde_json::{Value, json};

pub(super) const IPV4: u16 = 0x0800;
pub(super) const ARP: u16 = 0x0806;
pub(super) const IPV6: u16 = 0x86dd;
/// Tags of IEEE 802.1Q and 802.1ad.
pub(super) const TAGS: [u16; 2] = [0x8100, 0x88a8];
/// Bytes of an IPv6 header.
const IPV6_HEADER: usize = 40;

pub(super) fn is(left: Value, right: impl Into<Value>) -> Value {
    matched("==", left, right.into())
}

pub(super) fn is_not(left: Value, right: impl Into<Value>) -> Value {
    matched("!=", left, right.into())
}

pub(super) fn is_below(left: Value, right: impl Into<Value>) -> Value {
    matched("<", left, right.into())
}

fn matched(operator: &str, left: Value, right: Value) -> Value {
    json!({"match": {"op": operator, "left": left, "right": right}})
}

pub(super) fn set<T: Into<Value>>(values: impl IntoIterator<Item = T>) -> Value {
    json!({"set": values.into_iter().map(Into::into).collect::<Vec<Value>>()})
}

pub(super) fn range(first: u8, last: u8) -> Value {
    json!({"range": [first, last]})
}

/// Returns a set of what nftables reads as words, such as addresses. Sets are sorted: rules do not depend on
/// the order of ports.
pub(super) fn words<T: ToString>(values: impl IntoIterator<Item = T>) -> Value {
    set(values.into_iter().map(|value| value.to_string()).collect::<BTreeSet<_>>())
}

pub(super) fn meta(key: &str) -> Value {
    json!({"meta": {"key": key}})
}

pub(super) fn field(protocol: &str, name: &str) -> Value {
    json!({"payload": {"protocol": protocol, "field": name}})
}

/// Bits of a frame behind the start of a header: `ll`, Ethernet's; `nh`, the packet's; `th`, that of what it
/// carries.
fn bits(base: &str, first: usize, count: usize) -> Value {
    json!({"payload": {"base": base, "offset": first, "len": count}})
}

/// The type field of the Ethernet header, which is that of a tag, if there is one. Not where a frame leaves:
/// nftables asks for the interface that it came from, too, which is unknown there.
pub(super) fn is_type(ethertype: u16) -> Value {
    is(field("ether", "type"), ethertype)
}

pub(super) fn destination() -> Value {
    bits("ll", 0, 48)
}

pub(super) fn is_to_group() -> Value {
    is(bits("ll", 7, 1), 1)
}

pub(super) fn is_from_group() -> Value {
    is(bits("ll", 48 + 7, 1), 1)
}

/// An address of control packets of bridges (IEEE 802.1D), which a bridge gives the host.
pub(super) fn is_for_bridges() -> Value {
    is(bits("ll", 0, 44), 0x0180_c200_0000_u64 >> 4)
}

pub(super) fn is_ipv6_group() -> Value {
    is(bits("ll", 0, 16), 0x3333)
}

/// Returns a MAC address as the number that [`bits`] make.
pub(super) fn number(mac: MacAddr6) -> u64 {
    mac.as_bytes().iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The upper protocol of a well-formed IP packet; of another one it matches nothing.
pub(super) fn protocol() -> Value {
    meta("l4proto")
}

pub(super) fn is_well_formed() -> Value {
    is(protocol(), range(0, 255))
}

/// Where a fragment of IPv6 is in its packet; without a fragment header it matches nothing.
pub(super) fn fragment_offset() -> Value {
    json!({"exthdr": {"name": "frag", "field": "frag-off"}})
}

/// The next header that an authentication header has.
pub(super) fn behind_authentication() -> Value {
    bits("th", 0, 8)
}

/// The target of ARP, where a frame leaves.
pub(super) fn arp_target() -> Value {
    bits("nh", 24 * 8, 32)
}

/// The target of a neighbour solicitation or advertisement right behind the IPv6 header.
pub(super) fn discovery_target() -> Value {
    bits("nh", (IPV6_HEADER + 8) * 8, 128)
}

/// Returns the values of [`discovery_target`].
pub(super) fn targets<'a>(addresses: impl IntoIterator<Item = &'a Ipv6Addr>) -> Value {
    words(addresses.into_iter().map(|address| format!("{:#034x}", u128::from(*address))))
}

/// Returns the values of [`arp_target`].
pub(super) fn arp_targets<'a>(addresses: impl IntoIterator<Item = &'a Ipv4Addr>) -> Value {
    set(addresses.into_iter().map(|address| u32::from(*address)).collect::<BTreeSet<_>>())
}

/// An option of 8 bytes that starts this many bytes behind the ICMPv6 header's start.
pub(super) fn option(at: usize) -> Value {
    bits("nh", (IPV6_HEADER + at) * 8, 64)
}

/// The type and length of that option.
pub(super) fn option_type(at: usize) -> Value {
    bits("nh", (IPV6_HEADER + at) * 8, 16)
}

/// The length of that option, in units of 8 bytes.
pub(super) fn option_length(at: usize) -> Value {
    bits("nh", (IPV6_HEADER + at) * 8 + 8, 8)
}

/// The rest of the length in an IPv6 header, beyond units of 8 bytes.
pub(super) fn rest_of_length() -> Value {
    bits("nh", 5 * 8 + 5, 3)
}

/// The options that a MAC address may be in: source and target link-layer address (RFC 4861).
pub(super) fn link_layer_options(mac: MacAddr6) -> Value {
    set([0x0101_u64, 0x0201].map(|head| head << 48 | number(mac)))
}

pub(super) fn set_mark(mark: u32) -> Value {
    json!({"mangle": {"key": meta("mark"), "value": mark}})
}

pub(super) const BROADCAST: &str = "ff:ff:ff:ff:ff:ff";
