//! Packets inside tunnels that the switch ends.
//!
//! On a host of OVN or OpenStack what reaches a VM from another host arrives wrapped: an Ethernet frame in VXLAN or
//! Geneve, in UDP, addressed to the host. The switch unwraps it after it has received it, so at the receive side of a
//! port the packet has to be looked for inside ([`Tunnels::look`]), and if it is changed, the headers around it have to
//! be made true again ([`Outer`]).
//!
//! # Promises
//!
//! * **What the switch would unwrap does not get past as something else.** A packet for an end point whose inside cannot
//!   be told for sure (another version, another payload than Ethernet, IPv6 extension headers before UDP) is
//!   [`Inside::Unknown`], to be dropped. So is the first piece of one that comes in pieces: without it nobody can put the
//!   packet together. The other pieces, which do not say what they are of, are left alone.
//! * **Any bytes are fine**: every length is checked, the work is bounded by [`MAX_OUTER`] and
//!   [`MAX_HEADERS`](p4shield_mediator::extensions::MAX_HEADERS).
//! * **A wrong checksum stays wrong.** Checksums of outer headers are changed by the difference and never computed anew,
//!   so that a packet that was damaged on its way does not become a good one.

mod current;
mod outer;
mod sum;

pub use current::{Current, Seen};
pub use outer::{Change, Outer, Unfit};
pub use sum::Sum;

use p4shield_config::{Tunnel, TunnelKind};
use p4shield_mediator::extensions::{End, Extensions, UDP as UDP_PROTOCOL};
use p4shield_mediator::{self as mediator, Network};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The longest headers around an inner frame that are looked through: Ethernet with two tags, IPv4 with all options,
/// UDP, Geneve with all options. IPv6 is shorter.
pub const MAX_OUTER: usize = 22 + 60 + UDP + 8 + 63 * 4;
/// The shortest frame that there may be inside: an Ethernet header.
const ETHERNET: usize = 14;
/// Bytes of a UDP header.
const UDP: usize = 8;

/// What is inside a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// It is not for an end point.
    Nothing,
    /// The inner Ethernet frame begins so many bytes behind the beginning; at most [`MAX_OUTER`].
    At(usize),
    /// It is for an end point, and what the switch will find inside cannot be told.
    Unknown,
}

/// Whose side of the switch a packet came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A port behind which there is one VM.
    Vm,
    /// Any other.
    World,
}

/// The end points of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tunnels {
    end_points: Box<[Tunnel]>,
    /// The VMs' addresses, in order.
    vms: Box<[IpAddr]>,
    /// The networks that VMs are said to be in, in order.
    networks: Box<[u32]>,
}

/// A UDP packet, as far as it matters.
struct Datagram {
    to: IpAddr,
    /// None: it may be any, for UDP is further back than we look.
    port: Option<u16>,
    /// Where UDP's payload begins.
    payload: usize,
    /// Something stands between IP and UDP that not everybody reads in the same way.
    doubtful: bool,
}

impl Tunnels {
    /// End points, on a host with the VMs of these tenants.
    #[must_use]
    pub fn new(end_points: &[Tunnel], tenants: &mediator::Config) -> Self {
        let vms = || tenants.tenants.iter().flat_map(|t| &t.vms);
        Self {
            end_points: BTreeSet::from_iter(end_points.iter().copied()).into_iter().collect(),
            vms: BTreeSet::from_iter(vms().flat_map(|vm| vm.addresses.iter().copied())).into_iter().collect(),
            networks: BTreeSet::from_iter(vms().filter_map(|vm| vm.network)).into_iter().collect(),
        }
    }

    /// Whether there is none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.end_points.is_empty()
    }

    /// Whether a packet's network tells whose it is: any VM is said to be in one.
    #[must_use]
    #[inline]
    pub fn tell_networks(&self) -> bool {
        !self.networks.is_empty()
    }

    /// The network of what is inside a packet with these headers, of which [`Self::look`] found the end. All that no VM is
    /// in are one.
    #[must_use]
    pub fn network(&self, outer: &[u8]) -> Network {
        let number = Datagram::of(outer).and_then(|datagram| {
            // VXLAN and Geneve have it at the same place.
            let header: &[u8; 8] = outer.get(datagram.payload..)?.first_chunk()?;
            Some(u32::from_be_bytes([0, header[4], header[5], header[6]]))
        });
        let known = number.filter(|number| self.networks.binary_search(number).is_ok());
        known.map_or(Network::Foreign, Network::Number)
    }

    /// Looks into a packet that begins with `frame`. A packet to a VM is the VM's, whatever is inside: only a packet to
    /// an end point of a known address, or to no VM, is looked into. What a VM sends to an end point itself would be
    /// unwrapped as if it came from another host, with addresses inside that nobody has checked: that is
    /// [`Inside::Unknown`].
    #[must_use]
    pub fn look(&self, frame: &[u8], from: Origin) -> Inside {
        let Some(datagram) = Datagram::of(frame) else { return Inside::Nothing };
        let Some(kind) = self.end_point(&datagram, from) else { return Inside::Nothing };
        if datagram.doubtful || from == Origin::Vm {
            return Inside::Unknown;
        }
        let header = frame.get(datagram.payload..).and_then(<[u8]>::first_chunk);
        let len = header.and_then(|header| match kind {
            TunnelKind::Vxlan => vxlan(header),
            TunnelKind::Geneve => geneve(header),
        });
        match len.map(|len| datagram.payload + len) {
            Some(at) if frame.len() >= at + ETHERNET => Inside::At(at),
            _ => Inside::Unknown,
        }
    }

    fn end_point(&self, d: &Datagram, from: Origin) -> Option<TunnelKind> {
        let at_port = || self.end_points.iter().filter(|t| d.port.is_none_or(|port| port == t.port));
        let exact = at_port().find(|t| t.address == Some(d.to));
        let any = || {
            let any = at_port().find(|t| t.address.is_none())?;
            (from == Origin::World && self.vms.binary_search(&d.to).is_err()).then_some(any)
        };
        exact.or_else(any).map(|t| t.kind)
    }
}

