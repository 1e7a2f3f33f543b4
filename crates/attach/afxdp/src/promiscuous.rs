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
    _socket: OwnedFd,
}

impl Promiscuous {
    /// Makes the interface with this index promiscuous.
    ///
    /// # Errors
    /// The kernel's error: `EPERM` without `CAP_NET_RAW`, `ENODEV` without such an interface.
    pub fn new(interface: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        sys::join_promiscuous(socket.as_fd(), interface)?;
        Ok(Self { _socket: socket })
    }
}
