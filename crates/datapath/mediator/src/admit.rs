//! What becomes of a packet that comes in: whose programs are asked, or why nobody's.
//!
//! A decision depends on the port and on the packet's addresses alone, and bursts are made of few flows; so the last
//! decision about IPv4 addresses is kept for the rest of a burst, and most packets cost one comparison.

use crate::config::{AllowedSources, PortSpec, Stages, VmRef};
use crate::counters::Counters;
use crate::lookup::Lookup;
use crate::parse::{Kind, addresses_of_v4, classify};
use crate::queue::Owner;
use crate::rules;
use p4shield_abi::Direction;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) what: What,
    /// Whose program is asked, if one is.
    pub(crate) vm: Owner,
    /// Whose ingress comes after this egress, or, where no program is asked here, elsewhere; if one does.
    pub(crate) next: Owner,
}

/// The kinds of [`Decision`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// It is a packet of nobody.
    Nobody,
    /// Its source address must not come from its port.
    Spoofed,
    /// There is no program for it, and its tenant wants nobody asked: it passes, whatever its port does with others.
    Skipped,
    /// Several VMs have its address, and nothing tells which of them it is about.
    Ambiguous,
    /// A program for this direction is asked.
    Judge(Direction),
}

impl Decision {
    /// No program is asked.
    const fn unjudged(what: What) -> Self {
        Self { what, vm: Owner::NOBODY, next: Owner::NOBODY }
    }
}

/// Decides for the packets of one burst from one port.
pub(crate) struct Admission<'a> {
    port: &'a PortSpec,
    /// Source and destination of the last IPv4 packet, and what was decided.
    addresses: u64,
    decision: Decision,
    /// Whether there was one.
    known: bool,
}

impl<'a> Admission<'a> {
    pub(crate) const fn new(port: &'a PortSpec) -> Self {
        Self { port, addresses: 0, decision: Decision::unjudged(What::Nobody), known: false }
    }

    pub(crate) const fn port(&self) -> &'a PortSpec {
        self.port
    }

    /// Whether the last decision is also the one about a packet that begins with these bytes.
    #[inline]
    pub(crate) fn is_same(&self, bytes: &[u8]) -> bool {
        self.known && addresses_of_v4(bytes).is_some_and(|(addresses, _)| addresses == self.addresses)
    }

    /// Decides about a packet that begins with these bytes.
    #[inline]
    pub(crate) fn decide(&mut self, lookup: &Lookup, counters: &Counters, bytes: &[u8]) -> Decision {
        let Some((addresses, kind)) = addresses_of_v4(bytes) else {
            return decide(lookup, counters, self.port, classify(bytes));
        };
        if addresses != self.addresses || !self.known {
            self.decision = decide(lookup, counters, self.port, kind);
            self.addresses = addresses;
            self.known = true;
        }
        self.decision
    }
}

#[inline(never)]
fn decide(lookup: &Lookup, counters: &Counters, port: &PortSpec, kind: Kind) -> Decision {
    if port.source != AllowedSources::Any && !rules::source_allowed(lookup, kind, port) {
        return Decision::unjudged(What::Spoofed);
    }
    if port.stages == Stages::Both && lookup.is_ambiguous(kind, port.network) {
        return Decision::unjudged(What::Ambiguous);
    }
    let (sender, receiver) = parties(lookup, counters, port, kind);
    let asked = |vm: Option<VmRef>, direction| vm.filter(|vm| !lookup.skips(*vm, direction));
    let (direction, vm, next) = match (asked(sender, Direction::Egress), asked(receiver, Direction::Ingress))
    {
        (sender @ Some(_), receiver) => (Direction::Egress, sender, receiver),
        (None, receiver @ Some(_)) => (Direction::Ingress, receiver, None),
        (None, None) => {
            let what = if sender.or(receiver).is_some() { What::Skipped } else { What::Nobody };
            return Decision { next: elsewhere(lookup, port, kind).into(), ..Decision::unjudged(what) };
        }
    };
    Decision { what: What::Judge(direction), vm: vm.into(), next: next.into() }
}

/// The VM that a packet is for if its ingress is asked, and not here.
fn elsewhere(lookup: &Lookup, port: &PortSpec, kind: Kind) -> Option<VmRef> {
    let here = port.stages == Stages::Both;
    lookup.asked_elsewhere(kind, port.network).filter(|vm| here && !lookup.skips(*vm, Direction::Ingress))
}

/// Sender and receiver as far as they are to be asked here, if at all.
#[inline]
fn parties(
    lookup: &Lookup,
    counters: &Counters,
    port: &PortSpec,
    kind: Kind,
) -> (Option<VmRef>, Option<VmRef>) {
    if kind == Kind::Other {
        return (None, None);
    }
    // A port may name a VM that is not configured.
    let known = |vm: VmRef| counters.of(vm).map(|_| vm);
    match port.stages {
        Stages::Both => {
            let sender = match port.source {
                AllowedSources::Only(vm) => known(vm),
                // No VM's address got this far.
                AllowedSources::Foreign => None,
                AllowedSources::Any => lookup.sender(kind, port.network),
            };
            (sender, lookup.asked(kind, port.network))
        }
        Stages::EgressOnly(vm) => (known(vm), None),
        Stages::IngressOnly(vm) => (None, known(vm)),
        Stages::None => (None, None),
    }
}
