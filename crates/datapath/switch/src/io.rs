//! The ports that carry the packets of a switch.

use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Most packets that are received at once.
pub const BATCH: usize = 32;

/// The ports of one thread: AF_XDP sockets, DPDK devices or files. Each has a place, numbered from 0 in the
/// order in which the ports were opened. Those that can come and go implement [`ExchangePorts`] as well.
pub trait PacketIo {
    /// The reason why packets cannot be received or sent.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Returns the number of places.
    fn ports(&self) -> usize;

    /// Receives up to `most` packets of a port and calls `each` with the bytes of each, from the Ethernet
    /// header on, as on the wire (a VLAN tag that the device removed is put back). Returns their number: none
    /// for a port that is lost, and for a place without a port.
    ///
    /// # Errors
    /// The port cannot be read, and nothing says so elsewhere: a damaged file.
    fn receive(&mut self, port: usize, most: usize, each: impl FnMut(&[u8])) -> Result<usize, Self::Error>;

    /// Queues a packet for a port. Returns false if the port has no room for it, or if it is longer than the
    /// port can send, or if the port is not up: the packet is lost.
    fn send(&mut self, port: usize, packet: &[u8]) -> bool;

    /// Returns whether a port can send at all. Asked for the reason after `send` has returned false.
    fn is_up(&self, _port: usize) -> bool {
        true
    }

    /// Passes queued packets to the devices. Called once for each round of batches.
    ///
    /// # Errors
    /// Packets could not be written, and nothing says so elsewhere: a full disk.
    fn flush(&mut self) -> Result<(), Self::Error>;

    /// Returns whether no port will have a packet any more: all files are at their end. False for devices.
    fn ended(&self) -> bool {
        false
    }

    /// Sleeps until a port may have packets or `bell` is readable, at most for `longest`.
    ///
    /// # Errors
    /// The system refuses to wait.
    fn wait(&mut self, longest: Duration, bell: Option<BorrowedFd<'_>>) -> Result<(), Self::Error>;
}

/// Ports that can be exchanged while packets flow. A kind of port that cannot, such as a file, does not
/// implement it; one of which some can returns [`Refused`] for the others.
///
/// The packet thread only exchanges. A port is opened and closed (dropped) on another thread, since that
/// takes system calls and memory.
pub trait ExchangePorts: PacketIo {
    /// An open port that is in no place, or what was one.
    type Port: Send;

    /// Exchanges what is in a place, which may be nothing, and `port`. A place without a port receives and
    /// sends nothing. The place behind the last one is a new one. Makes no system call and no allocation.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed.
    fn exchange(&mut self, place: usize, port: &mut Option<Self::Port>) -> Result<(), Refused>;

    /// Counts the packets that `send` took and the device has not: they are lost if the port leaves its
    /// place.
    fn unsent(&mut self, place: usize) -> Unsent;

    /// Says whether the device of a port can send, which a thread beside the packet thread watches. While
    /// it cannot, `send` returns false.
    fn set_up(&mut self, place: usize, up: bool);

    /// Returns why a port receives and sends nothing any more, so that it has to be opened anew. `None` if it
    /// is not lost, or if the place has no port.
    fn lost(&self, place: usize) -> Option<&'static str>;
}

/// The reason why a port cannot be exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub &'static str);

/// Packets that wait in a port for its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsent {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}
