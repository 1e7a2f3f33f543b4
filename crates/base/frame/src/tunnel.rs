//! Ethernet frames inside VXLAN and Geneve: where they begin, and the headers around them after a
//! change inside.
//!
//! * Outer headers that two readers could understand in two ways are reported as such
//!   ([`Datagram::is_ambiguous`]).
//! * Checksums of outer headers are changed by the difference (RFC 1624) and never computed anew,
//!   so that a packet that was damaged on its way does not become a good one.

use crate::bytes::be16;
use crate::checksum::Sum;
use crate::ipv6::{Extensions, Upper};
use crate::{ethernet, geneve, ipv4, ipv6, protocol, transport, udp, vxlan};
use core::net::IpAddr;

/// Bytes of the longest headers around an inner frame: Ethernet with two tags, IPv4 with all
/// options, UDP, Geneve with all options. IPv6 without extension headers is shorter.
pub const MAX_OUTER: usize =
    ethernet::MAX_HEADER_LEN + ipv4::MAX_HEADER_LEN + udp::HEADER_LEN + geneve::MAX_HEADER_LEN;

/// How a frame is encapsulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encapsulation {
    /// VXLAN (RFC 7348).
    Vxlan,
    /// Geneve (RFC 8926).
    Geneve,
}

impl Encapsulation {
    /// Returns the bytes of its header, with options, before an Ethernet frame. `None` if the
    /// header is not whole, is of another version, carries another protocol or names no network.
    #[must_use]
    pub fn header_len(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::Vxlan => {
                let header = vxlan::Header::new(bytes).filter(|header| header.carries_ethernet())?;
                header.vni().map(|_| vxlan::HEADER_LEN)
            }
            Self::Geneve => {
                let header = geneve::Header::new(bytes).filter(|header| header.carries_ethernet())?;
                (header.version() == 0).then(|| header.header_len())
            }
        }
    }
}

/// A UDP datagram, as far as it matters to a tunnel's endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Where it goes.
    pub destination: IpAddr,
    /// The destination port. `None` if the UDP header is further back than is read: any port is possible.
    pub port: Option<u16>,
    /// Where UDP's payload begins, from the frame's beginning.
    pub payload: usize,
    /// IPv6 extension headers stand before UDP, or more fragments follow: readers differ about such packets.
    pub is_ambiguous: bool,
}

impl Datagram {
    /// Finds the datagram that a frame carries. `None` for all but UDP over IP, and for later
    /// fragments, which do not say what they belong to.
    #[must_use]
    pub fn find(frame: &[u8]) -> Option<Self> {
        let payload = ethernet::payload(frame)?;
        match payload.ether_type {
            ethernet::ether_type::IPV4 => Self::in_ipv4(frame, payload.offset),
            ethernet::ether_type::IPV6 => Self::in_ipv6(frame, payload.offset),
            _ => None,
        }
    }

    /// Finds the frame in the datagram, which `frame` carries. `None` if it is not certain that there is one.
    #[must_use]
    pub fn inner(&self, frame: &[u8], encapsulation: Encapsulation) -> Option<usize> {
        let len = encapsulation.header_len(frame.get(self.payload..)?)?;
        let inner = self.payload + len;
        (frame.len() >= inner + ethernet::HEADER_LEN).then_some(inner)
    }

    /// Returns the network's number: VXLAN and Geneve have it at the same place.
    #[must_use]
    pub fn vni(&self, frame: &[u8]) -> Option<u32> {
        geneve::Header::new(frame.get(self.payload..)?).map(geneve::Header::vni)
    }

    fn in_ipv4(frame: &[u8], offset: usize) -> Option<Self> {
        let header = ipv4::Header::new(frame.get(offset..)?)?;
        let len = header.header_len()?;
        if header.version() != 4 || header.is_later_fragment() || header.protocol() != protocol::UDP {
            return None;
        }
        let destination = IpAddr::V4(header.destination().into());
        let unseen = || header.has_more_fragments().then_some(Self::unseen(destination));
        Self::in_udp(frame, offset + len, destination, header.has_more_fragments()).or_else(unseen)
    }

    fn in_ipv6(frame: &[u8], offset: usize) -> Option<Self> {
        let header = ipv6::Header::new(frame.get(offset..)?).filter(|header| header.version() == 6)?;
        let destination = IpAddr::V6(header.destination().into());
        let first = offset + ipv6::HEADER_LEN;
        let extensions = Extensions::walk(frame.get(first..)?, header.next_header());
        // Behind more headers than are followed, or longer ones than are seen: a switch may follow them.
        let unseen = || Some(Self::unseen(destination));
        match extensions.upper {
            Upper::Protocol(protocol::UDP) if extensions.len == 0 => {
                Self::in_udp(frame, first, destination, false)
            }
            Upper::Protocol(protocol::UDP) => {
                Self::in_udp(frame, first + extensions.len, destination, true).or_else(unseen)
            }
            Upper::Protocol(_) | Upper::LaterFragment => None,
            Upper::Unreached => unseen(),
        }
    }

    /// One whose UDP header is not seen.
    const fn unseen(destination: IpAddr) -> Self {
        Self { destination, port: None, payload: 0, is_ambiguous: true }
    }

    fn in_udp(frame: &[u8], offset: usize, destination: IpAddr, is_ambiguous: bool) -> Option<Self> {
        let header = udp::Header::new(frame.get(offset..)?)?;
        let (port, payload) = (Some(header.destination_port()), offset + udp::HEADER_LEN);
        Some(Self { destination, port, payload, is_ambiguous })
    }
}

