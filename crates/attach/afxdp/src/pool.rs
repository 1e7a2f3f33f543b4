//! The owner of each frame.
//!
//! Every frame of a [`Umem`] has exactly one owner at any time:
//!
//! ```text
//!              take                     offer                receive
//!      free ──────────► held (Frame) ───────────► fill(port) ───────► held (Frame)
//!        ▲                │  ▲                                          │
//!        │    drop        │  └──────────────────────────────────────────┤
//!        ├────────────────┘                     send                    │
//!        └───────────────────────── transmit(port) ◄────────────────────┘
//!             reap (completion)
//! ```
//!
//! A frame that this process owns is a [`Frame`]. It can be moved and not copied, and dropping it frees
//! it, so that no early return loses one. The ledger has one `u16` for each frame and checks every
//! transition, in release builds too: a completion or receive descriptor with a frame that the kernel
//! does not own is refused and counted, and the frame keeps its owner. The check costs about a
//! nanosecond, and prevents a repeated completion from giving a frame two owners.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use crate::umem::Umem;
use crate::{Error, Result};

const FREE: u16 = 0;
const HELD: u16 = 1;
const FIRST_PORT: u16 = 2;
/// The number of sockets of a pool, which have two ledger values each.
const PORTS: usize = ((u16::MAX - FIRST_PORT) / 2) as usize;

/// The number of a bound socket in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketId(u16);

impl SocketId {
    const fn fill(self) -> u16 {
        FIRST_PORT + 2 * self.0
    }

    const fn transmit(self) -> u16 {
        FIRST_PORT + 2 * self.0 + 1
    }
}

/// The number of frames of each owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// On the free list.
    pub free: u32,
    /// Live [`Frame`]s.
    pub held: u32,
    /// In a fill ring, with the kernel for receiving, or in a receive ring.
    pub receive: u32,
    /// In a transmit ring, with the kernel for sending, or in a completion ring.
    pub transmit: u32,
}

impl FrameCounts {
    /// Returns the number of all frames.
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.free + self.held + self.receive + self.transmit
    }
}

/// The frames of a [`Umem`]: free list and ledger. Stays on one thread.
pub struct FramePool {
    umem: Arc<Umem>,
    ledger: Box<[Cell<u16>]>,
    /// A stack, since the frame that was used last is most likely in the cache.
    free: Box<[Cell<u32>]>,
    free_len: Cell<usize>,
    ports: Cell<Vec<bool>>,
    refused: Cell<u64>,
}

impl fmt::Debug for FramePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FramePool").field("counts", &self.counts()).field("refused", &self.refused()).finish()
    }
}

impl FramePool {
    /// Creates a pool in which all frames are free. Only one pool may exist for a UMEM.
    #[must_use]
    pub fn new(umem: Arc<Umem>) -> Self {
        let frames = umem.config().frames;
        Self {
            ledger: (0..frames).map(|_| Cell::new(FREE)).collect(),
            free: (0..frames).rev().map(Cell::new).collect(),
            free_len: Cell::new(frames as usize),
            ports: Cell::default(),
            refused: Cell::new(0),
            umem,
        }
    }

    /// Returns the UMEM.
    #[must_use]
    pub const fn umem(&self) -> &Arc<Umem> {
        &self.umem
    }

    /// Returns the number of free frames.
    #[must_use]
    pub const fn available(&self) -> usize {
        self.free_len.get()
    }

