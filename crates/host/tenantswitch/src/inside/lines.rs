//! The line between a virtual machine and the process beside it: JSON, a line for each message.

use serde::{Deserialize, Serialize};

/// Longest line of the first message to the machine.
pub(super) const MAX_SETUP: u64 = 64 << 10;

/// The first message to a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineSetup {
    /// The host's time, nanoseconds since 1970.
    pub unix_ns: u64,
    /// The Ethernet addresses of its network devices, and the names that they get.
    pub interfaces: Vec<([u8; 6], String)>,
}
