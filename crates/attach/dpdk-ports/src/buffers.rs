//! Packets and buffers that this side owns.

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::devices::{Devices, OwnedPool};
use crate::interface::{BURST, Mbuf, Pool, RawPacket};
use crate::library::Library;

/// Buffers that are kept for the next packets that are sent: those of a burst for each of a few ports.
pub(crate) const KEPT: usize = 8 * BURST;
/// Bytes of the longest packet of several segments that is received whole.
const LONGEST: usize = 1 << 16;

/// A buffer that this side owns alone. It has no destructor: it is sent, kept or released.
// One pointer, and no more: copying what is behind it made a forwarded packet a quarter slower.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Buffer(NonNull<Mbuf>);

/// The pool of a thread's ports, and the buffers that received packets left for packets that are sent: a
/// forwarded packet takes no buffer from the pool, and returns none.
pub(crate) struct Buffers {
    library: Library,
    pool: NonNull<Pool>,
    /// Bytes of the longest packet in a buffer.
    room: usize,
    kept: Vec<Buffer>,
    /// Where packets of several segments are put together.
    whole: Box<[u8]>,
    _pool: Arc<OwnedPool>,
    /// Dropped last: closes the devices if no other thread uses them.
    _devices: Arc<Devices>,
}

impl Buffers {
    /// Takes the buffers of the calling thread's pool, for these devices.
    pub(crate) fn new(pool: Arc<OwnedPool>, devices: Arc<Devices>) -> Self {
        Self {
            library: pool.library(),
            pool: pool.pool(),
            room: pool.room(),
            kept: Vec::with_capacity(KEPT),
            whole: vec![0; LONGEST].into_boxed_slice(),
            _pool: pool,
            _devices: devices,
        }
    }

    pub(crate) const fn library(&self) -> Library {
        self.library
    }

    /// Receives up to `most` packets of a queue of an open port, and keeps their buffers. Returns their
    /// number.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        port: u16,
        queue: u16,
        most: usize,
        mut each: impl FnMut(&[u8]),
    ) -> usize {
        let mut buffers = [const { MaybeUninit::<Buffer>::uninit() }; BURST];
        let mut packets = [const { MaybeUninit::<RawPacket>::uninit() }; BURST];
        let (to, described) = (buffers.as_mut_ptr().cast(), packets.as_mut_ptr().cast());
        // SAFETY: the port is open, the queue is this thread's, and there are so many places.
        let count = unsafe {
            (self.library.0.receive)(port, queue, self.pool.as_ptr(), to, described, most.min(BURST) as u16)
        };
        let count = usize::from(count).min(BURST);
        for (buffer, packet) in buffers.into_iter().zip(&packets).take(count) {
            // SAFETY: the library has filled in as many of both as it received.
            let (buffer, packet) = unsafe { (buffer.assume_init(), packet.assume_init_ref()) };
            if packet.bytes.is_null() {
                self.put_together(&buffer, &mut each);
            } else {
                // SAFETY: a packet of one segment has so many bytes, and is ours until its buffer is used.
                each(unsafe { std::slice::from_raw_parts(packet.bytes, packet.len as usize) });
            }
            if packet.is_reusable == 1 { self.keep(buffer) } else { self.release(&mut [buffer]) }
        }
        count
    }

    /// Passes a packet of several segments on, in one piece. A longer one than anything can forward is cut,
    /// and is still too long to forward.
    #[cold]
    fn put_together(&mut self, packet: &Buffer, each: &mut impl FnMut(&[u8])) {
        // SAFETY: the packet is ours, and there is so much room.
        let len =
            unsafe { (self.library.0.copy)(packet.0.as_ptr(), self.whole.as_mut_ptr(), LONGEST as u32) };
        each(&self.whole[..(len as usize).min(LONGEST)]);
    }

    /// Puts a packet in a buffer; `None` if there is no buffer, or if the packet is too long for one.
    #[inline]
    pub(crate) fn fill(&mut self, packet: &[u8]) -> Option<Buffer> {
        if packet.len() > self.room {
            return None;
        }
        let buffer = match self.kept.pop() {
            Some(buffer) => buffer,
            None => self.allocate()?,
        };
        // SAFETY: a buffer of the pool, owned alone, has so much room there, and no safe code has a reference
        // to it.
        unsafe {
            let start = buffer.0.as_ptr().cast::<u8>().add(self.library.0.start as usize);
            std::ptr::copy_nonoverlapping(packet.as_ptr(), start, packet.len());
        }
        Some(buffer)
    }

    /// Takes buffers from the pool, for a burst.
    #[cold]
    fn allocate(&mut self) -> Option<Buffer> {
        let spare = self.kept.spare_capacity_mut();
        let most = spare.len().min(BURST);
        // SAFETY: a pool of the library, and so many places.
        let count =
            unsafe { (self.library.0.allocate)(self.pool.as_ptr(), spare.as_mut_ptr().cast(), most as u16) };
        // SAFETY: the library has filled in so many more.
        unsafe { self.kept.set_len(self.kept.len() + usize::from(count).min(most)) };
        self.kept.pop()
    }

    /// Keeps a buffer for a packet that is sent, if there is a place.
    #[inline]
    fn keep(&mut self, buffer: Buffer) {
        if self.kept.len() < KEPT {
            self.kept.push(buffer);
        } else {
            self.release(&mut [buffer]);
        }
    }

    /// Releases these buffers, which are not used again.
    #[cold]
    pub(crate) fn release(&self, buffers: &mut [Buffer]) {
        // SAFETY: they are ours.
        unsafe { (self.library.0.release)(buffers.as_mut_ptr().cast(), buffers.len() as u16) };
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        let mut kept = std::mem::take(&mut self.kept);
        self.release(&mut kept);
    }
}
