//! One port: a thread's queues of an open device, and the packets that it will send.

use crate::buffers::{Buffer, Buffers};
use crate::interface::BURST;

/// Bytes of an Ethernet header, the shortest packet that is sent.
const SHORTEST: usize = 14;
/// Bytes of an Ethernet header with two VLAN tags, beside which a packet has MTU bytes.
pub(crate) const OVERHEAD: u16 = 22;

/// A thread's queues of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queues {
    /// DPDK's number of the device.
    pub(crate) number: u16,
    /// The device's MTU.
    pub(crate) mtu: u16,
    /// The numbers of the queues; `None` if the thread has none.
    pub(crate) rx: Option<u16>,
    pub(crate) tx: Option<u16>,
}

impl Queues {
    pub(crate) const fn is_any(&self) -> bool {
        self.rx.is_some() || self.tx.is_some()
    }
}

/// A device that is open, as one thread uses it.
pub(crate) struct Port {
    number: u16,
    /// The queues, none of which the thread has once the device is gone.
    rx: Option<u16>,
    tx: Option<u16>,
    longest: usize,
    /// Packets that the device has not taken, at most a burst, and their lengths in bytes.
    staged: Vec<Buffer>,
    lens: [u16; BURST],
    is_gone: bool,
}

impl Port {
    /// Uses these queues of an open device.
    pub(crate) fn new(queues: Queues) -> Self {
        let Queues { number, mtu, rx, tx } = queues;
        Self {
            number,
            rx,
            tx,
            longest: usize::from(mtu.saturating_add(OVERHEAD)),
            staged: Vec::with_capacity(BURST),
            lens: [0; BURST],
            is_gone: false,
        }
    }

    #[inline]
    pub(crate) fn receive(&self, buffers: &mut Buffers, most: usize, each: impl FnMut(&[u8])) -> usize {
        self.rx.map_or(0, |queue| buffers.receive(self.number, queue, most, each))
    }

    #[inline]
    pub(crate) fn send(&mut self, buffers: &mut Buffers, packet: &[u8]) -> bool {
        if self.tx.is_none() || !(SHORTEST..=self.longest).contains(&packet.len()) {
            return false;
        }
        if self.staged.len() == BURST {
            self.flush(buffers);
            if self.staged.len() == BURST {
                return false;
            }
        }
        let Some(buffer) = buffers.fill(packet) else { return false };
        self.lens[self.staged.len()] = packet.len() as u16;
        self.staged.push(buffer);
        true
    }

    /// Gives staged packets to the device. Those that it does not take stay.
    #[inline]
    pub(crate) fn flush(&mut self, buffers: &Buffers) {
        let Some(queue) = self.tx.filter(|_| !self.staged.is_empty()) else { return };
        let (port, lens, all) = (self.number, self.lens.as_ptr(), self.staged.len());
        let staged = self.staged.as_mut_ptr().cast();
        // SAFETY: the port is open, and the queue is this thread's; each buffer has a packet of its length,
        // and all are ours.
        let count = unsafe { (buffers.library().0.send)(port, queue, staged, lens, all as u16) };
        let count = usize::from(count).min(all);
        // They are the device's now.
        self.staged.drain(..count);
        self.lens.copy_within(count..all, 0);
    }

    pub(crate) const fn receives(&self) -> bool {
        self.rx.is_some()
    }

    pub(crate) fn has_staged(&self) -> bool {
        !self.staged.is_empty()
    }

    /// Finds out whether the device was unplugged.
    pub(crate) fn look(&mut self, buffers: &Buffers) {
        // SAFETY: DPDK checks the number.
        self.is_gone |= unsafe { (buffers.library().0.is_removed)(self.number) } == 1;
        if self.is_gone {
            (self.rx, self.tx) = (None, None);
            self.release(buffers);
        }
    }

    pub(crate) const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Releases packets that the device has not taken: they are lost.
    pub(crate) fn release(&mut self, buffers: &Buffers) {
        buffers.release(&mut self.staged);
        self.staged.clear();
    }
}
