//! Admission: whether a program judges an incoming packet, and which one; if none does, what happens
//! to the packet.
//!
//! [`crate::submit`] first obtains an [`Admission`], then puts the packet into the queue of its tenant
//! ([`crate::enqueue`]) or returns it at once.
//!
//! An admission depends only on the port and the packet's addresses, and a burst consists of few
//! flows. Therefore the last admission of an IPv4 packet is kept for the rest of the burst, and most
//! packets cost one comparison.

use crate::config::{AllowedSources, PortSpec, Stages, VmRef};
use crate::counters::Counters;
use crate::flight::Owner;
use crate::lookup::Lookup;
use crate::parse::{Kind, addresses_of_v4, classify};
use crate::source_check;
use p4shield_abi::Direction;

/// Decision about an incoming packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    pub(crate) route: Route,
    /// The VM whose program judges the packet.
    pub(crate) vm: Owner,
    /// The VM whose ingress program judges the packet next: after this egress program, or, if no
    /// program judges it here, at the transmit side of the VM's port.
    pub(crate) next: Owner,
}

/// Where an incoming packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// To the program for this direction of [`Admission::vm`].
    Judge(Direction),
    /// Out, by the port's policy: it belongs to no VM.
    Unowned,
    /// Out, passed: its VM has no program for this direction, and its tenant configured such packets to pass.
    Skipped,
    /// Out, dropped: its source address is not allowed on this port.
    Spoofed,
    /// Out, dropped: several VMs have its address, and its network is unknown; or its receivers may read
    /// different addresses in it ([`Kind::Refused`]).
    Ambiguous,
}

impl Admission {
    const fn without_program(route: Route) -> Self {
        Self { route, vm: Owner::NONE, next: Owner::NONE }
    }
}

/// Admits the packets of one burst from one port.
pub(crate) struct AdmissionCache<'a> {
    port: &'a PortSpec,
    /// Source and destination address of the last IPv4 packet, and its admission.
    addresses: u64,
    last: Admission,
    /// Whether there was one.
    known: bool,
}

impl<'a> AdmissionCache<'a> {
    pub(crate) const fn new(port: &'a PortSpec) -> Self {
        Self { port, addresses: 0, last: Admission::without_program(Route::Unowned), known: false }
    }

    pub(crate) const fn port(&self) -> &'a PortSpec {
        self.port
    }

    /// Whether the last admission also applies to a packet that begins with `bytes`.
    #[inline]
    pub(crate) fn is_same(&self, bytes: &[u8]) -> bool {
        self.known && addresses_of_v4(bytes).is_some_and(|(addresses, _)| addresses == self.addresses)
    }

    /// Admits a packet of `len` bytes that begins with `bytes`.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        lookup: &Lookup,
        counters: &Counters,
        (bytes, len): (&[u8], usize),
    ) -> Admission {
        let Some((addresses, kind)) = addresses_of_v4(bytes) else {
            return admit(lookup, counters, self.port, classify(bytes, len));
        };
        if addresses != self.addresses || !self.known {
            self.last = admit(lookup, counters, self.port, kind);
            self.addresses = addresses;
            self.known = true;
        }
        self.last
    }
}

#[inline(never)]
fn admit(lookup: &Lookup, counters: &Counters, port: &PortSpec, kind: Kind) -> Admission {
    if kind == Kind::Refused {
        return Admission::without_program(Route::Ambiguous);
    }
    if !source_check::is_allowed(lookup, kind, port) {
        return Admission::without_program(Route::Spoofed);
    }
    if port.stages == Stages::Both && lookup.is_ambiguous(kind, port.network) {
        return Admission::without_program(Route::Ambiguous);
    }
    let (sender, receiver) = endpoints(lookup, counters, port, kind);
    let judged = |vm: Option<VmRef>, direction| vm.filter(|vm| !lookup.skips(*vm, direction));
    let egress = judged(sender, Direction::Egress);
    let ingress = judged(receiver, Direction::Ingress);
    let (direction, vm, next) = match (egress, ingress) {
        (sender @ Some(_), receiver) => (Direction::Egress, sender, receiver),
        (None, receiver @ Some(_)) => (Direction::Ingress, receiver, None),
        (None, None) => {
            let route = if sender.or(receiver).is_some() { Route::Skipped } else { Route::Unowned };
            let next = deferred_receiver(lookup, port, kind).into();
            return Admission { next, ..Admission::without_program(route) };
        }
    };
    Admission { route: Route::Judge(direction), vm: vm.into(), next: next.into() }
}

/// Returns the receiving VM if its ingress program judges the packet at the transmit side of its port.
fn deferred_receiver(lookup: &Lookup, port: &PortSpec, kind: Kind) -> Option<VmRef> {
    let both = port.stages == Stages::Both;
    lookup.deferred_receiver(kind, port.network).filter(|vm| both && !lookup.skips(*vm, Direction::Ingress))
}

/// Returns the sending and the receiving VM, as far as this port's stages judge their packets.
#[inline]
fn endpoints(
    lookup: &Lookup,
    counters: &Counters,
    port: &PortSpec,
    kind: Kind,
) -> (Option<VmRef>, Option<VmRef>) {
    // A port may name a VM that is not configured. What it exempts is judged at no port.
    let own = |vm: VmRef, direction| counters.of(vm).filter(|_| !kind.is_exempt(direction)).map(|_| vm);
    match port.stages {
        Stages::Both => {
            let sender = match port.source {
                AllowedSources::Only(vm) => own(vm, Direction::Egress),
                // The source check has refused the addresses of all VMs.
                AllowedSources::Foreign => None,
                AllowedSources::Any => lookup.sender(kind, port.network),
            };
            (sender, lookup.receiver_here(kind, port.network))
        }
        Stages::EgressOnly(vm) => (own(vm, Direction::Egress), None),
        Stages::IngressOnly(vm) => (None, own(vm, Direction::Ingress)),
        Stages::None => (None, None),
    }
}
