//! The ports of a thread.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use p4shield_switch::PacketIo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::buffers::Buffers;
use crate::config::DpdkConfig;
use crate::eal;
use crate::error::Error;
use crate::idle::Idle;
use crate::interface::{BURST, Device};
use crate::library::Library;
use crate::port::{OVERHEAD, Port, find};

/// Rounds of a switch from one look for devices that are gone to the next.
const LOOK: u32 = 1 << 16;
/// Bytes of a buffer for packets of an ordinary MTU; longer ones are multiples of half of it.
const ROOM: u16 = 2048;

/// The reason why a device is lost, and the remedy.
const GONE: &str = "was unplugged; plug it in again, and restart the switch";

/// The calling thread as one of EAL's, so that it has a cache of free buffers.
struct Entered(Library);

impl Drop for Entered {
    fn drop(&mut self) {
        // SAFETY: `enter` returned that this thread leaves, and the ports stay on it.
        unsafe { (self.0.0.leave)() };
    }
}

/// Finds the devices, and describes them.
fn find_all(library: Library, names: &[String]) -> Result<Vec<(u16, Device)>, Error> {
    let mut found: Vec<(u16, Device)> = Vec::new();
    for name in names {
        let device = find(library, name)?;
        if found.iter().any(|other| other.0 == device.0) {
            return Err(Error::Twice { device: name.clone() });
        }
        found.push(device);
    }
    Ok(found)
}

/// Makes buffers for full rings of these devices, each as long as their longest packet.
fn make_buffers(library: Library, found: &[(u16, Device)]) -> Result<Buffers, Error> {
    static POOLS: AtomicU32 = AtomicU32::new(0);
    let of_port = |d: &Device| u32::from(d.rx_ring) + u32::from(d.tx_ring) + 2 * BURST as u32;
    let descriptors = found.iter().map(|(_, device)| of_port(device)).sum();
    let mtu = found.iter().map(|(_, device)| device.mtu).max().unwrap_or_default();
    let room = mtu.saturating_add(OVERHEAD).max(ROOM).div_ceil(ROOM / 2).saturating_mul(ROOM / 2);
    let name = format!("p4shield{}", POOLS.fetch_add(1, Ordering::Relaxed));
    Buffers::new(library, &name, descriptors, room)
}

/// DPDK devices as the ports of a thread, opened by [`DpdkPorts::open`]. They stay on that thread.
pub struct DpdkPorts {
    ports: Vec<Port>,
    buffers: Buffers,
    idle: Idle,
    rounds: u32,
    _entered: Option<Entered>,
}

impl DpdkPorts {
    /// Loads the library and starts EAL, unless that has happened, and opens the devices.
    ///
    /// # Errors
    /// [`Error`]: the library is missing, EAL does not start, or a device does not exist or open.
    pub fn open(config: &DpdkConfig) -> Result<Self, Error> {
        let library = eal::start(config)?;
        let entered = library.enter().map_err(Error::Thread)?.then(|| Entered(library));
        let found = find_all(library, &config.devices)?;
        let buffers = make_buffers(library, &found)?;
        let mut ports =
            Self { ports: Vec::new(), buffers, idle: Idle::default(), rounds: 0, _entered: entered };
        for (name, (number, device)) in config.devices.iter().zip(&found) {
            let port = Port::open(name, *number, device, &ports.buffers)?;
            ports.ports.push(port);
        }
        Ok(ports)
    }

    /// Returns how long the thread may sleep, now that a round received nothing: no time at all at first,
    /// then a moment.
    pub fn pause(&mut self) -> Duration {
        self.idle.pause(self.ports.iter().any(Port::has_staged))
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

    /// Devices are polled, and wake no thread: a thread that was idle for a while sleeps for a moment at
    /// most, whatever `longest` is.
    fn wait(&mut self, longest: Duration, bell: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        let longest = longest.min(self.pause());
        // The thread looks for commands in each round anyway.
        if longest.is_zero() {
            return Ok(());
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(longest.subsec_nanos()) };
        let mut fds = bell.as_ref().map(|bell| PollFd::new(bell, PollFlags::IN));
        match poll(fds.as_mut_slice(), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(Error::Wait(e.into())),
        }
    }
}

impl Drop for DpdkPorts {
    fn drop(&mut self) {
        self.ports.iter_mut().for_each(|port| port.close(&self.buffers));
    }
}

impl fmt::Debug for DpdkPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DpdkPorts").field("ports", &self.ports.len()).finish_non_exhaustive()
    }
}
