//! The door: the listening socket at which the next daemon finds a P4 VM that has lost its daemon.
//!
//! The daemon makes the socket in a folder that only root may enter, before the P4 VM reads anything, and a
//! P4 VM cannot make another. The P4 VM accepts a connection only while it has no daemon.

use p4shield_control::{Socket, SocketError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Time within which a daemon that has connected sends its first message.
pub(crate) const GREETING: Duration = Duration::from_secs(5);

/// The door.
#[derive(Debug)]
pub(crate) struct Door {
    listener: OwnedFd,
    /// How long the P4 VM goes on without a daemon.
    pub(crate) patience: Duration,
}

impl Door {
    /// Creates the door from a listening socket. Without patience, no daemon comes in time.
    pub(crate) const fn new(listener: OwnedFd) -> Self {
        Self { listener, patience: Duration::ZERO }
    }

    /// Waits for a connection until `end`.
    pub(crate) fn accept(&self, end: Instant) -> Option<Socket> {
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

/// Directs standard error to `pipe`: the daemon at the end of the previous one is gone.
pub(crate) fn write_errors_to(pipe: &OwnedFd) {
    // Without it the P4 VM goes on; its last words are lost.
    let _ = rustix::stdio::dup2_stderr(pipe);
}

/// Reports why a connection was of no use. Standard error may be a pipe that is closed.
pub(crate) fn report(error: &SocketError) {
    let _ = writeln!(std::io::stderr(), "a daemon that connected does not adopt this P4 VM: {error}");
}
