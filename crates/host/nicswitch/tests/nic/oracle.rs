//! The policy in plain words: to which port a frame goes, or the reason why to none. Written from the roles'
//! definitions, without any of the switch's code.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use macaddr::MacAddr6;
use p4shield_nicswitch::Reason;
use p4shield_topology::{Port, Role};

use crate::frames::{ARP, IPV4, IPV6, link_local};

/// The most extension headers, and options of a message.
pub(crate) const EXTENSION_HEADERS: usize = 7;
const OPTIONS: usize = 8;

/// The ports, and the MTU of those interfaces that are there.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) ports: Vec<Port>,
    pub(crate) mtus: BTreeMap<String, usize>,
}

/// A packet as far as the policy knows it.
enum Packet<'a> {
    Ipv4(Ipv4Addr),
    Ipv6(Ipv6Addr, Message<'a>),
    /// `Some` if it is one of Ethernet and IPv4.
    Arp(Option<Arp>),
}

struct Arp {
    is_request: bool,
    mac: MacAddr6,
    sender: Ipv4Addr,
    target: Ipv4Addr,
}

/// The message in an IPv6 packet.
enum Message<'a> {
    Other,
    /// Neighbour discovery behind other headers, or more headers than a packet should have.
    Hidden,
    RouterSolicitation(&'a [u8]),
    Solicitation(Ipv6Addr, &'a [u8]),
    Advertisement(Ipv6Addr, &'a [u8]),
    /// A router's advertisement or redirect.
    Router,
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn station(bytes: &[u8], at: usize) -> Option<MacAddr6> {
    array::<6>(bytes, at).map(MacAddr6::from)
}

fn half(bytes: &[u8], at: usize) -> Option<usize> {
    array(bytes, at).map(|bytes| usize::from(u16::from_be_bytes(bytes)))
}

/// Reads an IPv4 packet; `None` if its lengths contradict each other or the frame.
fn ipv4(bytes: &[u8]) -> Option<Packet<'_>> {
    let (version, header) = (bytes.first()? >> 4, usize::from(bytes.first()? & 15) * 4);
    let whole = bytes.get(..half(bytes, 2)?)?;
    (version == 4 && header >= 20 && whole.len() >= header)
        .then(|| array::<4>(whole, 12).map(|source| Packet::Ipv4(source.into())))?
}

fn arp(bytes: &[u8]) -> Option<Packet<'_>> {
    let bytes = bytes.get(..28)?;
    let is_right = bytes[..7] == [0, 1, 8, 0, 6, 4, 0] && [1, 2].contains(&bytes[7]);
    let arp = Arp {
        is_request: bytes[7] == 1,
        mac: station(bytes, 8)?,
        sender: array::<4>(bytes, 14)?.into(),
        target: array::<4>(bytes, 24)?.into(),
    };
    Some(Packet::Arp(is_right.then_some(arp)))
}

fn ipv6(bytes: &[u8]) -> Option<Packet<'_>> {
    let (header, rest) = bytes.split_at_checked(40)?;
    let payload = rest.get(..half(header, 4)?)?;
    let source = Ipv6Addr::from(array::<16>(header, 8)?);
    (header[0] >> 4 == 6)
        .then(|| message(header[6], payload, 0).map(|message| Packet::Ipv6(source, message)))?
}

/// Reads the message behind `depth` extension headers.
fn message(next: u8, payload: &[u8], depth: usize) -> Option<Message<'_>> {
    let is_extension = [0, 43, 44, 51, 60].contains(&next);
    if depth > EXTENSION_HEADERS {
        return Some(Message::Hidden);
    }
    if next == 58 {
        return icmpv6(payload, depth);
    }
    if !is_extension {
        return Some(Message::Other);
    }
    let start = array::<8>(payload, 0)?;
    let units = usize::from(start[1]);
    let length = match next {
        44 if u16::from_be_bytes([start[2], start[3]]) >> 3 != 0 => return Some(Message::Other),
        44 => 8,
        51 => (units + 2) * 4,
        _ => (units + 1) * 8,
    };
    message(start[0], payload.get(length..)?, depth + 1)
}

fn icmpv6(message: &[u8], depth: usize) -> Option<Message<'_>> {
    let kind = array::<4>(message, 0)?[0];
    let target = || array::<16>(message, 8).map(Ipv6Addr::from);
    Some(match kind {
        133..=137 if depth > 0 => Message::Hidden,
        133 => Message::RouterSolicitation(message.get(8..)?),
        135 => Message::Solicitation(target()?, &message[24..]),
        136 => Message::Advertisement(target()?, &message[24..]),
        134 | 137 => Message::Router,
        _ => Message::Other,
    })
}

/// Checks that link-layer addresses in options are `own`.
fn check_options(mut options: &[u8], own: MacAddr6) -> Result<(), Reason> {
    for _ in 0..OPTIONS {
        let Some(kind) = options.first() else { return Ok(()) };
        let start = array::<8>(options, 0).ok_or(Reason::Malformed)?;
        let length = usize::from(start[1]) * 8;
        let is_foreign = [1, 2].contains(kind) && (length != 8 || station(&start, 2) != Some(own));
        if length == 0 || is_foreign {
            return Err(Reason::Neighbour);
        }
        options = options.get(length..).ok_or(Reason::Malformed)?;
    }
    if options.is_empty() { Ok(()) } else { Err(Reason::Neighbour) }
}

