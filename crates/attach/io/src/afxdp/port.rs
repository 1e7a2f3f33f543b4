//! One port: an interface with its XDP program, a UMEM, and a socket for each queue.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use p4shield_afxdp::ethtool::Offloads;
use p4shield_afxdp::{FrameCounts, FramePool, Port, Promiscuous, Statistics};
use p4shield_switch::{Unsent, Way};
use p4shield_xdp::{XdpCounters, XdpError, XdpProgram, checksum};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, netdevice, shutdown, socket_with};

use super::error::Error;

/// Bytes of an Ethernet header, the shortest packet that is sent.
const SHORTEST: usize = 14;

/// The state of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up,
    /// It cannot send at present.
    Down,
    /// It is to be opened anew, for this reason.
    Lost(&'static str),
}

const GONE: State = State::Lost("its interface was deleted or moved to another network namespace");
const BROKEN: State = State::Lost("the kernel wrote an impossible index to one of its rings");
const REFUSED: State = State::Lost("the kernel refuses to send from its socket");

/// The state of a port.
#[derive(Clone, Debug)]
pub struct PortStatus {
    /// The XDP program runs in the driver.
    pub native: bool,
    /// The XDP program restores VLAN tags from packet metadata.
    pub restores_tags: bool,
    /// The XDP program's counters.
    pub xdp: XdpCounters,
    /// The kernel's counters of each queue's socket.
    pub sockets: Vec<Statistics>,
}

/// Offloads of interfaces, with name and index, that are restored on drop.
#[derive(Debug)]
pub(super) struct RestoredOffloads(pub(super) Vec<(String, u32, Offloads)>);

impl Drop for RestoredOffloads {
    fn drop(&mut self) {
        let any = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let Ok(any) = any else { return };
        for (name, index, offloads) in &self.0 {
            // The interface may be gone, and another one have its name.
            if netdevice::name_to_index(&any, name).is_ok_and(|now| now == *index) {
                let _ = offloads.restore();
            }
        }
    }
}

/// The attachment to an interface, which the threads share. It ends with the last part of a port.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) by: Attachment,
    pub(super) name: String,
    /// Index of the interface.
    pub(super) index: u32,
}

/// The attachment itself. It is dropped in order: frames stop before the interface is as it was.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) program: XdpProgram,
    pub(super) _promiscuous: Promiscuous,
    pub(super) _offloads: RestoredOffloads,
}

/// The process that has the attachment.
#[derive(Debug)]
pub(super) enum Attachment {
    /// This one.
    Here(Own),
    /// Another one, as long as this descriptor is open.
    Elsewhere(OwnedFd),
}

impl Attached {
    /// Has the XDP program redirect the packets of a queue to a socket, unless the process that has the
    /// attachment did so already.
    pub(super) fn serve(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        let Attachment::Here(own) = &self.by else { return Ok(()) };
        let (step, interface) = ("redirect frames to the socket", self.name.clone());
        let failed = |source| XdpError::Bpf { step, interface, source };
        Ok(own.program.serve(queue, socket).map_err(failed)?)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if let Self::Elsewhere(lease) = self {
            // At once, also while another process has the descriptor, too. It may have ended.
            let _ = shutdown(lease, Shutdown::Both);
        }
    }
}

/// The part of a port that one thread has. It is dropped in order: frames stop with the last part, the
/// sockets close, and the frames that they had go with their UMEM.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) attached: Arc<Attached>,
    pub(super) queues: Vec<Port>,
    pub(super) pool: FramePool,
    /// Bytes of the longest packet that is sent.
    pub(super) longest: usize,
    /// Entries of each ring.
    pub(super) ring: u32,
}

/// A thread's part of a port.
#[derive(Debug)]
pub struct PortPart {
    /// Its queues; `None` if it receives from none.
    pub port: Option<InterfacePort>,
    /// Which thread sends by the port.
    pub way: Way,
}

/// An interface that is a port, or was one, or a thread's part of it. Opened by [`InterfacePort::open`];
/// dropping it closes the sockets, and dropping the last part detaches the program, and restores what was
/// switched off.
#[derive(Debug)]
pub struct InterfacePort {
    parts: Parts,
    /// The queue that is received from first, so that each has its turn.
    turn: usize,
    /// The kernel has not taken all packets.
    unfinished: bool,
    state: State,
}

impl InterfacePort {
    pub(super) const fn new(parts: Parts) -> Self {
        Self { parts, turn: 0, unfinished: false, state: State::Up }
    }