impl Datagram {
    /// None for what is not UDP over IP and for all but the first piece of a packet.
    fn of(frame: &[u8]) -> Option<Self> {
        let l3 = Ip::find(frame)?;
        match frame.get(l3.at)? >> 4 {
            4 if !l3.v6 => Self::v4(frame, l3.at),
            6 if l3.v6 => Self::v6(frame, l3.at),
            _ => None,
        }
    }

    fn v4(frame: &[u8], at: usize) -> Option<Self> {
        let ip: &[u8; 20] = frame.get(at..)?.first_chunk()?;
        let len = usize::from(ip[0] & 0xf) * 4;
        let word = u16::from_be_bytes([ip[6], ip[7]]);
        let (piece, more) = (word & 0x1fff, word & 0x2000 != 0);
        if len < ip.len() || piece != 0 || ip[9] != UDP_PROTOCOL {
            return None;
        }
        let to = [ip[16], ip[17], ip[18], ip[19]].into();
        let far = || more.then_some(Self::far(to));
        Self::udp(frame, at + len, to, more).or_else(far)
    }

    fn v6(frame: &[u8], at: usize) -> Option<Self> {
        let ip: &[u8; 40] = frame.get(at..)?.first_chunk()?;
        let to = <[u8; 16]>::try_from(&ip[24..]).ok()?.into();
        let first = at + ip.len();
        let extensions = Extensions::walk(frame.get(first..)?, ip[6]);
        // Behind more headers than we follow, or longer ones than we see: a switch may have more patience.
        let far = || Some(Self::far(to));
        match extensions.end {
            End::Protocol(UDP_PROTOCOL) if extensions.len == 0 => Self::udp(frame, first, to, false),
            End::Protocol(UDP_PROTOCOL) => Self::udp(frame, first + extensions.len, to, true).or_else(far),
            End::Protocol(_) | End::Fragment => None,
            End::Beyond => far(),
        }
    }

    /// One whose UDP header cannot be seen.
    const fn far(to: IpAddr) -> Self {
        Self { to, port: None, payload: 0, doubtful: true }
    }

    fn udp(frame: &[u8], at: usize, to: IpAddr, doubtful: bool) -> Option<Self> {
        let udp: &[u8; UDP] = frame.get(at..)?.first_chunk()?;
        let port = Some(u16::from_be_bytes([udp[2], udp[3]]));
        Some(Self { to, port, payload: at + UDP, doubtful })
    }
}

/// Where a frame's IP packet begins.
struct Ip {
    at: usize,
    v6: bool,
}

impl Ip {
    /// Behind at most two VLAN tags. None if the frame does not carry IP.
    fn find(frame: &[u8]) -> Option<Self> {
        let mut at = 12;
        for _ in 0..3 {
            let ether_type = u16::from_be_bytes(*frame.get(at..)?.first_chunk()?);
            match ether_type {
                0x0800 => return Some(Self { at: at + 2, v6: false }),
                0x86dd => return Some(Self { at: at + 2, v6: true }),
                0x8100 | 0x88a8 | 0x9100 => at += 4,
                _ => return None,
            }
        }
        None
    }
}

/// Bytes of a VXLAN header before an Ethernet frame; none if another protocol is inside (the extension GPE), or the header
/// does not say which network it is of.
fn vxlan(header: &[u8; 8]) -> Option<usize> {
    const HAS_NUMBER: u8 = 0x08;
    const NEXT_PROTOCOL: u8 = 0x04;
    const IS_ETHERNET: u8 = 3;
    let ethernet = header[0] & NEXT_PROTOCOL == 0 || header[3] == IS_ETHERNET;
    (header[0] & HAS_NUMBER != 0 && ethernet).then_some(header.len())
}

/// Bytes of a Geneve header with its options before an Ethernet frame; none if it is of another version or another
/// protocol is inside.
fn geneve(header: &[u8; 8]) -> Option<usize> {
    const ETHERNET_BRIDGING: [u8; 2] = [0x65, 0x58];
    let (version, options) = (header[0] >> 6, usize::from(header[0] & 0x3f) * 4);
    (version == 0 && header[2..4] == ETHERNET_BRIDGING).then_some(header.len() + options)
}

/// Looks into any bytes, and changes what is found inside. Entry point of fuzzing.
#[cfg(any(test, fuzzing))]
pub fn fuzz_bytes(frame: &[u8]) {
    let tunnels: Vec<_> = [TunnelKind::Vxlan, TunnelKind::Geneve]
        .map(|kind| Tunnel { kind, address: None, port: kind.default_port() })
        .into();
    let Inside::At(at) = Tunnels::new(&tunnels, &mediator::Config::default()).look(frame, Origin::World)
    else {
        return;
    };
    assert!(at <= MAX_OUTER && at + ETHERNET <= frame.len());
    let inner = &frame[at..];
    let (old_head, new_head) = (&inner[..ETHERNET], &frame[..ETHERNET + 1]);
    let change =
        Change { old_head, new_head, old_len: inner.len(), new_len: inner.len() + 1, cut: Sum::default() };
    let _ = Outer::of(frame, at).and_then(|mut outer| outer.mend(&change));
}

#[cfg(test)]
mod tests;
