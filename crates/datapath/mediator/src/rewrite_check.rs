//! Rewrite check: what a program may turn its packet into.
//!
//! A tenant's program is hostile to the other tenants, so a rewritten packet that continues through a
//! switch is checked. An egress program must not take another tenant's address as source address. An
//! ingress program, which runs before the switch forwards, must keep the packet's receiver, since another
//! VM's program would not judge the packet. It must also keep the whole link header: a switch forwards by the
//! destination, and learns from the source at which port a machine is.

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
/// Bytes of a rewritten packet that must be contiguous, if it has as many: all that is read of headers here,
/// and by an attachment's own check.
const MIN_FRONT: usize = 128;
/// The longest link header: MAC addresses, two VLAN tags, EtherType.
const MAX_LINK: usize = 22;

/// An attachment's own check of a packet that an egress program has rewritten, which came in at this port and
/// now begins with these bytes: all of it, or at least 128. False drops the packet.
pub type RewriteCheck = Box<Check>;

type Check = dyn Fn(&PortSpec, &[u8]) -> bool + Send;

/// What a rewritten packet is checked against.
#[derive(Clone, Copy)]
pub(crate) struct Switch<'a> {
    pub(crate) lookup: &'a Lookup,
    pub(crate) ports: &'a Ports,
    /// The attachment's own check.
    pub(crate) check: Option<&'a Check>,
}

/// Applies a rewrite to its packet and checks the result.
///
/// # Errors
/// If the packet has to be dropped, for this reason.
pub(crate) fn apply<P: Packet>(
    Switch { lookup, ports, check }: Switch<'_>,
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
    if packet.bytes().len() < packet.len().min(MIN_FRONT) {
        // The headers that are checked below may be in the packet's next segment.
        return Err(Reason::Rewrite);
    }
    let kind = classify(packet.bytes(), packet.len());
    match direction {
        Direction::Egress => {
            check_egress(lookup, port, flight, kind)?;
            let allowed = check.is_none_or(|allows| allows(port, packet.bytes()));
            if allowed { Ok(()) } else { Err(Reason::Strayed) }
        }
        Direction::Ingress if port.stages == Stages::Both => {
            let same_vm = lookup.receiver(kind, port.network) == Some(flight.vm.vm());
            let same_link = LinkHeader::of(packet.bytes()) == before;
            if same_vm && same_link { Ok(()) } else { Err(Reason::Strayed) }
        }
        // On a wire only the VM itself receives the packet.
        Direction::Ingress => Ok(()),
    }
}

/// Checks the source address, and finds the receiver anew: the program may have chosen another one.
fn check_egress(lookup: &Lookup, port: &PortSpec, flight: &mut Flight, kind: Kind) -> Result<(), Reason> {
    let sender = lookup.sender(kind, port.network);
    let other_tenant = sender.is_some_and(|vm| usize::from(vm.tenant) != flight.vm.tenant());
    // What nothing else judges or checks announces the VM's own addresses only, whatever its port is.
    let is_announcement = matches!(kind, Kind::Arp(_) | Kind::Discovery(_));
    let is_false = is_announcement && !source_check::is_vms(lookup, kind, (flight.vm.vm(), port.network));
    if other_tenant || is_false || !source_check::is_allowed(lookup, kind, port) {
        return Err(Reason::Spoofed);
    }
    let drops_exempt = port.unowned == UnownedPolicy::Drop && kind.is_exempt(Direction::Egress);
    if kind == Kind::Refused || drops_exempt {
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

/// The link header: addresses, VLAN tags and EtherType.
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
        Self { bytes, len }
    }
}
