//! Every header of a frame, one after the other: for reports about packets, not for the way of a packet.
//!
//! It looks further than [`ethernet::payload`] does: behind any number of VLAN tags, into LLC and
//! SNAP, through MPLS and into tunnels.

use crate::bytes::{be16, chunk};
use crate::ethernet::{self, ether_type};
use crate::{arp, geneve, icmp, ipv4, ipv6, llc, mpls, protocol, tcp, udp, vxlan};
use core::ops::Range;

/// The most headers that [`Layers`] returns.
pub const MAX_LAYERS: usize = 64;

/// The kind of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// Ethernet addresses and EtherType.
    Ethernet,
    /// A VLAN tag's control information and the EtherType that follows it.
    Vlan,
    /// LLC and SNAP.
    LlcSnap,
    /// ARP.
    Arp,
    /// An MPLS label stack entry.
    Mpls,
    /// IPv4 with options.
    Ipv4,
    /// IPv6 without extension headers.
    Ipv6,
    /// One IPv6 extension header.
    Ipv6Extension,
    /// TCP with options.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP or ICMPv6: type, code, checksum.
    Icmp,
    /// VXLAN.
    Vxlan,
    /// Geneve with options.
    Geneve,
}

/// One header of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Its kind.
    pub kind: LayerKind,
    /// Its bytes, within the frame. The fixed part is wholly there; options may be cut off.
    pub range: Range<usize>,
}

/// What to read next.
#[derive(Clone, Copy, Debug)]
enum Next {
    Ethernet,
    EtherType(u16),
    Mpls,
    Extension(u8),
    Protocol(u8),
    Ports(u16),
    Nothing,
}

/// The headers of a frame.
#[derive(Clone, Debug)]
pub struct Layers<'a> {
    frame: &'a [u8],
    offset: usize,
    next: Next,
    left: usize,
}

impl<'a> Layers<'a> {
    /// Begins at a frame's Ethernet header.
    #[must_use]
    pub const fn new(frame: &'a [u8]) -> Self {
        Self { frame, offset: 0, next: Next::Ethernet, left: MAX_LAYERS }
    }

    /// Reads one header: its kind, its bytes, and what follows.
    fn read(&self, bytes: &[u8]) -> Option<(LayerKind, usize, Next)> {
        match self.next {
            Next::Ethernet => {
                let next = Next::EtherType(be16(bytes, ethernet::ADDRESSES_LEN)?);
                Some((LayerKind::Ethernet, ethernet::HEADER_LEN, next))
            }
            Next::EtherType(number) => by_ether_type(number, bytes),
            Next::Mpls => {
                let next = if mpls::Entry::new(bytes)?.is_bottom() {
                    match bytes.get(mpls::ENTRY_LEN).map(|byte| byte >> 4) {
                        Some(4) => Next::EtherType(ether_type::IPV4),
                        Some(6) => Next::EtherType(ether_type::IPV6),
                        _ => Next::Nothing,
                    }
                } else {
                    Next::Mpls
                };
                Some((LayerKind::Mpls, mpls::ENTRY_LEN, next))
            }
            Next::Extension(number) => {
                let header = chunk::<8>(bytes, 0)?;
                let walk = ipv6::Extensions::walk(header, number);
                let next = match walk.upper {
                    ipv6::Upper::LaterFragment => Next::Nothing,
                    _ => after_ipv6(header[0]),
                };
                Some((LayerKind::Ipv6Extension, ipv6::extension_len(number, header), next))
            }
            Next::Protocol(number) => by_protocol(number, bytes),
            Next::Ports(vxlan::PORT) => {
                let inner = vxlan::Header::new(bytes)?.carries_ethernet();
                Some((
                    LayerKind::Vxlan,
                    vxlan::HEADER_LEN,
                    if inner { Next::Ethernet } else { Next::Nothing },
                ))
            }
            Next::Ports(geneve::PORT) => {
                let header = geneve::Header::new(bytes)?;
                let inner = header.carries_ethernet();
                let next = if inner { Next::Ethernet } else { Next::Nothing };
                Some((LayerKind::Geneve, header.header_len(), next))
            }
            Next::Ports(_) | Next::Nothing => None,
        }
    }
}

impl Iterator for Layers<'_> {
    type Item = Layer;

    fn next(&mut self) -> Option<Layer> {
        self.left = self.left.checked_sub(1)?;
        let (kind, len, next) = self.read(self.frame.get(self.offset..)?)?;
        let range = self.offset..(self.offset + len).min(self.frame.len());
        (self.offset, self.next) = (range.end, next);
        Some(Layer { kind, range })
    }
}