    /// Takes a free frame with an empty packet, or `None` if there is none.
    #[must_use]
    pub fn take(&self) -> Option<Frame<'_>> {
        let len = self.free_len.get().checked_sub(1)?;
        self.free_len.set(len);
        let index = self.free[len].get();
        self.transfer(index, FREE, HELD).then(|| Frame::new(self, index, 0, 0))
    }

    /// Counts the frames of each owner over the whole ledger.
    #[must_use]
    pub fn counts(&self) -> FrameCounts {
        let mut c = FrameCounts::default();
        for owner in &self.ledger {
            match owner.get() {
                FREE => c.free += 1,
                HELD => c.held += 1,
                n if (n - FIRST_PORT).is_multiple_of(2) => c.receive += 1,
                _ => c.transmit += 1,
            }
        }
        c
    }

    /// Returns the number of transitions that were refused because the frame was not with the owner that
    /// released it: the kernel's protocol violations.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// Assigns a number to a socket.
    ///
    /// # Errors
    /// [`Error::Config`] if there are too many.
    pub fn open_port(&self) -> Result<SocketId> {
        let mut used = self.ports.take();
        let id = used.iter().position(|u| !u).unwrap_or(used.len());
        if id < PORTS {
            used.resize(used.len().max(id + 1), false);
            used[id] = true;
        }
        self.ports.set(used);
        let too_many = Error::Config {
            what: "number of sockets",
            value: id as u64,
            rule: "one pool serves at most 32766",
        };
        u16::try_from(id).ok().filter(|_| id < PORTS).map(SocketId).ok_or(too_many)
    }

    /// Takes back all frames of a socket and frees its number. The socket must be closed already, since
    /// the kernel may write to the frames until then. Returns the number of frames.
    pub fn close_port(&self, port: SocketId) -> u32 {
        let mut taken = 0;
        for (index, owner) in (0u32..).zip(&self.ledger) {
            if owner.get() == port.fill() || owner.get() == port.transmit() {
                owner.set(HELD);
                self.put_back(index);
                taken += 1;
            }
        }
        let mut used = self.ports.take();
        if let Some(u) = used.get_mut(usize::from(port.0)) {
            *u = false;
        }
        self.ports.set(used);
        taken
    }

    /// Moves a frame from one owner to another, or counts a violation if it has another owner.
    fn transfer(&self, index: u32, from: u16, to: u16) -> bool {
        let Some(owner) = self.ledger.get(index as usize).filter(|o| o.get() == from) else {
            self.refused.set(self.refused.get() + 1);
            return false;
        };
        owner.set(to);
        true
    }

    fn put_back(&self, index: u32) {
        if self.transfer(index, HELD, FREE) {
            let len = self.free_len.get();
            self.free[len].set(index);
            self.free_len.set(len + 1);
        }
    }

    fn locate(&self, address: u64) -> (u32, u32) {
        let size = self.umem.config().frame_size;
        let index = u32::try_from(address / u64::from(size)).unwrap_or(u32::MAX);
        (index, (address % u64::from(size)) as u32)
    }

    /// Releases a free frame to a fill ring. Returns its address.
    pub fn offer(&self, port: SocketId) -> Option<u64> {
        self.take().map(|f| f.release_to(port.fill()))
    }

    /// Has the processor fetch the first bytes of a packet, which another core may have written. The address
    /// may be invalid.
    #[inline]
    pub fn prefetch(&self, address: u64) {
        self.umem.memory().prefetch(address);
    }

    /// Takes the frame of a receive descriptor. `None`, counted as a violation, if `port` did not have
    /// it or the packet exceeds the frame.
    pub fn receive(&self, port: SocketId, address: u64, len: u32) -> Option<Frame<'_>> {
        let (index, start) = self.locate(address);
        if !self.transfer(index, port.fill(), HELD) {
            return None;
        }
        let frame = Frame::new(self, index, start, 0);
        if start.checked_add(len).is_none_or(|end| end > self.umem.config().frame_size) {
            self.refused.set(self.refused.get() + 1);
            return None;
        }
        Some(frame.resized(len))
    }

    /// Releases a frame to a transmit ring. Returns the address and length of the packet.
    pub fn send(&self, port: SocketId, frame: Frame<'_>) -> (u64, u32) {
        let len = frame.len;
        (frame.release_to(port.transmit()), len)
    }

    /// Frees a completed frame. Returns false, counted as a violation, if `port` did not have it.
    pub fn reap(&self, port: SocketId, address: u64) -> bool {
        let (index, _) = self.locate(address);
        let ours = self.transfer(index, port.transmit(), HELD);
        if ours {
            self.put_back(index);
        }
        ours
    }
}

/// A frame that this process owns, and the packet in it. Dropping it frees it.
pub struct Frame<'p> {
    pool: &'p FramePool,
    index: u32,
    start: u32,
    len: u32,
}

impl<'p> Frame<'p> {
    const fn new(pool: &'p FramePool, index: u32, start: u32, len: u32) -> Self {
        Self { pool, index, start, len }
    }

    const fn resized(mut self, len: u32) -> Self {
        self.len = len;
        self
    }

    /// Releases the frame to `owner`; returns the packet's address.
    fn release_to(self, owner: u16) -> u64 {
        let this = std::mem::ManuallyDrop::new(self);
        let given = this.pool.transfer(this.index, HELD, owner);
        debug_assert!(given, "a live Frame is held");
        u64::from(this.index) * u64::from(this.capacity()) + u64::from(this.start)
    }

    /// Returns the bytes of a frame: packet, headroom and tailroom.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.pool.umem.config().frame_size
    }

    /// Returns the bytes of the packet.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether the packet has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes in front of the packet.
    #[must_use]
    pub const fn headroom(&self) -> usize {
        self.start as usize
    }

    /// Sets the packet's range in the frame. Returns false, and changes nothing, if it exceeds the
    /// frame.
    #[must_use]
    pub fn set_packet(&mut self, start: usize, len: usize) -> bool {
        let fits = start.checked_add(len).is_some_and(|end| end <= self.capacity() as usize);
        if fits {
            (self.start, self.len) = (start as u32, len as u32);
        }
        fits
    }

    /// Returns the packet.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let at = self.base() + self.start as usize;
        // SAFETY: within the memory (`set_packet` and `receive` check the frame's bounds, `index` is in
        // the ledger). While this `Frame` lives it is the only owner: its frame is in no ring, so
        // neither the kernel nor another `Frame` accesses these bytes.
        unsafe {
            std::slice::from_raw_parts(self.pool.umem.memory().base().as_ptr().add(at), self.len as usize)
        }
    }

    /// Returns the packet for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let (start, len) = (self.start as usize, self.len as usize);
        &mut self.buffer_mut()[start..start + len]
    }

    /// Returns the whole frame: headroom, packet and tailroom.
    pub fn buffer_mut(&mut self) -> &mut [u8] {
        let (at, size) = (self.base(), self.capacity() as usize);
        // SAFETY: as in `bytes`, and `&mut self` excludes other borrows of the frame.
        unsafe { std::slice::from_raw_parts_mut(self.pool.umem.memory().base().as_ptr().add(at), size) }
    }

    fn base(&self) -> usize {
        self.index as usize * self.capacity() as usize
    }
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        self.pool.put_back(self.index);
    }
}

impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("index", &self.index)
            .field("start", &self.start)
            .field("len", &self.len)
            .finish()
    }
}
