//! The ports of a thread.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use p4shield_switch::PacketIo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::buffers::Buffers;
use crate::error::Error;
use crate::idle::Idle;
use crate::library::Library;
use crate::port::{Port, Queues};

/// Rounds of a switch from one look for devices that are gone to the next.
const LOOK: u32 = 1 << 16;

/// The reason why a device is lost, and the remedy.
const GONE: &str = "was unplugged; plug it in again, and restart the switch";

/// The calling thread as one of EAL's, so that it has a cache of free buffers.
pub(crate) struct Entered(Library);

impl Entered {
    /// Makes the calling thread one of EAL's; `None` if it is one already.
    ///
    /// # Errors
    /// EAL takes no further thread.
    pub(crate) fn new(library: Library) -> Result<Option<Self>, Error> {
        Ok(library.enter().map_err(Error::Thread)?.then(|| Self(library)))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // SAFETY: `enter` returned that this thread leaves, and the ports stay on it.
        unsafe { (self.0.0.leave)() };
    }
}

/// DPDK devices as the ports of a thread, opened by [`DpdkPorts::open`]. They stay on that thread.
// Fields are dropped in their order: the devices close before the thread leaves EAL.
pub struct DpdkPorts {
    ports: Vec<Port>,
    buffers: Buffers,
    idle: Idle,
    rounds: u32,
    _entered: Option<Entered>,
}

impl DpdkPorts {
    /// Uses these queues on the calling thread, which is one of EAL's.
    pub(crate) fn new(queues: &[Queues], buffers: Buffers, entered: Option<Entered>) -> Self {
        let ports: Vec<_> = queues.iter().copied().map(Port::new).collect();
        Self { ports, buffers, idle: Idle::default(), rounds: 0, _entered: entered }
    }

    /// Returns how long the thread may sleep, now that a round received nothing: no time at all at first,
    /// then a moment. A thread that receives from no device has to wake for nothing but packets that a device
    /// has not taken.
    pub fn pause(&mut self) -> Duration {
        let has_staged = self.ports.iter().any(Port::has_staged);
        if has_staged || self.ports.iter().any(Port::receives) {
            self.idle.pause(has_staged)
        } else {
            Duration::MAX
        }
    }

    #[cold]
    fn look(&mut self) {
        self.ports.iter_mut().for_each(|port| port.look(&self.buffers));
    }

    /// Returns why a device receives and sends nothing any more; `None` if it works.
    #[must_use]
    pub fn lost(&self, port: usize) -> Option<&'static str> {
        self.ports[port].is_gone().then_some(GONE)
    }
}

impl PacketIo for DpdkPorts {
    type Error = Error;

    fn ports(&self) -> usize {
        self.ports.len()
    }

    #[inline]
    fn receive(&mut self, port: usize, most: usize, each: impl FnMut(&[u8])) -> Result<usize, Error> {
        let count = self.ports[port].receive(&mut self.buffers, most, each);
        self.idle.note(count);
        Ok(count)
    }

    #[inline]
    fn send(&mut self, port: usize, packet: &[u8]) -> bool {
        self.ports[port].send(&mut self.buffers, packet)
    }

    fn is_up(&self, port: usize) -> bool {
        !self.ports[port].is_gone()
    }

    #[inline]
    fn flush(&mut self) -> Result<(), Error> {
        for port in &mut self.ports {
            port.flush(&self.buffers);
        }
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(LOOK) {
            self.look();
        }
        Ok(())
    }

    /// Devices are polled, and wake no thread: a thread that receives from one sleeps for a moment at most
    /// after it was idle for a while, whatever `longest` is.
    fn wait(&mut self, longest: Duration, bell: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        let longest = longest.min(self.pause());
        // The thread looks for commands in each round anyway.
        if longest.is_zero() {
            return Ok(());
        }
        let tv_sec = i64::try_from(longest.as_secs()).unwrap_or(i64::MAX);
        let timeout = Timespec { tv_sec, tv_nsec: i64::from(longest.subsec_nanos()) };
        let mut fds = bell.as_ref().map(|bell| PollFd::new(bell, PollFlags::IN));
        match poll(fds.as_mut_slice(), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(Error::Wait(e.into())),
        }
    }
}

impl Drop for DpdkPorts {
    fn drop(&mut self) {
        self.ports.iter_mut().for_each(|port| port.release(&self.buffers));
    }
}

impl fmt::Debug for DpdkPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DpdkPorts").field("ports", &self.ports.len()).finish_non_exhaustive()
    }
}
