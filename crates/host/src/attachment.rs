//! What the daemon needs of an attachment, whichever it is.

use p4shield_mediator::{Counters, Fault, Link};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The switch side: a mediator and what feeds it. All methods may be called from any thread; none is called for a
/// packet.
pub trait Attachment: Send + Sync {
    /// Gives a tenant a channel to its P4 VM, another one, or none.
    ///
    /// # Errors
    /// The attachment has ended.
    fn replace_channel(&self, tenant: usize, link: Option<Link>) -> Result<(), String>;

    /// Why a tenant's channel was taken away, if it was and has not been replaced.
    fn fault(&self, tenant: usize) -> Option<Fault>;

    /// What happened to packets.
    fn counters(&self) -> Arc<Counters>;

    /// How its wires are.
    fn wires(&self) -> Vec<WireStatus>;
}

/// How a wire is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireStatus {
    /// Its name: its VM's interface.
    pub name: String,
    /// The VM's side.
    pub vm: SideStatus,
    /// The switch's side.
    pub switch: SideStatus,
}

/// How one side of a wire is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideStatus {
    /// Its interface.
    pub interface: String,
    /// Whether packets are received and sent there.
    pub up: bool,
    /// What is wrong or to be known.
    pub remark: Option<String>,
    /// Frames received.
    pub rx_packets: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Frames dropped because there was no room or no interface to send them.
    pub tx_dropped: u64,
}
