//! Rewrite check: what a program may turn its packet into.
//!
//! A tenant's program is hostile to the other tenants, so a rewritten packet that continues through a
//! switch is checked. An egress program must not take another tenant's address as source address. An
//! ingress program, which runs before the switch forwards, must keep the packet's destination within
//! its own tenant.

use crate::config::{PortSpec, Stages, UnownedPolicy};
use crate::flight::Flight;
use crate::lookup::Lookup;
use crate::packet::{Packet, Reason};
use crate::parse::{Kind, classify, link_header_len};
use crate::ports::Ports;
use crate::source_check;
use p4shield_abi::Direction;
use p4shield_channel::HeaderRewrite;

/// The shortest packet that a rewrite may leave: an Ethernet header.
const MIN_FRAME: usize = 14;
/// The longest link header: MAC addresses, two VLAN tags, EtherType.
const MAX_LINK: usize = 22;

/// Applies a rewrite to its packet and checks the result.
///
/// # Errors
/// If the packet has to be dropped, for this reason.
pub(crate) fn apply<P: Packet>(
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
        Direction::Egress => check_egress(lookup, port, flight, kind),
        Direction::Ingress if port.stages == Stages::Both => {
            let receiver = lookup.receiver(kind, port.network);
            let same_tenant = receiver.is_some_and(|vm| usize::from(vm.tenant) == flight.vm.tenant());
            let same_link = LinkHeader::of(packet.bytes()) == before;
            if same_tenant && same_link { Ok(()) } else { Err(Reason::Strayed) }
        }
        // On a wire only the VM itself receives the packet.
        Direction::Ingress => Ok(()),
    }
}

/// Checks the source address, and finds the receiver anew: the program may have chosen another one.
fn check_egress(lookup: &Lookup, port: &PortSpec, flight: &mut Flight, kind: Kind) -> Result<(), Reason> {
    let sender = lookup.sender(kind, port.network);
    let other_tenant = sender.is_some_and(|vm| usize::from(vm.tenant) != flight.vm.tenant());
    if other_tenant || !source_check::is_allowed(lookup, kind, port) {
        return Err(Reason::Spoofed);
    }
    if kind == Kind::Other && port.unowned == UnownedPolicy::Drop {
        return Err(Reason::Strayed);
    }
    if port.stages == Stages::Both {
        if lookup.is_ambiguous(kind, port.network) {
            return Err(Reason::Strayed);
        }
        let receiver = lookup.receiver_here(kind, port.network);
        flight.next = receiver.filter(|vm| !lookup.skips(*vm, Direction::Ingress)).into();
    }
    Ok(())
}

/// The fields by which a switch forwards: destination, VLAN tags and EtherType. The source MAC
/// address is zeroed.
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