fn by_ether_type(number: u16, bytes: &[u8]) -> Option<(LayerKind, usize, Next)> {
    match number {
        tag if ethernet::is_tag(tag) => {
            Some((LayerKind::Vlan, ethernet::TAG_LEN, Next::EtherType(be16(bytes, 2)?)))
        }
        length if llc::is_length(length) => {
            let next = Next::EtherType(llc::snap(bytes)?);
            Some((LayerKind::LlcSnap, llc::LLC_LEN + llc::SNAP_LEN, next))
        }
        ether_type::ARP => {
            chunk::<{ arp::HEADER_LEN }>(bytes, 0)?;
            Some((LayerKind::Arp, arp::HEADER_LEN, Next::Nothing))
        }
        ether_type::MPLS | ether_type::MPLS_UPSTREAM => {
            Layers { frame: bytes, offset: 0, next: Next::Mpls, left: 1 }.read(bytes)
        }
        ether_type::IPV4 => {
            let header = ipv4::Header::new(bytes)?;
            let later = header.is_later_fragment();
            let next = if later { Next::Nothing } else { Next::Protocol(header.protocol()) };
            Some((LayerKind::Ipv4, header.header_len().unwrap_or(ipv4::HEADER_LEN), next))
        }
        ether_type::IPV6 => {
            let header = ipv6::Header::new(bytes)?;
            Some((LayerKind::Ipv6, ipv6::HEADER_LEN, after_ipv6(header.next_header())))
        }
        _ => None,
    }
}

const fn after_ipv6(number: u8) -> Next {
    if ipv6::is_extension(number) { Next::Extension(number) } else { Next::Protocol(number) }
}

fn by_protocol(number: u8, bytes: &[u8]) -> Option<(LayerKind, usize, Next)> {
    match number {
        protocol::TCP => {
            let len = tcp::Header::new(bytes)?.header_len().max(tcp::HEADER_LEN);
            Some((LayerKind::Tcp, len, Next::Nothing))
        }
        protocol::UDP => {
            let port = udp::Header::new(bytes)?.destination_port();
            Some((LayerKind::Udp, udp::HEADER_LEN, Next::Ports(port)))
        }
        protocol::ICMP | protocol::ICMPV6 => {
            icmp::Header::new(bytes)?;
            Some((LayerKind::Icmp, icmp::HEADER_LEN, Next::Nothing))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The headers of frames that are made of parts.
    fn kinds(parts: &[&[u8]], found: &[LayerKind]) {
        let (mut frame, mut len) = ([0; 300], 12);
        for part in parts {
            frame[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        assert!(Layers::new(&frame[..len]).map(|layer| layer.kind).eq(found.iter().copied()), "{found:?}");
        for cut in 0..len {
            let whole = Layers::new(&frame[..len]);
            let all_within = Layers::new(&frame[..cut]).zip(whole).all(|(cut_off, layer)| {
                cut_off.kind == layer.kind
                    && cut_off.range.end <= cut
                    && cut_off.range.start == layer.range.start
            });
            assert!(all_within, "{cut}");
        }
    }

    const UDP: &[u8] = &[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 2];

    #[test]
    fn headers_follow_each_other() {
        use LayerKind::{
            Arp, Ethernet, Geneve, Icmp, Ipv4, Ipv6, Ipv6Extension, LlcSnap, Mpls, Tcp, Udp, Vlan, Vxlan,
        };
        let tag = [0x91, 0, 0, 5];
        kinds(
            &[&tag, &tag, &tag, &[8, 0], UDP, &[0, 1, 0, 0, 0, 0]],
            &[Ethernet, Vlan, Vlan, Vlan, Ipv4, Udp],
        );
        kinds(&[&[0, 40, 0xaa, 0xaa, 3, 0, 0, 0, 8, 6], &[0; 28]], &[Ethernet, LlcSnap, Arp]);
        kinds(&[&[0x88, 0x47, 0, 0, 0, 1, 0, 0, 1, 1], UDP, &[0; 6]], &[Ethernet, Mpls, Mpls, Ipv4, Udp]);
        kinds(
            &[&[8, 0], UDP, &[18, 181, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0], &[0; 14]],
            &[Ethernet, Ipv4, Udp, Vxlan, Ethernet],
        );
        kinds(
            &[&[8, 0], UDP, &[23, 193, 0, 0, 0, 0, 1, 0, 0x65, 0x58, 0, 0, 7, 0, 1, 1, 1, 1], &[0; 14]],
            &[Ethernet, Ipv4, Udp, Geneve, Ethernet],
        );
        let v6 = |next| [&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, next, 64][..], &[1; 32]].concat();
        kinds(&[&v6(60), &[58, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]], &[Ethernet, Ipv6, Ipv6Extension, Icmp]);
        kinds(&[&v6(44), &[6, 0, 0, 8, 0, 0, 0, 0], &[0; 20]], &[Ethernet, Ipv6, Ipv6Extension]);
        kinds(&[&v6(6), &[0x80; 32]], &[Ethernet, Ipv6, Tcp]);
        kinds(&[&[0x88, 0xcc, 1, 2]], &[Ethernet]);
    }

    #[test]
    fn the_headers_of_a_frame_are_bounded() {
        let mut frame = [0; 4096];
        for tag in frame.as_chunks_mut::<4>().0 {
            tag[..2].copy_from_slice(&[0x81, 0]);
        }
        assert_eq!(Layers::new(&frame).count(), MAX_LAYERS);
    }
}
