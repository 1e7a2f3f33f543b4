//! The numbers of ports, and the thread that sends by each.

/// Highest number of a port: programs for v1model have 9 bits for it.
pub const MAX_PORT: u16 = 511;
/// Most ports of a switch: one for each number.
pub const MAX_PORTS: usize = MAX_PORT as usize + 1;

/// The number of a place without a port.
pub(crate) const VACANT: u16 = u16::MAX;

/// The thread that sends by a port, as one thread of the switch knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The number of the thread to which this one hands packets for the port; `None` if it sends itself.
    pub thread: Option<u8>,
    /// True if this thread serves the port's queue.
    pub has_queue: bool,
}

impl Way {
    /// The way of a thread that has the port for itself.
    pub const OWN: Self = Self { thread: None, has_queue: true };
}
