//! Who owns which frame.
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
//! What we own is a [`Frame`]: it can be moved and not copied, and a dropped one is free again, so none can be lost
//! by an early return. What the kernel owns is in the ledger, one `u16` a frame, which is checked at every
//! transition in release builds too: a completion or a receive descriptor that names a frame which is not where the
//! kernel says is refused and counted, and the frame stays with its owner. That costs about a nanosecond, and it is
//! what keeps one completion that comes twice from giving one frame two owners.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use crate::umem::Umem;
use crate::{Error, Result};

const FREE: u16 = 0;
const HELD: u16 = 1;
const FIRST_PORT: u16 = 2;
/// Ports that a pool can tell apart: two ledger values each.
const PORTS: usize = ((u16::MAX - FIRST_PORT) / 2) as usize;

/// A bound socket, as the ledger knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortId(u16);

impl PortId {
    const fn fill(self) -> u16 {
        FIRST_PORT + 2 * self.0
    }

    const fn transmit(self) -> u16 {
        FIRST_PORT + 2 * self.0 + 1
    }
}

/// How many frames each owner has; the sum is all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// On the free list.
    pub free: u32,
    /// Live [`Frame`]s: in our hands.
    pub held: u32,
    /// In a fill ring, with the kernel, or in a receive ring.
    pub receive: u32,
    /// In a transmit ring, with the kernel, or in a completion ring.
    pub transmit: u32,
}

impl Census {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.free + self.held + self.receive + self.transmit
    }
}

/// The frames of a [`Umem`]: free list and ledger. Stays on one thread.
pub struct FramePool {
    umem: Arc<Umem>,
    ledger: Box<[Cell<u16>]>,
    /// A stack: the frame that was used last is the one most likely in the cache.
    free: Box<[Cell<u32>]>,
    free_len: Cell<usize>,
    ports: Cell<Vec<bool>>,
    refused: Cell<u64>,
}

impl fmt::Debug for FramePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FramePool").field("census", &self.census()).field("refused", &self.refused()).finish()
    }
}

impl FramePool {
    /// All frames, free. Only one pool may exist for the same memory.
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

    /// The packet memory.
    #[must_use]
    pub const fn umem(&self) -> &Arc<Umem> {
        &self.umem
    }

    /// Free frames.
    #[must_use]
    pub const fn available(&self) -> usize {
        self.free_len.get()
    }

    /// A free frame with no bytes in it, or `None`.
    #[must_use]
    pub fn take(&self) -> Option<Frame<'_>> {
        let len = self.free_len.get().checked_sub(1)?;
        self.free_len.set(len);
        let index = self.free[len].get();
        self.pass(index, FREE, HELD).then(|| Frame::new(self, index, 0, 0))
    }

    /// How many frames each owner has, counted afresh over the whole ledger.
    #[must_use]
    pub fn census(&self) -> Census {
        let mut c = Census::default();
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

    /// Transitions that were refused because the frame was not with the owner that gave it away: the other side
    /// broke the protocol that often.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// A number for one more socket.
    ///
    /// # Errors
    /// [`Error::Config`] if there are too many.
    pub fn open_port(&self) -> Result<PortId> {
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
            rule: "one pool serves 32766 at most",
        };
        u16::try_from(id).ok().filter(|_| id < PORTS).map(PortId).ok_or(too_many)
    }

    /// Takes back all frames that are with a socket, which must be closed already: until then the kernel may still
    /// write to them. Returns how many. The number is free for another socket.
    pub fn close_port(&self, port: PortId) -> u32 {
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

    /// Moves a frame from one owner to another, or counts that it was not there.
    fn pass(&self, index: u32, from: u16, to: u16) -> bool {
        let Some(owner) = self.ledger.get(index as usize).filter(|o| o.get() == from) else {
            self.refused.set(self.refused.get() + 1);
            return false;
        };
        owner.set(to);
        true
    }

    fn put_back(&self, index: u32) {
        if self.pass(index, HELD, FREE) {
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

    /// A free frame's address, for a fill ring. It is with `port` from now on.
    pub fn offer(&self, port: PortId) -> Option<u64> {
        self.take().map(|f| f.hand_over(port.fill()))
    }

    /// The frame that a receive ring announces, or `None` (counted) if `port` did not have it or the packet does
    /// not lie within it.
    pub fn receive(&self, port: PortId, address: u64, len: u32) -> Option<Frame<'_>> {
        let (index, start) = self.locate(address);
        if !self.pass(index, port.fill(), HELD) {
            return None;
        }
        let frame = Frame::new(self, index, start, 0);
        if start.checked_add(len).is_none_or(|end| end > self.umem.config().frame_size) {
            self.refused.set(self.refused.get() + 1);
            return None;
        }
        Some(frame.resized(len))
    }

    /// Gives a frame to `port` to be sent and says where it is.
    pub fn send(&self, port: PortId, frame: Frame<'_>) -> (u64, u32) {
        let len = frame.len;
        (frame.hand_over(port.transmit()), len)
    }

    /// Takes a sent frame back: it is free. `false` (counted) if `port` did not have it.
    pub fn reap(&self, port: PortId, address: u64) -> bool {
        let (index, _) = self.locate(address);
        let ours = self.pass(index, port.transmit(), HELD);
        if ours {
            self.put_back(index);
        }
        ours
    }
}

/// A frame that we own, and the packet in it. Dropping it frees it.
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

    /// Leaves our hands for `owner`; returns the packet's address.
    fn hand_over(self, owner: u16) -> u64 {
        let this = std::mem::ManuallyDrop::new(self);
        let given = this.pool.pass(this.index, HELD, owner);
        debug_assert!(given, "a live Frame is held");
        u64::from(this.index) * u64::from(this.capacity()) + u64::from(this.start)
    }

    /// Bytes of a frame: packet, head room and tail room.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.pool.umem.config().frame_size
    }

    /// Bytes of the packet.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is no packet in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes in front of the packet.
    #[must_use]
    pub const fn headroom(&self) -> usize {
        self.start as usize
    }

    /// Makes the packet these bytes of the frame. `false`, and nothing changes, if they are not within it.
    #[must_use]
    pub fn set_packet(&mut self, start: usize, len: usize) -> bool {
        let fits = start.checked_add(len).is_some_and(|end| end <= self.capacity() as usize);
        if fits {
            (self.start, self.len) = (start as u32, len as u32);
        }
        fits
    }

    /// The packet.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let at = self.base() + self.start as usize;
        // SAFETY: within the memory (`set_packet` and `receive` check the frame's bounds, `index` is in the
        // ledger). While this `Frame` lives it is the one owner: its frame is in no ring, so neither the kernel
        // nor another `Frame` reaches these bytes.
        unsafe {
            std::slice::from_raw_parts(self.pool.umem.memory().base().as_ptr().add(at), self.len as usize)
        }
    }

    /// The packet, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let (start, len) = (self.start as usize, self.len as usize);
        &mut self.buffer_mut()[start..start + len]
    }

    /// The whole frame, packet and rooms.
    pub fn buffer_mut(&mut self) -> &mut [u8] {
        let (at, size) = (self.base(), self.capacity() as usize);
        // SAFETY: as in `bytes`, and `&mut self` keeps out other borrows of the same frame.
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
