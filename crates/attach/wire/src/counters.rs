//! What is counted and told. The packets' own fate is in the mediator's counters; here is what happens around it.

use p4shield_afxdp::{Census, Statistics};

use crate::system::xdp::XdpCounters;

/// What happened on one side of a wire since it was added, over all its queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideCounters {
    /// Frames received.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames handed to the kernel to be sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Received frames whose checksum was completed.
    pub checksums_completed: u64,
    /// Frames for this side that were dropped because its transmit ring and backlog were full.
    pub dropped_full: u64,
    /// Frames for this side that were dropped because it has no interface.
    pub dropped_no_interface: u64,
}

/// What the kernel counted on one side since its interface was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// By the XDP program.
    pub xdp: XdpCounters,
    /// By the sockets.
    pub sockets: Statistics,
}

/// Everything about a loop at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Every wire.
    pub wires: Vec<WireCounters>,
    /// Who has the frames.
    pub frames: Census,
    /// Frames that the kernel gave back although it did not have them.
    pub refused: u64,
    /// Times that the loop looked for work.
    pub looks: u64,
    /// Times that it slept.
    pub sleeps: u64,
}

/// The counters of a wire.
#[derive(Clone, Debug)]
pub struct WireCounters {
    /// Its number.
    pub id: crate::WireId,
    /// Its name.
    pub name: String,
    /// By [`crate::Side`].
    pub sides: [SideCounters; 2],
}

/// How a wire is.
#[derive(Clone, Debug)]
pub struct WireStatus {
    /// Its number.
    pub id: crate::WireId,
    /// Its name.
    pub name: String,
    /// By [`crate::Side`].
    pub sides: [SideStatus; 2],
}

impl WireStatus {
    /// Whether both interfaces are attached.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.sides.iter().all(|s| s.attached.is_some())
    }
}

/// How one side of a wire is.
#[derive(Clone, Debug)]
pub struct SideStatus {
    /// Name of its interface.
    pub interface: String,
    /// How it is attached.
    pub attached: Option<AttachedStatus>,
    /// What is wrong or to be known, in a sentence.
    pub remark: Option<String>,
}

/// How an interface is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachedStatus {
    /// Its index.
    pub index: u32,
    /// Queues.
    pub queues: u32,
    /// Whether the XDP program runs in the driver.
    pub native: bool,
    /// Whether VLAN tags beside the frame are put back into it.
    pub sees_tags: bool,
    /// What the kernel counted.
    pub kernel: KernelCounters,
}
