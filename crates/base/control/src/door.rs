//! The door: the listening socket at which the next daemon finds a process that has lost its daemon.
//!
//! The daemon makes the socket in a folder that only root may enter. A P4 VM, which receives it before it
//! reads a byte of its tenant's, cannot make another. A process accepts connections only while it has no
//! daemon.

use crate::socket::Socket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Time within which a daemon that has connected sends its first message.
pub const GREETING: Duration = Duration::from_secs(5);

/// The door.
#[derive(Debug)]
pub struct Door {
    listener: OwnedFd,
    /// How long the process goes on without a daemon.
    pub patience: Duration,
}

impl Door {
    /// Creates the door from a listening socket. Without patience, no daemon comes in time.
    #[must_use]
    pub const fn new(listener: OwnedFd) -> Self {
        Self { listener, patience: Duration::ZERO }
    }

    /// Waits for a connection until `end`.
    #[must_use]
    pub fn accept(&self, end: Instant) -> Option<Socket> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok()?;
            match poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            }
            match accept_with(&self.listener, SocketFlags::CLOEXEC) {
                Ok(fd) => return Some(Socket::new(fd)),
                // The daemon gave up meanwhile.
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => return None,
            }
        }
    }
}
