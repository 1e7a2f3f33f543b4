//! A network device whose packets a vhost-user switch has.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::unix::net::UnixStream;

/// A network device of a machine, for whose connection to a switch QEMU waits.
///
/// QEMU listens on an abstract socket, which only its own network namespace has. So QEMU opens no socket of
/// the host, needs no folder, and only a process that may enter that namespace connects. QEMU takes one
/// connection after the other: while there is none, the machine sees the device without a carrier. (QEMU
/// refuses vhost-user over a socket that it inherits: it passes descriptors over sockets with an address.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostNic {
    /// Its Ethernet address.
    pub address: [u8; 6],
    /// The name of its socket: letters and digits, at most 107.
    pub socket: String,
    /// Bytes of the longest packet behind the Ethernet header; `None`: 1500, and the machine is told nothing.
    pub mtu: Option<u16>,
    /// Its queue pairs, at least 1. What the machine sends by one that the switch does not poll stays there.
    pub queues: u16,
}

impl VhostNic {
    /// Connects to QEMU, from its network namespace.
    ///
    /// # Errors
    /// QEMU does not listen (yet), or has a connection that it has not taken.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(self.socket.as_bytes())?)?;
        rustix::io::ioctl_fionbio(&socket, false)?;
        Ok(socket.into())
    }

    /// Returns QEMU's options of the socket.
    pub(crate) fn listening(&self) -> String {
        format!("path={},abstract=on,tight=on,server=on,wait=off", self.socket)
    }
}
