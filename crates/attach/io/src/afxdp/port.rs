//! One port: an interface with its XDP program and a socket for each queue.

use p4shield_afxdp::ethtool::Offloads;
use p4shield_afxdp::{FramePool, Port, Promiscuous, Statistics};
use p4shield_xdp::{XdpCounters, XdpProgram, checksum};
use rustix::io::Errno;

use super::error::Error;

/// Bytes of an Ethernet header, the shortest packet that is sent.
const SHORTEST: usize = 14;

/// The part of a port that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Interface,
    Ring,
}

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

/// Offloads that are restored on drop.
#[derive(Debug)]
pub(super) struct RestoredOffloads(pub(super) Vec<Offloads>);

impl Drop for RestoredOffloads {
    fn drop(&mut self) {
        for offloads in &self.0 {
            // The interface may be gone.
            let _ = offloads.restore();
        }
    }
}

/// A port. Its fields are dropped in order: frames stop, then the sockets close.
#[derive(Debug)]
pub(super) struct InterfacePort {
    pub(super) program: XdpProgram,
    pub(super) queues: Vec<Port>,
    pub(super) _promiscuous: Promiscuous,
    pub(super) _offloads: RestoredOffloads,
    pub(super) name: String,
    /// Bytes of the longest packet that is sent.
    longest: usize,
    /// The queue that is received from first, so that each has its turn.
    turn: usize,
    /// The kernel has not taken all packets.
    unfinished: bool,
    loss: Option<Loss>,
    reported: bool,
}

impl InterfacePort {
    pub(super) fn new(
        name: String,
        longest: u32,
        program: XdpProgram,
        queues: Vec<Port>,
        promiscuous: Promiscuous,
        offloads: RestoredOffloads,
    ) -> Self {
        Self {
            program,
            queues,
            _promiscuous: promiscuous,
            _offloads: offloads,
            name,
            longest: longest as usize,
            turn: 0,
            unfinished: false,
            loss: None,
            reported: false,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let interface = || self.name.clone();
        match self.loss {
            None => Ok(()),
            Some(Loss::Interface) => Err(Error::Gone { interface: interface() }),
            Some(Loss::Ring) => Err(Error::Broken { interface: interface() }),
        }
    }

    /// Returns the loss once.
    pub(super) fn report(&mut self) -> Result<(), Error> {
        if self.reported {
            return Ok(());
        }
        self.reported = self.loss.is_some();
        self.check()
    }

    /// Finds out whether the interface is gone.
    pub(super) fn look(&mut self) {
        if self.queues.iter().any(Port::is_gone) {
            self.loss = Some(Loss::Interface);
        }
    }

    pub(super) fn receive(
        &mut self,
        pool: &FramePool,
        most: usize,
        mut each: impl FnMut(&[u8]),
    ) -> Result<usize, Error> {
        self.check()?;
        let mut left = u32::try_from(most).unwrap_or(u32::MAX);
        for _ in 0..self.queues.len() {
            let queue = &mut self.queues[self.turn];
            left -= queue.receive(pool, left, |mut frame| {
                checksum::complete(frame.bytes_mut());
                each(frame.bytes());
            });
            if left == 0 {
                break;
            }
            self.turn = (self.turn + 1) % self.queues.len();
        }
        Ok(most - left as usize)
    }

    pub(super) fn send(&mut self, pool: &FramePool, packet: &[u8]) -> bool {
        let len = packet.len();
        if self.loss.is_some() || !(SHORTEST..=self.longest).contains(&len) {
            return false;
        }
        let queue = &mut self.queues[0];
        let Some(mut frame) = pool.take() else { return false };
        if !frame.set_packet(0, len) {
            return false;
        }
        frame.bytes_mut().copy_from_slice(packet);
        let Err(frame) = queue.send(pool, frame) else { return true };
        // What the kernel takes now makes room. `flush` reports the reason if it takes nothing.
        let _ = queue.kick();
        queue.reap(pool);
        queue.send(pool, frame).is_ok()
    }

    /// Passes packets to the kernel, takes sent frames back, and offers free ones.
    pub(super) fn flush(&mut self, pool: &FramePool, ring: u32) -> Result<(), Error> {
        if self.loss.is_some() {
            return Ok(());
        }
        self.unfinished = false;
        for queue in &mut self.queues {
            queue.reap(pool);
            match queue.kick() {
                Ok(more) => self.unfinished |= more,
                Err(e) if Errno::from_io_error(&e) == Some(Errno::NXIO) => self.loss = Some(Loss::Interface),
                // It may come up again; the next round tries again.
                Err(e) if Errno::from_io_error(&e) == Some(Errno::NETDOWN) => {}
                Err(e) => return Err(Error::system(format!("send from {}", self.name))(e)),
            }
            queue.refill(pool, ring);
            if queue.broken() {
                self.loss = Some(Loss::Ring);
            }
        }
        Ok(())
    }

    pub(super) const fn is_unfinished(&self) -> bool {
        self.unfinished && self.loss.is_none()
    }

    /// Returns the sockets that may get packets.
    pub(super) fn sockets(&self) -> &[Port] {
        if self.loss.is_some() { &[] } else { &self.queues }
    }

    pub(super) fn status(&self) -> Result<PortStatus, Error> {
        let what = || format!("read the counters of {}", self.name);
        let xdp = self.program.counters().map_err(|e| Error::system(what())(std::io::Error::other(e)))?;
        let sockets = self.queues.iter().map(Port::statistics).collect::<Result<_, _>>();
        Ok(PortStatus {
            native: self.program.native(),
            restores_tags: self.program.restores_tags(),
            xdp,
            sockets: sockets.map_err(Error::system(what()))?,
        })
    }
}
