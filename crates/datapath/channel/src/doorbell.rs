//! Waking an end that sleeps.
//!
//! A doorbell is one end of a pair of connected UNIX sockets and not an eventfd, because the ends do not trust each
//! other. Whether a file blocks is a flag of the open file description, and an eventfd that two processes hold is
//! one description: the peer could clear `O_NONBLOCK`, fill the counter up to its end, and our next `write` would
//! wait for ever. The two sockets of a pair are two descriptions, and each call here asks for itself not to wait
//! (`MSG_DONTWAIT`). A socket also tells when the other end is gone (`POLLHUP`), and needs one descriptor for both
//! directions.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// One end of a doorbell: rings at the other end, and is rung there.
#[derive(Debug)]
pub struct Doorbell {
    socket: OwnedFd,
}

impl Doorbell {
    /// A doorbell's two ends; one is to be sent to the other party.
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

    /// The end that somebody sent. What kind of file it is matters to the sender alone: no call here waits.
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { socket: fd }
    }

    /// The file: to be polled for [`rustix::event::PollFlags::IN`] while asleep, or to be sent.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Gives up the end, to send it and close it here.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.socket
    }

    /// Rings at the other end. One system call, which never waits and raises no `SIGPIPE`. False if there is nobody
    /// any more; a bell that is still ringing (its buffer is full) rings.
    pub fn ring(&self) -> bool {
        match rustix::net::send(&self.socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => true,
            Err(_) => false,
        }
    }

    /// Silences this end. One system call mostly, a bounded number always; never waits. False if the other end is
    /// gone.
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
