//! The ports that carry the packets of a switch.

use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Most packets that are received at once.
pub const BATCH: usize = 32;

/// The ports of one thread: AF_XDP sockets, DPDK devices or files. Ports are numbered by index, in the order
/// in which they were opened.
pub trait PacketIo {
    /// The reason why packets cannot be received or sent.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Returns the number of ports.
    fn ports(&self) -> usize;

    /// Receives up to `most` packets of a port and calls `each` with the bytes of each, from the Ethernet
    /// header on, as on the wire (a VLAN tag that the device removed is put back). Returns their number.
    ///
    /// # Errors
    /// The device is gone, or broke its rings.
    fn receive(&mut self, port: usize, most: usize, each: impl FnMut(&[u8])) -> Result<usize, Self::Error>;

    /// Queues a packet for a port. Returns false if the port has no room for it, or if it is longer than the
    /// port can send: the packet is lost.
    fn send(&mut self, port: usize, packet: &[u8]) -> bool;

    /// Passes queued packets to the devices. Called once for each round of batches.
    ///
    /// # Errors
    /// A device is gone; `flush` or `wait` reports each once, so that the switch can go on with other ports.
    fn flush(&mut self) -> Result<(), Self::Error>;

    /// Returns whether no port will have a packet any more: all files are at their end. False for devices.
    fn ended(&self) -> bool {
        false
    }

    /// Sleeps until a port may have packets or `bell` is readable, at most for `longest`.
    ///
    /// # Errors
    /// A device is gone, as for `flush`.
    fn wait(&mut self, longest: Duration, bell: Option<BorrowedFd<'_>>) -> Result<(), Self::Error>;
}
