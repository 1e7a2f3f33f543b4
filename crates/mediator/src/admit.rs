//! What becomes of a packet that comes in: whose programs are asked, or why nobody's.
//!
//! A decision depends on the port and on the packet's addresses alone, and bursts are made of few flows; so the last
//! decision about IPv4 addresses is kept for the rest of a burst, and most packets cost one comparison.

use crate::config::{PortSpec, Source, Stages, VmRef};
use crate::counters::Counters;
use crate::lookup::Lookup;
use crate::parse::{Kind, addresses_of_v4, classify};
use crate::rules;
use p4shield_abi::Direction;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It is a packet of nobody.
    Nobody,
    /// Its source address must not come from its port.
    Spoofed,
    /// A program is asked.
    Judge {
        /// Whose.
        vm: VmRef,
        /// For which direction.
        direction: Direction,
        /// Whose ingress comes after this egress.
        next: Option<VmRef>,
    },
}

/// Decides for the packets of one burst from one port.
pub(crate) struct Admission<'a> {
    port: &'a PortSpec,
    last: Option<(u64, Decision)>,
}

impl<'a> Admission<'a> {
    pub(crate) const fn new(port: &'a PortSpec) -> Self {
        Self { port, last: None }
    }

    /// Decides about a packet that begins with these bytes.
    #[inline]
    pub(crate) fn decide(&mut self, lookup: &Lookup, counters: &Counters, bytes: &[u8]) -> Decision {
        let Some((addresses, kind)) = addresses_of_v4(bytes) else {
            return decide(lookup, counters, self.port, classify(bytes));
        };
        match self.last {
            Some((last, decision)) if last == addresses => decision,
            _ => {
                let decision = decide(lookup, counters, self.port, kind);
                self.last = Some((addresses, decision));
                decision
            }
        }
    }
}

#[inline]
fn decide(lookup: &Lookup, counters: &Counters, port: &PortSpec, kind: Kind) -> Decision {
    if port.source != Source::Any && !rules::source_allowed(lookup, kind, port.source) {
        return Decision::Spoofed;
    }
    match parties(lookup, counters, port, kind) {
        (Some(vm), next) => Decision::Judge { vm, direction: Direction::Egress, next },
        (None, Some(vm)) => Decision::Judge { vm, direction: Direction::Ingress, next: None },
        (None, None) => Decision::Nobody,
    }
}

/// Sender and receiver as far as their programs are to be asked.
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
                Source::Only(vm) => known(vm),
                // No VM's address got this far.
                Source::Foreign => None,
                Source::Any => lookup.sender(kind),
            };
            (sender, lookup.receiver(kind))
        }
        Stages::EgressOnly(vm) => (known(vm), None),
        Stages::IngressOnly(vm) => (None, known(vm)),
    }
}
