//! Messages that find a neighbour's link-layer address: ARP for IPv4 (RFC 826), and of IPv6's
//! neighbour discovery the solicitations and advertisements (RFC 4861 section 4).
//!
//! No program judges these messages, so whatever resembles one without being one would be a way
//! round the programs. [`arp()`] and [`discovery`] therefore return only what the RFCs let a receiver
//! accept (RFC 4861 sections 6.1 and 7.1): whole, of bounded length, from and to addresses of one link.
//! They leave out the checksum, which offloads complete, and redirects, which no machine needs for an
//! address.
//!
//! The auditor's tap in the kernel (`tap.bpf.c`) has the same rule and is tested against this one.

use crate::arp::{self, REPLY, REQUEST};
use crate::bytes::{chunk, field128};
use crate::{ethernet, icmp, ipv6, protocol};

/// The most bytes of ARP with the padding that Ethernet's shortest frame needs (IEEE 802.3 clause 4.2.3.3).
pub const MAX_ARP: usize = 46;
/// The most bytes of an IPv6 packet that is neighbour discovery: router advertisements with three
/// common options (the router's link-layer address, the MTU, one prefix), and all other messages.
pub const MAX_DISCOVERY: usize = 104;

// The auditor's tap reads 128 bytes of a frame.
const _: () = assert!(ethernet::MAX_HEADER_LEN + MAX_DISCOVERY <= 128);

/// The most bytes of options, except in router advertisements: a link-layer address and a nonce (RFC 7527).
const MAX_OPTIONS: usize = 16;
const OPTION_LEN: usize = 8;

/// ARP, as far as a check of its sender needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// The sender's IPv4 address; 0 in a probe (RFC 5227).
    pub sender: u32,
    /// The sender's link-layer address in the message is that of the frame.
    pub is_own_link: bool,
}

/// Neighbour discovery, as far as a check of its sender needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// The source address; 0 if the sender has none yet.
    pub source: u128,
    /// The address whose link-layer address the message announces: the target of a neighbour
    /// advertisement, else the source.
    pub claimed: u128,
    /// The sender's link-layer address in the message, if there is one, is that of the frame.
    pub is_own_link: bool,
    /// It is a router's advertisement.
    pub is_router: bool,
}

/// Reads ARP from a frame of `len` bytes, of which at least the front is `frame`; its payload begins at
/// `offset`.
/// `None` for all but requests and replies for IPv4 over Ethernet.
#[must_use]
pub fn arp(frame: &[u8], offset: usize, len: usize) -> Option<Arp> {
    let header = arp::Header::new(frame.get(offset..)?)?;
    let is_valid = matches!(header.operation(), REQUEST | REPLY) && len <= offset + MAX_ARP;
    let is_own_link = frame.get(ethernet::SOURCE)? == header.sender_link();
    is_valid.then_some(Arp { sender: header.sender(), is_own_link })
}

/// Reads neighbour discovery from a frame of `len` bytes, of which at least the front is `frame`; its
/// IPv6 header begins at `offset`. `None` for everything else.
#[must_use]
pub fn discovery(frame: &[u8], offset: usize, len: usize) -> Option<Discovery> {
    let packet = frame.get(offset..)?;
    let ip = ipv6::Header::new(packet)?;
    let is_message = ip.version() == 6 && ip.next_header() == protocol::ICMPV6 && ip.hop_limit() == 255;
    let total = ipv6::HEADER_LEN + usize::from(ip.payload_len());
    if !is_message || total > MAX_DISCOVERY || offset + total != len {
        return None;
    }
    let message = packet.get(ipv6::HEADER_LEN..total)?;
    let header = icmp::Header::new(message).filter(|icmp| icmp.code() == 0)?;
    let (source, destination) = (ip.source(), ip.destination());
    if is_multicast(source) {
        return None;
    }
    let kind = Kind::of(header.kind())?;
    let options = message.get(kind.fixed_len()..)?;
    let claimed = match kind {
        Kind::RouterSolicitation => reaches(source, destination, ALL_ROUTERS).then_some(source)?,
        Kind::RouterAdvertisement => {
            (is_link_local(source) && reaches(source, destination, ALL_NODES)).then_some(source)?
        }
        Kind::NeighbourSolicitation => {
            let target = target(message)?;
            let multicast = SOLICITED_NODE | target & 0xff_ffff;
            let to_target = destination == multicast || destination == target;
            (to_target && reaches(source, destination, multicast)).then_some(source)?
        }
        Kind::NeighbourAdvertisement => {
            // A solicited advertisement has one receiver (section 7.1.2).
            let multicast = if message[4] & SOLICITED != 0 { UNSPECIFIED } else { ALL_NODES };
            let reaches = source != UNSPECIFIED && reaches(source, destination, multicast);
            reaches.then_some(target(message)?)?
        }
    };
    let is_router = kind == Kind::RouterAdvertisement;
    let is_own_link = options_of(kind, options, frame.get(ethernet::SOURCE)?, source != UNSPECIFIED)?;
    Some(Discovery { source, claimed, is_own_link, is_router })
}

