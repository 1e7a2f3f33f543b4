//! The two rings of each kind: the application's and the kernel's.

use p4shield_afxdp::ring::{Consumer, Descriptor, Entry, Producer};

/// Two rings whose entries move from the application to the kernel.
#[derive(Debug)]
pub struct KernelBound<T> {
    /// The application's ring, which this library reads.
    pub application: Consumer<T>,
    /// The kernel's ring, which this library writes.
    pub kernel: Producer<T>,
}

/// Two rings whose entries move from the kernel to the application.
#[derive(Debug)]
pub struct ApplicationBound<T> {
    /// The application's ring, which this library writes.
    pub application: Producer<T>,
    /// The kernel's ring, which this library reads.
    pub kernel: Consumer<T>,
}

/// The fill rings of a queue.
pub type FillRings = KernelBound<u64>;
/// The completion rings of a queue.
pub type CompletionRings = ApplicationBound<u64>;
/// The receive rings of a socket.
pub type ReceiveRings = ApplicationBound<Descriptor>;
/// The transmit rings of a socket.
pub type TransmitRings = KernelBound<Descriptor>;

impl<T: Entry> KernelBound<T> {
    /// Returns whether a peer wrote an impossible index to one of the rings.
    #[must_use]
    pub fn broken(&self) -> bool {
        self.application.broken() || self.kernel.broken()
    }
}

impl<T: Entry> ApplicationBound<T> {
    /// Returns whether a peer wrote an impossible index to one of the rings.
    #[must_use]
    pub fn broken(&self) -> bool {
        self.application.broken() || self.kernel.broken()
    }
}
