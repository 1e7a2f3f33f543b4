//! Frames by their parts. Each has a number behind its packet, by which tests recognise it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};

use macaddr::MacAddr6;

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const ARP: u16 = 0x0806;
pub(crate) const IPV6: u16 = 0x86dd;
pub(crate) const SOLICITATION: u8 = 135;
pub(crate) const ADVERTISEMENT: u8 = 136;

/// Returns an Ethernet frame with `packet` and a number of its own.
pub(crate) fn ethernet(to: MacAddr6, from: MacAddr6, kind: u16, packet: &[u8]) -> Vec<u8> {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    [to.as_bytes(), from.as_bytes(), &kind.to_be_bytes(), packet, &number].concat()
}

/// Returns a UDP packet over IPv4 or IPv6.
pub(crate) fn udp(from: IpAddr, to: IpAddr) -> Vec<u8> {
    let data = [0x13, 0x88, 0x13, 0x89, 0, 8, 0, 0];
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => ipv4(from, to, 17, &data),
        (IpAddr::V6(from), IpAddr::V6(to)) => ipv6(from, to, 17, &data),
        _ => panic!("{from} and {to} are of two families"),
    }
}

pub(crate) fn ipv4(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (20 + payload.len() as u16).to_be_bytes();
    let header = [0x45, 0, high, low, 0, 1, 0, 0, 64, protocol, 0, 0];
    [&header, &from.octets()[..], &to.octets(), payload].concat()
}

pub(crate) fn ipv6(from: Ipv6Addr, to: Ipv6Addr, next: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (payload.len() as u16).to_be_bytes();
    [&[0x60, 0, 0, 0, high, low, next, 255], &from.octets()[..], &to.octets(), payload].concat()
}

/// Returns an ARP packet: operation 1 asks for `target`, 2 answers.
pub(crate) fn arp(operation: u8, mac: MacAddr6, from: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let header = [0, 1, 8, 0, 6, 4, 0, operation];
    [&header, mac.as_bytes(), &from.octets(), &[0; 6], &target.octets()].concat()
}

/// Returns an ICMPv6 message of neighbour discovery: with a target if it has one, and a link-layer address.
pub(crate) fn discovery(kind: u8, target: Option<Ipv6Addr>, link: Option<MacAddr6>) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    message.extend(target.iter().flat_map(|target| target.octets()));
    if let Some(mac) = link {
        message.extend([if kind == ADVERTISEMENT { 2 } else { 1 }, 1]);
        message.extend(mac.as_bytes());
    }
    message
}

/// Returns the link-local address that a host makes from its MAC address.
pub(crate) fn link_local(mac: MacAddr6) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.into_array();
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// Returns a frame for [`crate::raw::Raw::with_offloads`] whose checksum the kernel is to write, of all bytes
/// from `start` on, at `start + offset`.
pub(crate) fn without_checksum(start: u16, offset: u16, frame: &[u8]) -> Vec<u8> {
    // Flags: the checksum is undone.
    let mut all = vec![1, 0, 0, 0, 0, 0];
    all.extend([start, offset].into_iter().flat_map(u16::to_le_bytes));
    all.extend(frame);
    all
}

/// Returns a frame with a tag of `protocol` in it.
pub(crate) fn tagged(frame: &[u8], protocol: u16, vlan: u16) -> Vec<u8> {
    [&frame[..12], &protocol.to_be_bytes(), &vlan.to_be_bytes(), &frame[12..]].concat()
}
