//! The flight: the record of a held packet.

use crate::config::VmRef;
use crate::packet::Reason;

/// State of a held packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FlightState {
    /// Its verdict is pending.
    Waiting,
    /// The program passed it.
    Passed,
    /// The tenant's policy lets it through without a verdict, for [`Flight::reason`].
    LetThrough,
    /// It is dropped, for [`Flight::reason`].
    Dropped,
}

/// Record of a held packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    /// When the attachment received the packet, in nanoseconds of its clock.
    pub(crate) received: u64,
    /// When the tenant's policy applies; see [`crate::deadline`].
    pub(crate) deadline: u64,
    /// Index of the input port in [`crate::ports::Ports`].
    pub(crate) port: u32,
    /// The VM whose program judges the packet here.
    pub(crate) vm: Owner,
    /// The VM whose ingress program judges the packet after this egress program.
    pub(crate) next: Owner,
    pub(crate) state: FlightState,
    /// Reason why the packet is dropped or let through.
    pub(crate) reason: Reason,
}

/// A state and the reason for it.
pub(crate) type FlightDecision = (FlightState, Reason);

impl Flight {
    /// Content of an unused queue slot.
    pub(crate) const EMPTY: Self = Self {
        received: 0,
        deadline: 0,
        port: 0,
        vm: Owner::NONE,
        next: Owner::NONE,
        state: FlightState::Dropped,
        reason: Reason::Unowned,
    };

    /// A flight whose verdict is pending. Its deadline is set when it enters a queue.
    #[inline]
    pub(crate) const fn new(received: u64, port: u32, vm: Owner, next: Owner) -> Self {
        Self { received, deadline: 0, port, vm, next, state: FlightState::Waiting, reason: Reason::Program }
    }

    /// Decides it.
    pub(crate) fn decide(&mut self, (state, reason): FlightDecision) {
        (self.state, self.reason) = (state, reason);
    }
}

/// `Option<VmRef>` packed into one `u32`, so that it stays in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u32);

impl Owner {
    /// No VM: [`crate::Config`] allows fewer tenants than this number has.
    pub(crate) const NONE: Self = Self(u32::MAX);

    #[inline]
    pub(crate) fn vm(self) -> VmRef {
        VmRef { tenant: (self.0 >> 16) as u16, vm: self.0 as u16 }
    }

    #[inline]
    pub(crate) fn tenant(self) -> usize {
        (self.0 >> 16) as usize
    }
}

impl From<Option<VmRef>> for Owner {
    #[inline]
    fn from(vm: Option<VmRef>) -> Self {
        vm.map_or(Self::NONE, |vm| Self(u32::from(vm.tenant) << 16 | u32::from(vm.vm)))
    }
}
