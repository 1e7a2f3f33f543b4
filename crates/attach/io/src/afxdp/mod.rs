//! Ports that are network interfaces: AF_XDP sockets on all their queues, served by one thread.
//!
//! ```text
//!   interface ─► XDP program ─► receive ring ─► PacketIo::receive      PacketIo::send ─► transmit ring ─►
//!                (puts the VLAN tag back)        (completes checksums)  (copies the packet into a frame)
//! ```
//!
//! All ports share one UMEM, which has frames for every ring: no port can take another's. A port sends from
//! its first queue, so that its packets stay in order.
//!
//! # Offloads
//!
//! A packet from a socket of this machine over veth or a tap has a partial checksum, which
//! [`p4shield_xdp::checksum`] completes. Attaching XDP to a veth switches its peer's segmentation offload
//! off; a longer packet than a frame is dropped and counted.
//!
//! # The host's own network stack
//!
//! It receives nothing from an interface that is a port, and can still send through it: give it no address
//! there. A veth peer or a tap's other end is no part of the port.
//!
//! # Ends
//!
//! [`PacketIo::receive`] of a port whose interface is gone returns an error each time, `flush` and `wait`
//! return it once, and its packets are lost: a switch may go on with its other ports. While an interface is
//! down, its packets are lost too, without an error. Dropping the ports detaches the programs, closes the
//! sockets, and restores what was switched off; the end of the process does so as well, except for offloads.

mod config;
mod error;
mod open;
mod port;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use p4shield_afxdp::{FrameCounts, FramePool};
use p4shield_switch::PacketIo;
use p4shield_xdp::InterfaceMonitor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

pub use self::config::AfxdpConfig;
pub use self::error::Error;
use self::port::InterfacePort;
pub use self::port::PortStatus;

/// Time until the next attempt on a transmit ring that the kernel left unfinished, if nothing else happens.
const RETRY: Duration = Duration::from_millis(1);
/// Rounds of a busy switch from one look for interfaces that are gone to the next.
const LOOK: u32 = 1024;

/// The ports of a thread, opened by [`AfxdpPorts::open`].
pub struct AfxdpPorts {
    // Dropped first, since its sockets use the frames.
    ports: Vec<InterfacePort>,
    pool: FramePool,
    monitor: InterfaceMonitor,
    ring: u32,
    rounds: u32,
}

impl AfxdpPorts {
    /// Reads the state of a port.
    ///
    /// # Errors
    /// The kernel's counters cannot be read.
    pub fn status(&self, port: usize) -> Result<PortStatus, Error> {
        self.ports[port].status()
    }

    /// Counts the frames of each owner.
    #[must_use]
    pub fn frames(&self) -> FrameCounts {
        self.pool.counts()
    }

    /// Finds ports whose interface is gone.
    fn look(&mut self) {
        // A message that was lost may have been about any port.
        let _ = self.monitor.receive(|_| {});
        self.ports.iter_mut().for_each(InterfacePort::look);
    }

    /// Returns the first loss that was not reported.
    fn report(&mut self) -> Result<(), Error> {
        self.ports.iter_mut().try_for_each(InterfacePort::report)
    }
}

impl PacketIo for AfxdpPorts {
    type Error = Error;

    fn ports(&self) -> usize {
        self.ports.len()
    }

    fn receive(&mut self, port: usize, most: usize, each: impl FnMut(&[u8])) -> Result<usize, Error> {
        self.ports[port].receive(&self.pool, most, each)
    }

    fn send(&mut self, port: usize, packet: &[u8]) -> bool {
        self.ports[port].send(&self.pool, packet)
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(LOOK) {
            self.look();
        }
        for port in &mut self.ports {
            port.flush(&self.pool, self.ring)?;
        }
        self.report()
    }

    fn wait(&mut self, longest: Duration, bell: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        let is_unfinished = self.ports.iter().any(InterfacePort::is_unfinished);
        let longest = if is_unfinished { longest.min(RETRY) } else { longest };
        let timeout = Timespec {
            tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(longest.subsec_nanos()),
        };
        let mut fds = vec![PollFd::new(&self.monitor, PollFlags::IN)];
        fds.extend(self.ports.iter().flat_map(InterfacePort::sockets).map(|s| PollFd::new(s, PollFlags::IN)));
        fds.extend(bell.iter().map(|bell| PollFd::new(bell, PollFlags::IN)));
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Error::system("wait for packets with poll(2)")(e.into())),
        }
        if !fds[0].revents().is_empty() {
            drop(fds);
            self.look();
        }
        self.report()
    }
}

impl fmt::Debug for AfxdpPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AfxdpPorts").field("ports", &self.ports).field("pool", &self.pool).finish()
    }
}
