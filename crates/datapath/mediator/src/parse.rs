//! Whose packet it is: the one place that decides which packets are judged.
//!
//! At a VM's own port (a wire, a vhost-user port, an `xsk` port) everything that the VM sends or receives is
//! judged, except the ARP and neighbour discovery that every machine needs ([`Kind::is_exempt`]). At a port
//! that VMs share, the VM is found by the address on its side ([`Kind::vm_address`]).
//!
//! Headers are read by `p4shield_frame`. Every packet with EtherType and version of IP and room for its
//! addresses counts as IP, however malformed otherwise: it is for a program to judge. IP that two readers
//! would find at different places is [`Kind::Refused`]. The auditor's tap in the kernel (`tap.bpf.c`) has
//! the same rule and is tested against this one.
//!
//! A packet's way goes on in `admission.rs`, which looks its addresses up.

use p4shield_abi::Direction;
use p4shield_frame::ethernet::{self, ADDRESSES_LEN, ether_type};
use p4shield_frame::protocol::ICMPV6;
use p4shield_frame::{ipv4, ipv6, llc, neighbour};
use std::net::IpAddr;

/// What a packet is to the mediator. Addresses are in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// IPv4.
    V4 {
        /// Source address.
        source: u32,
        /// Destination address.
        destination: u32,
    },
    /// IPv6, other than the neighbour discovery below.
    V6 {
        /// Source address.
        source: u128,
        /// Destination address.
        destination: u128,
    },
    /// ARP as RFC 826 has it.
    Arp(neighbour::Arp),
    /// Neighbour discovery as RFC 4861 has it. What a router advertises is judged as the router's own packet.
    Discovery(neighbour::Discovery),
    /// Not IP, or cut off before its addresses.
    Other,
    /// IP or ARP which one receiver would read as such and another one would not: its EtherType and
    /// its version differ, or it is in LLC and SNAP. It is dropped, since its readers may differ about whose
    /// it is; no usual sender makes such packets.
    Refused,
}

impl Kind {
    /// Whether no program judges the packet in a direction, not even at its VM's own port: it finds a
    /// neighbour's link-layer address, or is refused.
    #[must_use]
    #[inline]
    pub const fn is_exempt(self, direction: Direction) -> bool {
        match self {
            Self::Arp(_) | Self::Refused => true,
            Self::Discovery(message) => !message.is_router || matches!(direction, Direction::Ingress),
            Self::V4 { .. } | Self::V6 { .. } | Self::Other => false,
        }
    }

    /// Returns the address by which the VM is found that sends the packet (egress) or receives it
    /// (ingress). `None` if no program judges it at a port that VMs share.
    #[must_use]
    pub fn vm_address(self, direction: Direction) -> Option<IpAddr> {
        let (source, destination): (IpAddr, IpAddr) = match self {
            Self::V4 { source, destination } => {
                (source.to_be_bytes().into(), destination.to_be_bytes().into())
            }
            Self::V6 { source, destination } => {
                (source.to_be_bytes().into(), destination.to_be_bytes().into())
            }
            Self::Discovery(message) if !self.is_exempt(direction) => {
                return Some(message.source.to_be_bytes().into());
            }
            Self::Arp(_) | Self::Discovery(_) | Self::Other | Self::Refused => return None,
        };
        Some(if direction == Direction::Egress { source } else { destination })
    }
}

/// Classifies any bytes as the front of an Ethernet frame of `len` bytes.
#[must_use]
#[inline]
pub fn classify(frame: &[u8], len: usize) -> Kind {
    let Some(payload) = ethernet::payload(frame) else { return Kind::Other };
    let packet = &frame[payload.offset..];
    match payload.ether_type {
        ether_type::IPV4 => match ipv4::Header::new(packet) {
            Some(ip) if ip.version() == 4 => Kind::V4 { source: ip.source(), destination: ip.destination() },
            Some(_) => Kind::Refused,
            None => Kind::Other,
        },
        ether_type::IPV6 => match ipv6::Header::new(packet) {
            Some(ip) if ip.version() == 6 => match discovery(ip, frame, payload.offset, len) {
                Some(message) => Kind::Discovery(message),
                None => Kind::V6 { source: ip.source(), destination: ip.destination() },
            },
            Some(_) => Kind::Refused,
            None => Kind::Other,
        },
        ether_type::ARP => neighbour::arp(frame, payload.offset, len).map_or(Kind::Other, Kind::Arp),
        length if llc::is_length(length) => match llc::snap(packet) {
            Some(ether_type::IPV4 | ether_type::IPV6 | ether_type::ARP) => Kind::Refused,
            _ => Kind::Other,
        },
        _ => Kind::Other,
    }
}

/// Reads neighbour discovery, which few packets are.
#[inline]
fn discovery(ip: ipv6::Header<'_>, frame: &[u8], offset: usize, len: usize) -> Option<neighbour::Discovery> {
    if ip.next_header() != ICMPV6 { None } else { neighbour::discovery(frame, offset, len) }
}

/// Returns source and destination of an untagged IPv4 packet, as one number to compare and as
/// [`classify`] returns them; `None` for all others. One comparison of EtherType and version, one load
/// of both addresses.
#[inline]
pub(crate) fn addresses_of_v4(frame: &[u8]) -> Option<(u64, Kind)> {
    const IP: usize = ethernet::HEADER_LEN;
    const IPV4_VERSION_4: u32 = (ether_type::IPV4 as u32) << 16 | 0x4000;
    let head = frame.first_chunk::<{ IP + ipv4::HEADER_LEN }>()?;
    let type_and_version: &[u8; 4] = head[ADDRESSES_LEN..].first_chunk()?;
    if u32::from_be_bytes(*type_and_version) & 0xffff_f000 != IPV4_VERSION_4 {
        return None;
    }
    let addresses = u64::from_be_bytes(*head.last_chunk()?);
    Some((addresses, Kind::V4 { source: (addresses >> 32) as u32, destination: addresses as u32 }))
}

/// Returns the bytes before the network header: addresses, up to two VLAN tags, EtherType. All of a
/// frame that is cut off.
#[must_use]
pub(crate) fn link_header_len(frame: &[u8]) -> usize {
    ethernet::payload(frame).map_or(frame.len(), |payload| payload.offset)
}

#[cfg(test)]
mod tests;