/// Checks that the party with these addresses may say this.
fn check_sender(own: &[IpAddr], mac: MacAddr6, may_probe: bool, packet: &Packet<'_>) -> Result<(), Reason> {
    let has = |address: Ipv6Addr| own.contains(&address.into()) || address == link_local(mac);
    let claim = |is_right, reason| if is_right { Ok(()) } else { Err(reason) };
    match packet {
        Packet::Ipv4(source) => claim(own.contains(&(*source).into()), Reason::SourceIp),
        Packet::Ipv6(source, Message::Other) => claim(own.contains(&(*source).into()), Reason::SourceIp),
        Packet::Ipv6(_, Message::Hidden | Message::Router) => Err(Reason::Neighbour),
        Packet::Arp(None) => Err(Reason::Arp),
        Packet::Arp(Some(arp)) => {
            let is_probe = may_probe && arp.is_request && arp.sender.is_unspecified();
            claim(arp.mac == mac && (is_probe || own.contains(&arp.sender.into())), Reason::Arp)
        }
        Packet::Ipv6(source, message) => {
            claim(source.is_unspecified() || has(*source), Reason::SourceIp)?;
            let (target, options) = match message {
                Message::Solicitation(target, options) if source.is_unspecified() => (Some(target), options),
                Message::Advertisement(target, options) => (Some(target), options),
                Message::Solicitation(_, options) | Message::RouterSolicitation(options) => (None, options),
                Message::Other | Message::Hidden | Message::Router => unreachable!("handled above"),
            };
            claim(target.is_none_or(|target| has(*target)), Reason::Neighbour)?;
            check_options(options, mac)
        }
    }
}

fn mac_of(port: &Port) -> Option<MacAddr6> {
    match port.role {
        Role::Vm { mac, .. } | Role::Gateway { mac, .. } | Role::InOut { mac, .. } => Some(mac),
        Role::Uplink => None,
    }
}

fn read<'a>(kind: u16, rest: &'a [u8]) -> Result<Packet<'a>, Reason> {
    let packet = match kind {
        IPV4 => ipv4(rest),
        IPV6 => ipv6(rest),
        ARP => arp(rest),
        _ => return Err(Reason::Ethertype),
    };
    packet.ok_or(Reason::Malformed)
}

impl World {
    fn find(&self, is_it: impl Fn(&Port) -> bool) -> Option<&Port> {
        self.ports.iter().find(|port| is_it(port))
    }

    fn is_port(&self, mac: MacAddr6) -> bool {
        self.find(|port| mac_of(port) == Some(mac)).is_some()
    }

    /// Returns the port to which a frame from another port goes.
    pub(crate) fn judge(&self, from: &str, frame: &[u8]) -> Result<&str, Reason> {
        let port = self.find(|port| port.interface == from).ok_or(Reason::Unassigned)?;
        let to = station(frame, 0).ok_or(Reason::Malformed)?;
        let source = station(frame, 6).ok_or(Reason::Malformed)?;
        let kind = array(frame, 12).map(u16::from_be_bytes).ok_or(Reason::Malformed)?;
        if kind == 0x8100 || kind == 0x88a8 {
            return Err(Reason::Tag);
        }
        let may_be_source = match mac_of(port) {
            Some(own) => source == own,
            None => !source.is_multicast() && !self.is_port(source),
        };
        if !may_be_source {
            return Err(Reason::SourceMac);
        }
        let packet = read(kind, &frame[14..])?;
        let target = self.target(port, to, &packet)?.ok_or(Reason::Destination)?;
        match self.mtus.get(&target.interface) {
            None => Err(Reason::NoPort),
            Some(mtu) if frame.len() > mtu + 14 => Err(Reason::TooLong),
            Some(_) => Ok(&target.interface),
        }
    }

    fn target(&self, port: &Port, to: MacAddr6, packet: &Packet<'_>) -> Result<Option<&Port>, Reason> {
        let is_v6_group = to.as_bytes()[..2] == [0x33, 0x33];
        match &port.role {
            Role::Vm { vlan, mac, addresses } => {
                check_sender(addresses, *mac, true, packet)?;
                Ok(self.find(|other| match other.role {
                    Role::Gateway { vlan: its, mac } => its == *vlan && (to.is_multicast() || to == mac),
                    _ => false,
                }))
            }
            Role::Gateway { vlan, .. } => Ok(self.find(
                |other| matches!(other.role, Role::Vm { vlan: its, mac, .. } if its == *vlan && mac == to),
            )),
            Role::InOut { mac, addresses } => {
                check_sender(addresses, *mac, false, packet)?;
                let may = match packet {
                    _ if !to.is_multicast() => !self.is_port(to),
                    Packet::Arp(_) => to.is_broadcast(),
                    Packet::Ipv6(_, Message::Solicitation(..) | Message::Advertisement(..)) => is_v6_group,
                    _ => false,
                };
                Ok(self.find(|other| may && matches!(other.role, Role::Uplink)))
            }
            Role::Uplink => Ok(self.find(|other| match (&other.role, packet) {
                (Role::InOut { mac, .. }, _) if !to.is_multicast() => *mac == to,
                (Role::InOut { addresses, .. }, Packet::Arp(Some(arp))) => {
                    to.is_broadcast() && arp.is_request && addresses.contains(&arp.target.into())
                }
                (Role::InOut { addresses, .. }, Packet::Ipv6(_, Message::Solicitation(target, _))) => {
                    is_v6_group && addresses.contains(&(*target).into())
                }
                _ => false,
            })),
        }
    }
}
