//! Watches the interfaces of a network namespace, for a thread beside the packet thread.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use p4shield_xdp::{Interface, InterfaceMonitor};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::error::Error;

/// The interfaces of a network namespace, as they were at the last look.
#[derive(Debug)]
pub struct Watch {
    monitor: InterfaceMonitor,
    all: Vec<Interface>,
}

impl Watch {
    /// Opens the watch in the network namespace of the calling thread, and looks.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn open() -> Result<Self, Error> {
        let monitor = InterfaceMonitor::open().map_err(Error::system("watch the interfaces"))?;
        let mut watch = Self { monitor, all: Vec::new() };
        watch.look()?;
        Ok(watch)
    }

    /// Looks which interfaces are there.
    ///
    /// # Errors
    /// [`Error::System`]; what was seen before stays.
    pub fn look(&mut self) -> Result<(), Error> {
        self.all = self.monitor.list().map_err(Error::system("list the interfaces through rtnetlink"))?;
        Ok(())
    }

    /// Sleeps until an interface changes or `bell` is readable, at most for `longest`.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn wait(&self, longest: Duration, bell: BorrowedFd<'_>) -> Result<(), Error> {
        let timeout = Timespec::try_from(longest).ok();
        let mut fds = [PollFd::new(&self.monitor, PollFlags::IN), PollFd::new(&bell, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(Error::system("wait for a change of an interface")(e.into())),
        }
    }

    /// Returns the interface with this name, if it is there.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Interface> {
        self.all.iter().find(|i| i.name == name)
    }
}

/// Readable once an interface has changed.
impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }
}
