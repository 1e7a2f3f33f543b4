//! The mediator's connection to a P4 VM, and the faults that end it.

use p4shield_channel::{ChannelFault, Doorbell, Requester};

/// The mediator's end of a channel, with the doorbell by which each side wakes the other.
#[derive(Debug)]
pub struct P4VmChannel {
    /// The mediator's end of the rings.
    pub requester: Requester,
    /// The mediator's end of the doorbell.
    pub doorbell: Doorbell,
}

/// Reason why the mediator detached a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum P4VmFault {
    /// The P4 VM broke the protocol.
    #[error("the P4 VM broke the channel's protocol")]
    Protocol(#[source] ChannelFault),
    /// The P4 VM owed answers and gave none for as long as the tenant's configuration allows.
    #[error("the P4 VM stopped answering")]
    Stalled,
    /// The P4 VM closed its end of the doorbell.
    #[error("the P4 VM is gone")]
    Gone,
}

impl P4VmFault {
    /// Returns its name in metrics and messages.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Protocol(fault) => fault.name(),
            Self::Stalled => "stalled",
            Self::Gone => "gone",
        }
    }
}
