//! Packets inside tunnels that the switch ends: which packets the mediator judges by what is inside.
//!
//! On a host of OVN or OpenStack what reaches a VM from another host arrives encapsulated: an
//! Ethernet frame in VXLAN or Geneve, in UDP, addressed to the host. The switch decapsulates it
//! after it has received it, so the receive side of a port inspects the inside
//! ([`Tunnels::inspect`]). The headers around are those of [`p4shield_frame::tunnel`];
//! [`crate::mbuf`] hides them from the mediator and updates them after a rewrite.
//!
//! # End points
//!
//! A tunnel ends at one address, at every address of the host ([`local`]), or, if it is not known which
//! addresses the switch takes for its own, at every address that no VM has.
//!
//! # Promises
//!
//! * **What the switch would decapsulate does not get past as something else.** A packet for an end
//!   point whose inside is uncertain (another version, another payload than Ethernet, IPv6
//!   extension headers before UDP, another packet for an endpoint) is [`Inside::Unknown`], to be dropped. So
//!   is a first fragment: without it the packet cannot be put together. Later fragments, which do not say
//!   what they belong to, are left alone. The mediator drops IP that is not where it seems to be (in LLC and
//!   SNAP, or of another version than its EtherType's), which a switch might decapsulate.
//! * **No program sends a packet to an endpoint** ([`Tunnels::allows`]).
//! * **Any bytes are valid input**: every length is checked, the work is bounded by [`MAX_OUTER`] and
//!   [`p4shield_frame::ipv6::MAX_EXTENSIONS`].

mod local;
mod shared;
mod sources;

pub(crate) use p4shield_frame::tunnel::MAX_OUTER;
pub(crate) use shared::{Seen, SharedTunnels};
pub(crate) use sources::follow;

use p4shield_config::{Tunnel, TunnelKind};
use p4shield_frame::tunnel::{Datagram, Encapsulation};
use p4shield_mediator::{self as mediator, Network};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What is inside a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inside {
    /// It is not for an endpoint.
    Nothing,
    /// An Ethernet frame, which begins so many bytes behind the packet's beginning; at most [`MAX_OUTER`].
    Frame(usize),
    /// It is for an endpoint, and what the switch will find inside is uncertain.
    Unknown,
}

/// Whose side of the switch a packet came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A port behind which there is one VM.
    Vm,
    /// Any other port.
    Shared,
}

/// The endpoints of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tunnels {
    end_points: Box<[Tunnel]>,
    /// The host's addresses, in order; none if they are not known.
    local: Option<Box<[IpAddr]>>,
    /// The VMs' addresses, in order.
    vms: Box<[IpAddr]>,
    /// The networks that VMs are configured to be in, in order.
    networks: Box<[u32]>,
}

impl Tunnels {
    /// Creates the endpoints of a host with these addresses, in order, and with the VMs of these tenants.
    pub(crate) fn new(
        end_points: &[Tunnel],
        local: Option<Box<[IpAddr]>>,
        tenants: &mediator::Config,
    ) -> Self {
        let vms = || tenants.tenants.iter().flat_map(|t| &t.vms);
        Self {
            end_points: BTreeSet::from_iter(end_points.iter().copied()).into_iter().collect(),
            local,
            vms: BTreeSet::from_iter(vms().flat_map(|vm| vm.addresses.iter().copied())).into_iter().collect(),
            networks: BTreeSet::from_iter(vms().filter_map(|vm| vm.network)).into_iter().collect(),
        }
    }

    /// Reports whether there is no endpoint.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.end_points.is_empty()
    }

    /// Reports whether networks distinguish VMs: any VM is configured to be in one.
    #[inline]
    pub(crate) fn distinguish_networks(&self) -> bool {
        !self.networks.is_empty()
    }

    /// Returns the network of what is inside a packet with these headers, of which
    /// [`Self::inspect`] found the end. All networks without a VM are one.
    pub(crate) fn network(&self, outer: &[u8]) -> Network {
        let number = Datagram::find(outer).and_then(|datagram| datagram.vni(outer));
        let known = number.filter(|number| self.networks.binary_search(number).is_ok());
        known.map_or(Network::Foreign, Network::Number)
    }

    /// Inspects a packet that begins with `frame`. A packet to a VM is the VM's, whatever is
    /// inside: only a packet to an endpoint of a known address, or to no VM, is inspected. What a
    /// VM sends to an endpoint itself would be decapsulated as if it came from another host, with
    /// addresses inside that no lane has checked: that is [`Inside::Unknown`]. So is what is again for
    /// an endpoint inside, which the switch would decapsulate twice.
    pub(crate) fn inspect(&self, frame: &[u8], from: Origin) -> Inside {
        let Some(datagram) = Datagram::find(frame) else { return Inside::Nothing };
        let Some(encapsulation) = self.end_point(&datagram, from) else { return Inside::Nothing };
        if datagram.is_ambiguous || from == Origin::Vm {
            return Inside::Unknown;
        }
        let inner = datagram.inner(frame, encapsulation);
        inner.filter(|inner| self.allows(&frame[*inner..], Origin::Vm)).map_or(Inside::Unknown, Inside::Frame)
    }

    /// Reports whether the switch may forward a packet that begins with `frame` without another look: it is
    /// not for an endpoint. For packets that a program has rewritten, and for those inside others.
    pub(crate) fn allows(&self, frame: &[u8], from: Origin) -> bool {
        self.is_empty()
            || Datagram::find(frame).is_none_or(|datagram| self.end_point(&datagram, from).is_none())
    }

    fn end_point(&self, datagram: &Datagram, from: Origin) -> Option<Encapsulation> {
        let destination = datagram.destination;
        let at_port = || self.end_points.iter().filter(|t| datagram.port.is_none_or(|port| port == t.port));
        let exact = at_port().find(|t| t.address == Some(destination));
        let anywhere = || {
            let to_vm = self.vms.binary_search(&destination).is_ok();
            let is_local = self.local.as_ref().map(|local| local.binary_search(&destination).is_ok());
            at_port().find(|tunnel| match (tunnel.address, is_local) {
                (_, Some(true)) => tunnel.address.is_none_or(|address| address.is_unspecified()),
                (Some(address), None) => address.is_unspecified() && !to_vm,
                (None, None) => !to_vm,
                // The switch may take other addresses than the host's for its own. A VM may have tunnels too.
                (None, Some(false)) => from == Origin::Shared && !to_vm,
                (Some(_), Some(false)) => false,
            })
        };
        exact.or_else(anywhere).map(|t| match t.kind {
            TunnelKind::Vxlan => Encapsulation::Vxlan,
            TunnelKind::Geneve => Encapsulation::Geneve,
        })
    }
}

#[cfg(test)]
mod tests;
