//! Doorbells, by which one end of a channel wakes the other.
//!
//! A doorbell is one end of a pair of connected UNIX sockets, not an eventfd, because the ends do not
//! trust each other. `O_NONBLOCK` is a flag of the open file description, which two holders of an
//! eventfd share: the peer could clear it and fill the counter, and the next `write` here would block
//! for ever. The two sockets of a pair are two descriptions, and each call here passes
//! `MSG_DONTWAIT`. A socket also reports when the peer has closed its end (`POLLHUP`), and one
//! descriptor serves both directions.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// One end of a doorbell: wakes the other end, and is woken by it.
#[derive(Debug)]
pub struct Doorbell {
    socket: OwnedFd,
}

impl Doorbell {
    /// Creates both ends; one is to be sent to the other party.
    ///
    /// # Errors
    /// If the process or the system is out of file descriptors.
    pub fn pair() -> Result<(Self, Self), Errno> {
        let (a, b) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        Ok((Self { socket: a }, Self { socket: b }))
    }

    /// Takes an end that the other party sent. If it is another kind of file, only the sender
    /// suffers: no call here waits.
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { socket: fd }
    }

    /// Returns the file, to poll it for [`rustix::event::PollFlags::IN`] while asleep, or to send it.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Converts the end into its file, to send it and close it here.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.socket
    }

    /// Rings at the other end. One system call, which never waits and raises no `SIGPIPE`. Returns
    /// false if the other end is closed; a doorbell whose buffer is full is ringing already.
    pub fn ring(&self) -> bool {
        match rustix::net::send(&self.socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => true,
            Err(_) => false,
        }
    }

    /// Drains this end. Mostly one system call, always a bounded number; never waits. Returns false
    /// if the other end is closed.
    pub fn drain(&self) -> bool {
        let mut rings = [0_u8; 256];
        for _ in 0..8 {
            match rustix::net::recv(&self.socket, &mut rings, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return false,
                Ok((n, _)) if n == rings.len() => {}
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}