/// A change of the frame inside: a new head replaces its first bytes, and its end is cut off.
#[derive(Clone, Copy, Debug)]
pub struct InnerChange<'a> {
    /// The bytes that are replaced.
    pub old_head: &'a [u8],
    /// Those that replace them.
    pub new_head: &'a [u8],
    /// Bytes of the frame inside before the change.
    pub old_len: usize,
    /// Bytes of the frame inside after the change.
    pub new_len: usize,
    /// The sum of the bytes that are cut off its end, the first of them at an even offset.
    pub cut: Sum,
}

impl InnerChange<'_> {
    /// Returns the sum of the frame inside after the change, if it was `before`.
    fn apply(&self, before: Sum) -> Option<Sum> {
        let kept_len = self.new_len.checked_sub(self.new_head.len())?;
        let cut = self.cut.at(self.old_head.len() + kept_len);
        let kept = before - Sum::of(self.old_head) - cut;
        // What is kept moves by as much as the head grows: by an odd number, each byte becomes the
        // other half of its word.
        Some(Sum::of(self.new_head) + kept.at(self.old_head.len().abs_diff(self.new_head.len())))
    }
}

/// The headers around a frame do not fit it after the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterRefused;

impl core::fmt::Display for OuterRefused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the tunnel's headers cannot carry the changed packet")
    }
}

impl core::error::Error for OuterRefused {}

/// The headers around an inner frame, copied.
#[derive(Clone, Debug)]
pub struct Outer {
    bytes: [u8; MAX_OUTER],
    len: usize,
    ip: usize,
    is_v6: bool,
    udp: usize,
}

impl Outer {
    /// Copies those of a frame in which [`Datagram::inner`] found an inner frame at `inner`.
    ///
    /// # Errors
    /// The frame has no such headers.
    pub fn new(frame: &[u8], inner: usize) -> Result<Self, OuterRefused> {
        let headers = frame.get(..inner).ok_or(OuterRefused)?;
        let payload = ethernet::payload(headers).ok_or(OuterRefused)?;
        let (is_v6, ip_len) = match payload.ether_type {
            ethernet::ether_type::IPV4 => {
                let header = ipv4::Header::new(&headers[payload.offset..]);
                (false, header.and_then(ipv4::Header::header_len).ok_or(OuterRefused)?)
            }
            ethernet::ether_type::IPV6 => (true, ipv6::HEADER_LEN),
            _ => return Err(OuterRefused),
        };
        let udp = payload.offset + ip_len;
        if headers.len() < udp + udp::HEADER_LEN {
            return Err(OuterRefused);
        }
        let mut bytes = [0; MAX_OUTER];
        bytes.get_mut(..inner).ok_or(OuterRefused)?.copy_from_slice(headers);
        Ok(Self { bytes, len: inner, ip: payload.offset, is_v6, udp })
    }

    /// Returns the headers.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Updates lengths and checksums for a changed inner frame.
    ///
    /// # Errors
    /// The packet would be too long, or the lengths are not those of the frame that was inside.
    pub fn update(&mut self, change: &InnerChange<'_>) -> Result<(), OuterRefused> {
        let before = u16::try_from(self.len - self.udp + change.old_len).map_err(|_| OuterRefused)?;
        let after = u16::try_from(self.len - self.udp + change.new_len).map_err(|_| OuterRefused)?;
        if self.get(self.udp + udp::LEN_OFFSET) != before {
            return Err(OuterRefused);
        }
        let checksum = self.get(self.udp + udp::CHECKSUM_OFFSET);
        if checksum != 0 {
            let inner = Sum::claimed(checksum) - self.covered(before);
            let sum = self.covered(after) + change.apply(inner).ok_or(OuterRefused)?;
            self.set(self.udp + udp::CHECKSUM_OFFSET, sum.udp_checksum());
        }
        self.set(self.udp + udp::LEN_OFFSET, after);
        self.set_ip_len(before, after)
    }

    /// Sums all before the inner frame that UDP's checksum covers, without the checksum itself.
    fn covered(&self, udp_len: u16) -> Sum {
        let addresses = if self.is_v6 { ipv6::ADDRESSES } else { ipv4::ADDRESSES };
        let addresses = &self.bytes[self.ip + addresses.start..self.ip + addresses.end];
        let ports = &self.bytes[self.udp..self.udp + udp::LEN_OFFSET];
        let tunnel = &self.bytes[self.udp + udp::HEADER_LEN..self.len];
        let pseudo = transport::pseudo_header(addresses, protocol::UDP, udp_len.into());
        pseudo + Sum::of(ports) + Sum::word(udp_len) + Sum::of(tunnel)
    }

    fn set_ip_len(&mut self, before: u16, after: u16) -> Result<(), OuterRefused> {
        let header = if self.is_v6 { 0 } else { self.udp - self.ip };
        let field = self.ip + if self.is_v6 { 4 } else { 2 };
        let old = self.get(field);
        if usize::from(old) != header + usize::from(before) {
            return Err(OuterRefused);
        }
        let new = u16::try_from(header + usize::from(after)).map_err(|_| OuterRefused)?;
        self.set(field, new);
        if !self.is_v6 {
            let checksum = self.ip + ipv4::CHECKSUM.start;
            let sum = Sum::claimed(self.get(checksum)) - Sum::word(old) + Sum::word(new);
            self.set(checksum, sum.checksum());
        }
        Ok(())
    }

    fn get(&self, offset: usize) -> u16 {
        be16(&self.bytes, offset).unwrap_or(0)
    }

    fn set(&mut self, offset: usize, value: u16) {
        self.bytes[offset..offset + 2].copy_from_slice(&value.to_be_bytes());
    }
}