/// Reports whether an address is link-local unicast (`fe80::/10`).
#[must_use]
#[inline]
pub const fn is_link_local(address: u128) -> bool {
    address >> 118 == 0xfe80 >> 6
}

const UNSPECIFIED: u128 = 0;
const ALL_NODES: u128 = 0xff02 << 112 | 1;
const ALL_ROUTERS: u128 = 0xff02 << 112 | 2;
/// `ff02::1:ff00:0`; the last 24 bits are the target's (RFC 4291 section 2.7.1).
const SOLICITED_NODE: u128 = 0xff02 << 112 | 0x1_ff00_0000;
/// The flag S of a neighbour advertisement.
const SOLICITED: u8 = 0x40;

const fn is_multicast(address: u128) -> bool {
    address >> 120 == 0xff
}

/// Reports whether a message stays on its link: it goes to this multicast address of the link's scope, or
/// from and to unicast addresses of one link. Those are link-local, or share the 64 bits of a prefix (RFC
/// 4291 section 2.5.1), since nothing else of the link is known here.
const fn reaches(source: u128, destination: u128, multicast: u128) -> bool {
    if destination == UNSPECIFIED || is_multicast(destination) {
        return destination == multicast && destination != UNSPECIFIED;
    }
    let same_prefix = source >> 64 == destination >> 64;
    source != UNSPECIFIED && (is_link_local(source) || is_link_local(destination) || same_prefix)
}

/// Returns the target of a neighbour's message, which is unicast.
fn target(message: &[u8]) -> Option<u128> {
    let target = field128(chunk::<24>(message, 0)?, 8);
    (target != UNSPECIFIED && !is_multicast(target)).then_some(target)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    RouterSolicitation,
    RouterAdvertisement,
    NeighbourSolicitation,
    NeighbourAdvertisement,
}

impl Kind {
    const fn of(number: u8) -> Option<Self> {
        Some(match number {
            133 => Self::RouterSolicitation,
            134 => Self::RouterAdvertisement,
            135 => Self::NeighbourSolicitation,
            136 => Self::NeighbourAdvertisement,
            _ => return None,
        })
    }

    /// Returns the bytes before the options.
    const fn fixed_len(self) -> usize {
        match self {
            Self::RouterSolicitation => 8,
            Self::RouterAdvertisement => 16,
            Self::NeighbourSolicitation | Self::NeighbourAdvertisement => 24,
        }
    }

    /// Returns the type of the option with the sender's link-layer address.
    const fn link_option(self) -> u8 {
        const SOURCE: u8 = 1;
        const TARGET: u8 = 2;
        if matches!(self, Self::NeighbourAdvertisement) { TARGET } else { SOURCE }
    }
}

/// Reads the options. Returns whether the link-layer addresses among them are `link`; `None` if they are not
/// well-formed, or not those that the message may have.
fn options_of(kind: Kind, mut options: &[u8], link: &[u8], has_source: bool) -> Option<bool> {
    const NONCE: u8 = 14;
    let is_router = kind == Kind::RouterAdvertisement;
    if !is_router && options.len() > MAX_OPTIONS {
        return None;
    }
    let mut is_own_link = true;
    while !options.is_empty() {
        let head: &[u8; OPTION_LEN] = chunk(options, 0)?;
        let len = usize::from(head[1]) * OPTION_LEN;
        let is_link = head[0] == kind.link_option();
        // A sender without an address has no link-layer address to announce (sections 6.1.1 and 7.1.1).
        if len == 0 || is_link && (len != OPTION_LEN || !has_source) {
            return None;
        }
        if !is_router && !is_link && (head[0] != NONCE || len != OPTION_LEN) {
            return None;
        }
        is_own_link &= !is_link || head[2..] == *link;
        options = options.get(len..)?;
    }
    Some(is_own_link)
}

#[cfg(test)]
mod tests;
