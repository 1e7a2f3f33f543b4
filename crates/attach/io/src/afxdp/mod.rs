//! Ports that are network interfaces: AF_XDP sockets on all their queues, each served by one thread.
//!
//! ```text
//!   interface ─► XDP program ─► receive ring ─► PacketIo::receive      PacketIo::send ─► transmit ring ─►
//!                (puts the VLAN tag back)        (completes checksums)  (copies the packet into a frame)
//! ```
//!
//! Each port has a UMEM, with frames for all its rings: no port can take another's, and those of a port that
//! is lost go with it. A packet is copied anyway, so that no port needs the frames of another. A thread sends
//! from its first queue of a port, so that its packets stay in order.
//!
//! # Several threads
//!
//! They share the queues of an interface ([`Share`](p4shield_switch::Share)): each has its own UMEM for those
//! that it has. A thread without a queue hands packets for the port to one that has
//! ([`Way`](p4shield_switch::Way)).
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
//! A port whose interface is gone is [`ExchangePorts::lost`], and neither receives nor sends: the others go
//! on. Another thread, which has a [`Watch`], opens an [`InterfacePort`] in its place once the interface is
//! back. That thread also says while an interface is down; packets that wait in its ring then leave when it
//! is up.
//!
//! # Ports for another process
//!
//! [`handed`]: a process with privileges opens a port, and one without serves it.
//!
//! Dropping a port detaches the program, closes the sockets, and restores what was switched off; the end of
//! the process does so as well, except for offloads.

mod config;
mod error;
pub mod handed;
mod open;
mod port;
mod watch;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use p4shield_afxdp::FrameCounts;
use p4shield_switch::{ExchangePorts, MAX_PORTS, PacketIo, Refused, Unsent};
use p4shield_xdp::InterfaceMonitor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

pub use self::config::AfxdpConfig;
pub use self::error::Error;
pub use self::open::LONGEST_MTU;
pub use self::port::{InterfacePort, PortPart, PortStatus};
pub use self::watch::Watch;

/// Time until the next attempt on a transmit ring that the kernel left unfinished, if nothing else happens.
const RETRY: Duration = Duration::from_millis(1);
/// Rounds of a busy switch from one look for interfaces that are gone to the next.
const LOOK: u32 = 1024;

/// The ports of a thread, opened by [`AfxdpPorts::open`].
pub struct AfxdpPorts {
    /// By place. Has capacity for all, so that the packet thread allocates nothing.
    ports: Vec<Option<InterfacePort>>,
    /// `None` if another process watches the interfaces.
    monitor: Option<InterfaceMonitor>,
    rounds: u32,
}

impl AfxdpPorts {
    /// Reads the state of a port; `None` for a place without one.
    ///
    /// # Errors
    /// The kernel's counters cannot be read.
    pub fn status(&self, port: usize) -> Result<Option<PortStatus>, Error> {
        self.ports[port].as_ref().map(InterfacePort::status).transpose()
    }

    /// Counts the frames of each owner, of all ports.
    #[must_use]
    pub fn frames(&self) -> FrameCounts {
        self.open_ports().map(InterfacePort::frames).fold(FrameCounts::default(), |sum, port| FrameCounts {
            free: sum.free + port.free,
            held: sum.held + port.held,
            receive: sum.receive + port.receive,
            transmit: sum.transmit + port.transmit,
        })
    }

    /// Returns the index of the interface in a place; `None` for a place without one.
    #[must_use]
    pub fn index(&self, place: usize) -> Option<u32> {
        self.ports[place].as_ref().map(InterfacePort::index)
    }

    fn open_ports(&self) -> impl Iterator<Item = &InterfacePort> {
        self.ports.iter().flatten()
    }

    /// Finds ports whose interface is gone.
    fn look(&mut self) {
        // A message that was lost may have been about any port.
        if let Some(monitor) = &mut self.monitor {
            let _ = monitor.receive(|_| {});
        }
        self.ports.iter_mut().flatten().for_each(InterfacePort::look);
    }
}

impl PacketIo for AfxdpPorts {
    type Error = Error;

    fn ports(&self) -> usize {
        self.ports.len()
    }

    fn receive(&mut self, port: usize, most: usize, each: impl FnMut(&[u8])) -> Result<usize, Error> {
        Ok(self.ports[port].as_mut().map_or(0, |p| p.receive(most, each)))
    }

    fn send(&mut self, port: usize, packet: &[u8]) -> bool {
        self.ports[port].as_mut().is_some_and(|p| p.send(packet))
    }

    fn is_up(&self, port: usize) -> bool {
        self.ports[port].as_ref().is_some_and(InterfacePort::is_up)
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(LOOK) {
            self.look();
        }
        self.ports.iter_mut().flatten().for_each(InterfacePort::flush);
        Ok(())
    }

    fn wait(&mut self, longest: Duration, bell: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        let is_unfinished = self.open_ports().any(InterfacePort::is_unfinished);
        let longest = if is_unfinished { longest.min(RETRY) } else { longest };
        let timeout = Timespec {
            tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(longest.subsec_nanos()),
        };
        let mut fds: Vec<_> = self.monitor.iter().map(|m| PollFd::new(m, PollFlags::IN)).collect();
        let watches = !fds.is_empty();
        fds.extend(self.open_ports().flat_map(InterfacePort::sockets).map(|s| PollFd::new(s, PollFlags::IN)));
        fds.extend(bell.iter().map(|bell| PollFd::new(bell, PollFlags::IN)));
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Error::system("wait for packets with poll(2)")(e.into())),
        }
        if watches && !fds[0].revents().is_empty() {
            drop(fds);
            self.look();
        }
        Ok(())
    }
}

impl ExchangePorts for AfxdpPorts {
    type Port = InterfacePort;

    fn exchange(&mut self, place: usize, port: &mut Option<InterfacePort>) -> Result<(), Refused> {
        if place == self.ports.len() && place < MAX_PORTS {
            self.ports.push(None);
        }
        let there = self.ports.get_mut(place).ok_or(Refused("a switch has at most 512 ports"))?;
        std::mem::swap(there, port);
        Ok(())
    }

    fn unsent(&mut self, place: usize) -> Unsent {
        self.ports[place].as_mut().map_or_else(Unsent::default, InterfacePort::unsent)
    }

    fn set_up(&mut self, place: usize, up: bool) {
        if let Some(port) = &mut self.ports[place] {
            port.set_up(up);
        }
    }

    fn lost(&self, place: usize) -> Option<&'static str> {
        self.ports[place].as_ref().and_then(InterfacePort::lost)
    }
}

impl fmt::Debug for AfxdpPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AfxdpPorts").field("ports", &self.ports).finish()
    }
}
