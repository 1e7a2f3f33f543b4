//! Which packets a port may send, and what a program may turn a packet into.
//!
//! A tenant's program is hostile to the other tenants. A rewrite is therefore checked where the packet goes on
//! through a switch: an egress program cannot take another tenant's address for its source, and an ingress program,
//! which runs before the switch forwards, cannot send the packet anywhere but to its own tenant.

use crate::config::{AllowedSources, PortSpec, Stages, UnownedPolicy};
use crate::lookup::Lookup;
use crate::packet::{Packet, Reason};
use crate::parse::{Kind, classify, link_header_len};
use crate::ports::Ports;
use crate::queue::{Fate, Flight, State};
use p4shield_abi::{Direction, Verdict};
use p4shield_channel::{CheckedAnswer, HeaderRewrite};

/// The shortest packet that a rewrite may leave: an Ethernet header.
const MIN_FRAME: usize = 14;
/// The longest link header: addresses, two VLAN tags, EtherType.
const MAX_LINK: usize = 22;

/// Whether a packet of this kind may come from a port.
#[inline]
pub(crate) fn source_allowed(lookup: &Lookup, kind: Kind, port: &PortSpec) -> bool {
    if kind == Kind::Other {
        return true;
    }
    match port.source {
        AllowedSources::Any => true,
        AllowedSources::Only(vm) => match lookup.sender(kind, port.network) {
            Some(sender) => sender == vm,
            None => is_nobodys(kind),
        },
        AllowedSources::Foreign => lookup.sender(kind, port.network).is_none(),
    }
}

/// Source addresses that any machine may use: none at all, or an IPv6 link-local one (that is no VM's).
fn is_nobodys(kind: Kind) -> bool {
    match kind {
        Kind::V4 { source, .. } => source == 0,
        Kind::V6 { source, .. } => source == 0 || source >> 118 == 0xfe80 >> 6,
        Kind::Other => true,
    }
}

/// Applies an answer to the packet it is about and says what becomes of it.
#[inline]
pub(crate) fn apply<P: Packet>(
    switch: (&Lookup, &Ports),
    flight: &mut Flight,
    packet: &mut P,
    direction: Direction,
    answered: &CheckedAnswer<'_>,
) -> Fate {
    match (answered.verdict, &answered.rewrite) {
        (Verdict::Drop, _) => (State::Dropped, Reason::Program),
        (Verdict::Pass, None) => (State::Passed, Reason::Program),
        (Verdict::Pass, Some(rewrite)) => match apply_rewrite(switch, flight, packet, direction, rewrite) {
            Ok(()) => (State::Passed, Reason::Program),
            Err(reason) => (State::Dropped, reason),
        },
    }
}

fn apply_rewrite<P: Packet>(
    (lookup, ports): (&Lookup, &Ports),
    flight: &mut Flight,
    packet: &mut P,
    direction: Direction,
    rewrite: &HeaderRewrite<'_>,
) -> Result<(), Reason> {
    let port = ports.get(flight.port);
    let total = rewrite.packet_len as usize;
    if total < MIN_FRAME {
        return Err(Reason::Rewrite);
    }
    let before = LinkHeader::of(packet.bytes());
    packet.replace_head(rewrite.replaced, rewrite.header, total).map_err(|_| Reason::Rewrite)?;
    let kind = classify(packet.bytes());
    match direction {
        Direction::Egress => egress_rewritten(lookup, port, flight, kind),
        Direction::Ingress if port.stages == Stages::Both => {
            let receiver = lookup.receiver(kind, port.network);
            let stays = receiver.is_some_and(|vm| usize::from(vm.tenant) == flight.vm.tenant());
            let same_link = LinkHeader::of(packet.bytes()) == before;
            if stays && same_link { Ok(()) } else { Err(Reason::Strayed) }
        }
        // On a wire there is nothing behind us but the VM itself.
        Direction::Ingress => Ok(()),
    }
}

/// The sender has to stay itself; the receiver may have become another.
fn egress_rewritten(lookup: &Lookup, port: &PortSpec, flight: &mut Flight, kind: Kind) -> Result<(), Reason> {
    let sender = lookup.sender(kind, port.network);
    let other_tenant = sender.is_some_and(|vm| usize::from(vm.tenant) != flight.vm.tenant());
    if other_tenant || !source_allowed(lookup, kind, port) {
        return Err(Reason::Spoofed);
    }
    if kind == Kind::Other && port.unowned == UnownedPolicy::Drop {
        return Err(Reason::Strayed);
    }
    if port.stages == Stages::Both {
        if lookup.is_ambiguous(kind, port.network) {
            return Err(Reason::Strayed);
        }
        let receiver = lookup.asked(kind, port.network);
        flight.next = receiver.filter(|vm| !lookup.skips(*vm, Direction::Ingress)).into();
    }
    Ok(())
}

/// What a switch forwards by: destination, VLAN tags and EtherType; the source address is left out.
#[derive(PartialEq, Eq)]
struct LinkHeader {
    bytes: [u8; MAX_LINK],
    len: usize,
}

impl LinkHeader {
    fn of(frame: &[u8]) -> Self {
        let len = link_header_len(frame).min(MAX_LINK);
        let mut bytes = [0; MAX_LINK];
        bytes[..len].copy_from_slice(&frame[..len]);
        bytes[6.min(len)..12.min(len)].fill(0);
        Self { bytes, len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Network, TenantConfig, VmConfig, VmRef};
    use std::net::Ipv4Addr;

    fn lookup() -> Lookup {
        let vm = |last| VmConfig::new("v", vec![Ipv4Addr::new(10, 0, 0, last).into()]);
        let tenant = |name, vms| TenantConfig::new(name, vms);
        let config = Config { tenants: vec![tenant("a", vec![vm(1), vm(2)]), tenant("b", vec![vm(3)])] };
        Lookup::new(&config).expect("no address twice")
    }

    const fn from(last: u32) -> Kind {
        Kind::V4 { source: 0x0a00_0000 | last, destination: 0 }
    }

    const fn port(source: AllowedSources) -> PortSpec {
        let network = Network::Unknown;
        PortSpec { number: 1, stages: Stages::Both, unowned: UnownedPolicy::Pass, source, network }
    }

    #[test]
    fn a_bound_port_sends_its_vms_addresses_and_nobodys() {
        let (lookup, rule) = (lookup(), &port(AllowedSources::Only(VmRef { tenant: 0, vm: 0 })));
        assert!(source_allowed(&lookup, from(1), rule));
        assert!(!source_allowed(&lookup, from(2), rule), "another VM of the same tenant");
        assert!(!source_allowed(&lookup, from(3), rule), "another tenant's VM");
        assert!(!source_allowed(&lookup, from(9), rule), "an address of nobody here");
        assert!(source_allowed(&lookup, Kind::V4 { source: 0, destination: u32::MAX }, rule), "DHCP");
        let local = |source| Kind::V6 { source, destination: 1 };
        assert!(source_allowed(&lookup, local(0xfe80 << 112 | 7), rule), "link-local");
        assert!(!source_allowed(&lookup, local(0xfec0 << 112 | 7), rule), "not link-local");
        assert!(source_allowed(&lookup, Kind::Other, rule), "ARP has no IP source");
    }

    #[test]
    fn an_uplink_sends_no_vms_address() {
        let lookup = lookup();
        assert!(source_allowed(&lookup, from(9), &port(AllowedSources::Foreign)));
        assert!(!source_allowed(&lookup, from(3), &port(AllowedSources::Foreign)));
        assert!(source_allowed(&lookup, from(3), &port(AllowedSources::Any)));
    }
}
