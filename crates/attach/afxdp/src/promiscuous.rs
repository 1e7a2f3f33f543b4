//! Makes an interface receive frames for any destination address.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::sys;

/// Keeps an interface promiscuous while it lives. The kernel counts those who want it (`man 7 packet`), so
/// that the end of this process or of this value takes nothing from another.
#[derive(Debug)]
pub struct Promiscuous {
    /// Without a protocol, it receives nothing.
    socket: OwnedFd,
    interface: u32,
}

impl Promiscuous {
    /// Makes the interface with this index promiscuous.
    ///
    /// # Errors
    /// The kernel's error: `EPERM` without `CAP_NET_RAW`, `ENODEV` without such an interface.
    pub fn new(interface: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        sys::set_promiscuous(socket.as_fd(), interface, true)?;
        Ok(Self { socket, interface })
    }
}

impl Drop for Promiscuous {
    /// Ends it at once: a child between fork and exec may have the socket, too.
    fn drop(&mut self) {
        // The interface may be gone.
        let _ = sys::set_promiscuous(self.socket.as_fd(), self.interface, false);
    }
}
