//! The NIC switch: every frame between tenants' VMs, switch compartments and the outside passes it, and it
//! lets through only what the policy of a port's role allows.
//!
//! | from | may send | to |
//! |---|---|---|
//! | VM | from its MAC and IP addresses, ARP and neighbour discovery about these | its VLAN's gateway |
//! | gateway | from its MAC address | the VMs of its VLAN |
//! | compartment's side to the outside | as a VM | the uplink |
//! | uplink | from a MAC address that no port has | the compartment that is addressed or asked for |
//!
//! Only IPv4, IPv6 and ARP pass, and no frame with a VLAN tag: a port's VLAN is a key of the policy and is on
//! no wire. Without an uplink nothing goes outside.
//!
//! [`NicSwitch`] is what a back end does:
//!
//! | back end | the switch is | enforces |
//! |---|---|---|
//! | [`Software`] | a program on each port's interface, in XDP or traffic control | all of the policy |
//! | [`Bridge`] | the kernel's bridge, with rules of nftables at its ports | all of the policy, see there |
//! | [`Sriov`] | a network card's, between its virtual functions | VLANs and source MAC addresses, see there |
//!
//! [`Software`] needs from its caller, with [`Hook::Xdp`]:
//!
//! - Each port's other end takes redirected frames: the peer of a veth needs NAPI, by `ethtool -K X gro on`
//!   before it moves to another namespace, or by an XDP program of its own.
//! - Its driver has XDP, as those of veths and taps do. An interface without is connected by a bridge and a
//!   veth pair.
//! - A sender behind a veth completes its checksums (`ethtool -K X tx off`): the kernel's remark that a
//!   checksum is undone does not survive a redirect.
//!
//! With [`Hook::TrafficControl`], VMs and the outside may leave checksums and segmentation to the switch. The
//! caller has their interfaces receive packets as they were sent, not merged (GRO, LRO).
//!
//! A switch on the host has no mediation; [`HostGuard`] keeps the host's own stack off its ports.
//!
//! `p4shield-topology` plans the ports.

#![forbid(unsafe_code)]

mod bridge;
mod check;
mod counters;
mod error;
mod guard;
mod nft;
mod policy;
mod software;
mod sriov;

pub use bridge::Bridge;
pub use counters::{PortCounters, Reason};
pub use error::NicError;
pub use guard::HostGuard;
pub use software::{Hook, Software};
pub use sriov::{Function, Sriov};

use p4shield_topology::Port;

/// A switch that mediates all frames between its ports.
pub trait NicSwitch {
    /// Makes these the ports, and their policy the one in force, at once for all ports. Frames of ports whose
    /// policy stays are not lost. A crash at any time leaves the old or the new policy, and the next call
    /// completes the change.
    ///
    /// # Errors
    /// [`NicError::Ports`] if the ports contradict each other: nothing changed. If a port cannot be served,
    /// the others are, nothing passes from or to it, and the error is the first such port's.
    fn apply(&mut self, ports: &[Port]) -> Result<Changes, NicError>;

    /// Returns the counters of each port with an interface, by interface name, since the port was made. A
    /// network card counts no uplink.
    ///
    /// # Errors
    /// The kernel's error.
    fn counters(&self) -> Result<Vec<PortCounters>, NicError>;

    /// Removes the switch. Its interfaces are then the host's again: their other ends should be gone before.
    ///
    /// # Errors
    /// The kernel's error.
    fn delete(&mut self) -> Result<(), NicError>;
}

/// The result of [`NicSwitch::apply`]. Interfaces are sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Interfaces that the switch serves from now on.
    pub added: Vec<String>,
    /// Interfaces that it served before, whose policy is another one now.
    pub changed: Vec<String>,
    /// Interfaces that it serves no more.
    pub removed: Vec<String>,
    /// True if the policy in force was replaced, which may concern ports without an interface only.
    pub policy: bool,
    /// Ports without an interface, which is no change: frames to them are dropped. They are served after an
    /// `apply` that finds their interfaces.
    pub absent: Vec<String>,
}

impl Changes {
    /// Returns true if nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty() && !self.policy
    }
}