    /// Returns the name of the interface.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.parts.attached.name
    }

    /// Returns the index of the interface, which no other one gets.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.parts.attached.index
    }

    /// Counts the frames of each owner.
    #[must_use]
    pub fn frames(&self) -> FrameCounts {
        self.parts.pool.counts()
    }

    /// Finds out whether the interface is gone.
    pub(super) fn look(&mut self) {
        if self.parts.queues.iter().any(Port::is_gone) {
            self.state = GONE;
        }
    }

    pub(super) const fn lost(&self) -> Option<&'static str> {
        match self.state {
            State::Lost(why) => Some(why),
            State::Up | State::Down => None,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.state == State::Up
    }

    pub(super) fn set_up(&mut self, up: bool) {
        if self.lost().is_none() {
            self.state = if up { State::Up } else { State::Down };
        }
    }

    pub(super) fn unsent(&mut self) -> Unsent {
        let all = self.parts.queues.iter_mut().map(Port::unsent);
        let (packets, bytes) = all.fold((0, 0), |sum, queue| (sum.0 + queue.0, sum.1 + queue.1));
        Unsent { packets, bytes }
    }

    pub(super) fn receive(&mut self, most: usize, mut each: impl FnMut(&[u8])) -> usize {
        if self.lost().is_some() {
            return 0;
        }
        let Parts { queues, pool, .. } = &mut self.parts;
        let mut left = u32::try_from(most).unwrap_or(u32::MAX);
        for _ in 0..queues.len() {
            left -= queues[self.turn].receive(pool, left, |mut frame| {
                checksum::complete(frame.bytes_mut());
                each(frame.bytes());
            });
            if left == 0 {
                break;
            }
            self.turn = (self.turn + 1) % queues.len();
        }
        most - left as usize
    }

    pub(super) fn send(&mut self, packet: &[u8]) -> bool {
        let len = packet.len();
        let Parts { queues, pool, longest, .. } = &mut self.parts;
        if self.state != State::Up || !(SHORTEST..=*longest).contains(&len) {
            return false;
        }
        let queue = &mut queues[0];
        let Some(mut frame) = pool.take() else { return false };
        if !frame.set_packet(0, len) {
            return false;
        }
        frame.bytes_mut().copy_from_slice(packet);
        let Err(frame) = queue.send(pool, frame) else { return true };
        // What the kernel takes now makes room. `flush` finds the reason if it takes nothing.
        let _ = queue.kick();
        queue.reap(pool);
        queue.send(pool, frame).is_ok()
    }

    /// Passes packets to the kernel, takes sent frames back, and offers free ones.
    pub(super) fn flush(&mut self) {
        if self.lost().is_some() {
            return;
        }
        self.unfinished = false;
        let Parts { queues, pool, ring, .. } = &mut self.parts;
        for queue in queues {
            queue.reap(pool);
            match queue.kick().map_err(|e| Errno::from_io_error(&e)) {
                Ok(more) => self.unfinished |= more,
                Err(Some(Errno::NXIO)) => self.state = GONE,
                // It may come up again; the next round tries again.
                Err(Some(Errno::NETDOWN)) => {}
                Err(_) => self.state = REFUSED,
            }
            queue.refill(pool, *ring);
            if queue.broken() {
                self.state = BROKEN;
            }
        }
    }

    pub(super) const fn is_unfinished(&self) -> bool {
        self.unfinished && self.lost().is_none()
    }

    /// Returns the sockets that may get packets.
    pub(super) fn sockets(&self) -> &[Port] {
        if self.lost().is_some() { &[] } else { &self.parts.queues }
    }

    pub(super) fn status(&self) -> Result<PortStatus, Error> {
        let Parts { attached, queues, .. } = &self.parts;
        let Attached { by, name, .. } = &**attached;
        let what = || format!("read the counters of {name}");
        let Attachment::Here(Own { program, .. }) = by else {
            let elsewhere = "the process that has attached the XDP program has them";
            return Err(Error::system(what())(std::io::Error::other(elsewhere)));
        };
        let xdp = program.counters().map_err(|e| Error::system(what())(std::io::Error::other(e)))?;
        let sockets = queues.iter().map(Port::statistics).collect::<Result<_, _>>();
        Ok(PortStatus {
            native: program.native(),
            restores_tags: program.restores_tags(),
            xdp,
            sockets: sockets.map_err(Error::system(what()))?,
        })
    }
}
