//! One port: an open device, and the packets that it will send.

use std::ffi::CStr;

use crate::buffers::{Buffer, Buffers};
use crate::error::Error;
use crate::interface::{BURST, Device};

/// Bytes of an Ethernet header, the shortest packet that is sent.
const SHORTEST: usize = 14;
/// Bytes of an Ethernet header with two VLAN tags, beside which a packet has MTU bytes.
pub(crate) const OVERHEAD: u16 = 22;

/// A device that is open, and is closed by [`Port::close`].
pub(crate) struct Port {
    number: u16,
    longest: usize,
    /// Packets that the device has not taken, at most a burst, and their lengths in bytes.
    staged: Vec<Buffer>,
    lens: [u16; BURST],
    is_gone: bool,
}

impl Port {
    /// Opens a device that was found, with buffers of this pool.
    ///
    /// # Errors
    /// The device does not start.
    pub(crate) fn open(name: &str, number: u16, device: &Device, buffers: &Buffers) -> Result<Self, Error> {
        let library = buffers.library();
        library.open(number, device, buffers.pool()).map_err(|(step, source)| Error::Open {
            device: name.to_owned(),
            step,
            log: library.log(),
            source,
        })?;
        Ok(Self {
            number,
            longest: usize::from(device.mtu.saturating_add(OVERHEAD)),
            staged: Vec::with_capacity(BURST),
            lens: [0; BURST],
            is_gone: false,
        })
    }

    #[inline]
    pub(crate) fn receive(&self, buffers: &mut Buffers, most: usize, each: impl FnMut(&[u8])) -> usize {
        if self.is_gone { 0 } else { buffers.receive(self.number, most, each) }
    }

    #[inline]
    pub(crate) fn send(&mut self, buffers: &mut Buffers, packet: &[u8]) -> bool {
        if self.is_gone || !(SHORTEST..=self.longest).contains(&packet.len()) {
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
        if self.staged.is_empty() || self.is_gone {
            return;
        }
        let (port, lens, all) = (self.number, self.lens.as_ptr(), self.staged.len());
        // SAFETY: the port is open; each buffer has a packet of its length, and all are ours.
        let count =
            unsafe { (buffers.library().0.send)(port, self.staged.as_mut_ptr().cast(), lens, all as u16) };
        let count = usize::from(count).min(all);
        // They are the device's now.
        self.staged.drain(..count);
        self.lens.copy_within(count..all, 0);
    }

    pub(crate) fn has_staged(&self) -> bool {
        !self.staged.is_empty()
    }

    /// Finds out whether the device was unplugged.
    pub(crate) fn look(&mut self, buffers: &Buffers) {
        // SAFETY: DPDK checks the number.
        self.is_gone |= unsafe { (buffers.library().0.is_removed)(self.number) } == 1;
        if self.is_gone {
            self.release(buffers);
        }
    }

    pub(crate) const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Releases packets that the device has not taken: they are lost.
    fn release(&mut self, buffers: &Buffers) {
        buffers.release(&mut self.staged);
        self.staged.clear();
    }

    /// Closes the device. Packets that it has not taken are lost.
    pub(crate) fn close(&mut self, buffers: &Buffers) {
        self.release(buffers);
        // SAFETY: the port is open, and is not used again.
        unsafe { (buffers.library().0.close)(self.number) };
    }
}

/// Finds a device, and describes it.
///
/// # Errors
/// There is no such device, or it does not both receive and send.
pub(crate) fn find(library: crate::library::Library, name: &str) -> Result<(u16, Device), Error> {
    let unknown = |source, log| Error::Unknown { device: name.to_owned(), log, source };
    let invalid = |_| unknown(std::io::ErrorKind::InvalidInput.into(), String::new());
    let text = std::ffi::CString::new(name).map_err(invalid)?;
    let text: &CStr = &text;
    let number = library.find(text).map_err(|e| unknown(e, library.log()))?;
    let device = library.describe(number).map_err(|e| unknown(e, library.log()))?;
    if device.rx_queues == 0 || device.tx_queues == 0 {
        let (receive, transmit) = (device.rx_queues, device.tx_queues);
        return Err(Error::NoQueue { device: name.to_owned(), receive, transmit });
    }
    Ok((number, device))
}
