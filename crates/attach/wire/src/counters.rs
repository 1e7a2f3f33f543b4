//! Counters and status of loops and wires. The mediator counts the packets' verdicts.

use p4shield_afxdp::{FrameCounts, Statistics};

use p4shield_xdp::XdpCounters;

/// Counters of one side of a wire, over all its queues, since the wire was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideCounters {
    /// Frames received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames handed to the kernel for sending.
    pub tx_packets: u64,
    /// Bytes handed to the kernel.
    pub tx_bytes: u64,
    /// Received frames whose checksum was completed.
    pub checksums_completed: u64,
    /// Frames for this side dropped because its transmit ring and backlog were full.
    pub dropped_full: u64,
    /// Frames for this side dropped because it has no interface.
    pub dropped_no_interface: u64,
}

/// Kernel counters of one side since its interface was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// Counters of the XDP program.
    pub xdp: XdpCounters,
    /// Counters of the sockets.
    pub sockets: Statistics,
}

/// Counters of a loop at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The wires.
    pub wires: Vec<WireCounters>,
    /// The number of frames of each owner.
    pub frames: FrameCounts,
    /// Frames that the kernel returned although it did not own them.
    pub refused: u64,
    /// Rounds of the loop.
    pub rounds: u64,
    /// Sleeps of the loop.
    pub sleeps: u64,
}

/// The counters of a wire.
#[derive(Clone, Debug)]
pub struct WireCounters {
    /// Its number.
    pub id: crate::WireId,
    /// Its name.
    pub name: String,
    /// By [`crate::WireSide`].
    pub sides: [SideCounters; 2],
}

/// The status of a wire.
#[derive(Clone, Debug)]
pub struct WireStatus {
    /// Its number.
    pub id: crate::WireId,
    /// Its name.
    pub name: String,
    /// By [`crate::WireSide`].
    pub sides: [SideStatus; 2],
}

impl WireStatus {
    /// Returns whether both interfaces are attached.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.sides.iter().all(|s| s.attached.is_some())
    }
}

/// The status of one side of a wire.
#[derive(Clone, Debug)]
pub struct SideStatus {
    /// Name of the interface.
    pub interface: String,
    /// How the interface is attached; `None` if it is not.
    pub attached: Option<AttachedStatus>,
    /// A problem or a notice for the operator.
    pub notice: Option<String>,
}

/// How an interface is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachedStatus {
    /// Index of the interface.
    pub index: u32,
    /// Number of queues.
    pub queues: u32,
    /// Whether the XDP program runs in the driver.
    pub native: bool,
    /// Whether the XDP program restores VLAN tags from packet metadata.
    pub restores_tags: bool,
    /// Kernel counters.
    pub kernel: KernelCounters,
}
