//! One end of a single-producer, single-consumer ring in AF_XDP's layout.
//!
//! A ring has two free-running `u32` indexes, a word of flags and a power of two of entries, at offsets
//! that its creator defines ([`RingOffsets`], from `XDP_MMAP_OFFSETS` if the creator is the kernel).
//! Entry `i` is in slot `i % entries`.
//!
//! ```text
//!   producer end                                 consumer end
//!   load consumer  (Acquire)  free entries   load producer (Acquire)   filled entries
//!   write entries  (Relaxed)                     read entries  (Relaxed)
//!   store producer (Release)  publish            store consumer (Release)  give slots back
//! ```
//!
//! The producer's Release and the consumer's Acquire order the entry's bytes (and those of its frame)
//! before the index that publishes it. The consumer's Release and the producer's Acquire order the
//! reading of an entry before its slot is overwritten. Each end caches both indexes and reads the
//! other's only when the cached one shows a full or empty ring, so that the cache line moves once for a
//! batch.
//!
//! Entries are accessed as atomic words, so a peer that writes at the wrong time causes wrong values,
//! not undefined behaviour. If the peer's index is impossible (more entries than the ring has), the end
//! is [`Producer::broken`] or [`Consumer::broken`], and the ring reads as full or empty from then on.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::memory::MmapRegion;
use crate::{Error, Result};

/// The offsets of a ring's parts, in bytes from the start of its mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOffsets {
    /// `u32` index of the producer.
    pub producer: u64,
    /// `u32` index of the consumer.
    pub consumer: u64,
    /// `u32` of flags; bit 0 is [`NEED_WAKEUP`].
    pub flags: u64,
    /// First entry.
    pub entries: u64,
}

impl RingOffsets {
    /// Returns the bytes to map for a ring of `count` entries.
    #[must_use]
    pub const fn bytes<T: Entry>(&self, count: u32) -> usize {
        (self.entries as usize).saturating_add((count as usize).saturating_mul(T::SIZE))
    }
}

/// Flag: the kernel waits for a system call before it continues with this ring.
pub const NEED_WAKEUP: u32 = libc::XDP_RING_NEED_WAKEUP;

/// An entry of a receive or transmit ring: `struct xdp_desc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Offset of the packet's first byte in the UMEM.
    pub address: u64,
    /// Bytes of the packet.
    pub len: u32,
    /// Options such as `XDP_PKT_CONTD`.
    pub options: u32,
}

/// The type of an entry: whole `u64`s.
pub trait Entry: Copy + sealed::Sealed {
    /// Bytes of an entry.
    const SIZE: usize;
    #[doc(hidden)]
    fn read(map: &MmapRegion, at: usize) -> Self;
    #[doc(hidden)]
    fn write(self, map: &MmapRegion, at: usize);
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u64 {}
    impl Sealed for super::Descriptor {}
}

impl Entry for u64 {
    const SIZE: usize = 8;

    fn read(map: &MmapRegion, at: usize) -> Self {
        map.u64(at).load(Relaxed)
    }

    fn write(self, map: &MmapRegion, at: usize) {
        map.u64(at).store(self, Relaxed);
    }
}

impl Entry for Descriptor {
    const SIZE: usize = 16;

    fn read(map: &MmapRegion, at: usize) -> Self {
        Self {
            address: map.u64(at).load(Relaxed),
            len: map.u32(at + 8).load(Relaxed),
            options: map.u32(at + 12).load(Relaxed),
        }
    }

    fn write(self, map: &MmapRegion, at: usize) {
        map.u64(at).store(self.address, Relaxed);
        map.u32(at + 8).store(self.len, Relaxed);
        map.u32(at + 12).store(self.options, Relaxed);
    }
}

/// The state that both ends have.
#[derive(Debug)]
struct Ring<T> {
    map: Arc<MmapRegion>,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    count: u32,
    broken: bool,
    entry: PhantomData<fn() -> T>,
}

impl<T: Entry> Ring<T> {
    fn new(map: Arc<MmapRegion>, at: RingOffsets, count: u32) -> Result<Self> {
        if !count.is_power_of_two() || count > 1 << 30 {
            let (what, value) = ("number of ring entries", u64::from(count));
            return Err(Error::Config { what, value, rule: "it must be a power of two up to 2^30" });
        }
        let locate = |what, offset: u64, len: usize, align| {
            let found = usize::try_from(offset).ok().filter(|&o| map.holds(o, len, align));
            found.ok_or(Error::RingBounds { what, offset, entries: count, bytes: map.len() })
        };
        let producer = locate("producer index", at.producer, 4, 4)?;
        let consumer = locate("consumer index", at.consumer, 4, 4)?;
        let flags = locate("flags", at.flags, 4, 4)?;
        let entries = locate("entries", at.entries, T::SIZE.saturating_mul(count as usize), 8)?;
        Ok(Self { map, producer, consumer, flags, entries, count, broken: false, entry: PhantomData })
    }

    fn slot(&self, index: u32) -> usize {
        self.entries + (index & (self.count - 1)) as usize * T::SIZE
    }

    /// Returns the distance from `consumer` to `producer`, or `None`, from then on, if it exceeds the
    /// ring.
    fn filled(&mut self, producer: u32, consumer: u32) -> Option<u32> {
        let n = producer.wrapping_sub(consumer);
        self.broken |= n > self.count;
        (!self.broken).then_some(n)
    }
}

/// The producer end of a ring.
#[derive(Debug)]
pub struct Producer<T> {
    ring: Ring<T>,
    /// Index after the last entry written, published or not.
    head: u32,
    /// The producer's index, as last read.
    tail: u32,
}

impl<T: Entry> Producer<T> {
    /// Creates the producer end of the ring of `count` entries in `map`, at its current indexes.
    ///
    /// # Errors
    /// [`Error::RingBounds`] or [`Error::Config`] if the offsets or the count are invalid.
    pub fn new(map: Arc<MmapRegion>, at: RingOffsets, count: u32) -> Result<Self> {
        let ring = Ring::new(map, at, count)?;
        let (head, tail) =
            (ring.map.u32(ring.producer).load(Relaxed), ring.map.u32(ring.consumer).load(Acquire));
        Ok(Self { ring, head, tail })
    }

    /// Returns the number of free entries, exact if there are fewer than `want`.
    pub fn room(&mut self, want: u32) -> u32 {
        let room = |ring: &mut Ring<T>, head, tail| ring.filled(head, tail).map_or(0, |n| ring.count - n);
        let cached = room(&mut self.ring, self.head, self.tail);
        if cached >= want {
            return cached;
        }
        self.tail = self.ring.map.u32(self.ring.consumer).load(Acquire);
        room(&mut self.ring, self.head, self.tail)
    }

    /// Writes an entry, which the consumer sees after [`Producer::publish`]. Returns false if the ring
    /// is full.
    #[must_use]
    pub fn push(&mut self, entry: T) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        entry.write(&self.ring.map, self.ring.slot(self.head));
        self.head = self.head.wrapping_add(1);
        true
    }

    /// Publishes the pushed entries.
    pub fn publish(&mut self) {
        self.ring.map.u32(self.ring.producer).store(self.head, Release);
    }

    /// Returns the number of entries that the consumer has not released.
    pub fn pending(&mut self) -> u32 {
        self.tail = self.ring.map.u32(self.ring.consumer).load(Acquire);
        self.ring.filled(self.head, self.tail).unwrap_or(self.ring.count)
    }

    /// Reads the consumer's index, and returns the entries that it has not released, the oldest first. There
    /// are none if the ring is broken.
    pub fn unreleased(&mut self) -> impl Iterator<Item = T> {
        self.tail = self.ring.map.u32(self.ring.consumer).load(Acquire);
        let count = self.ring.filled(self.head, self.tail).unwrap_or(0);
        let (ring, tail) = (&self.ring, self.tail);
        (0..count).map(move |n| T::read(&ring.map, ring.slot(tail.wrapping_add(n))))
    }

    /// Returns whether the consumer requests a system call.
    #[must_use]
    pub fn need_wakeup(&self) -> bool {
        self.ring.map.u32(self.ring.flags).load(Relaxed) & NEED_WAKEUP != 0
    }

    /// Returns whether the consumer wrote an impossible index.
    #[must_use]
    pub const fn broken(&self) -> bool {
        self.ring.broken
    }

    /// Returns the entries of the ring.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.ring.count
    }

    /// Returns the index of the next entry to push.
    #[must_use]
    pub const fn position(&self) -> u32 {
        self.head
    }

    /// Returns a function that reads the consumer's index, for any thread.
    pub fn reader(&self) -> impl Fn() -> u32 + Send + Sync + use<T> {
        let (map, at) = (Arc::clone(&self.ring.map), self.ring.consumer);
        move || map.u32(at).load(Acquire)
    }
}

/// The consumer end of a ring.
#[derive(Debug)]
pub struct Consumer<T> {
    ring: Ring<T>,
    /// The producer's index, as last read.
    head: u32,
    /// Index after the last entry read, released or not.
    tail: u32,
    /// Index after the last entry released.
    released: u32,
}

impl<T: Entry> Consumer<T> {
    /// Creates the consumer end of the ring of `count` entries in `map`, at its current indexes.
    ///
    /// # Errors
    /// [`Error::RingBounds`] or [`Error::Config`] if the offsets or the count are invalid.
    pub fn new(map: Arc<MmapRegion>, at: RingOffsets, count: u32) -> Result<Self> {
        let ring = Ring::new(map, at, count)?;
        let (head, tail) =
            (ring.map.u32(ring.producer).load(Acquire), ring.map.u32(ring.consumer).load(Relaxed));
        Ok(Self { ring, head, tail, released: tail })
    }

    /// Returns the number of filled entries; reads the producer's index if the cached one shows none.
    pub fn available(&mut self) -> u32 {
        match self.ring.filled(self.head, self.tail) {
            Some(0) => {
                self.head = self.ring.map.u32(self.ring.producer).load(Acquire);
                self.ring.filled(self.head, self.tail).unwrap_or(0)
            }
            n => n.unwrap_or(0),
        }
    }

    /// Reads an entry, whose slot is released by [`Consumer::release`].
    #[must_use]
    pub fn pop(&mut self) -> Option<T> {
        if self.available() == 0 {
            return None;
        }
        let entry = T::read(&self.ring.map, self.ring.slot(self.tail));
        self.tail = self.tail.wrapping_add(1);
        Some(entry)
    }

    /// Reads the entry that the n-th [`Consumer::pop`] after the next one returns. `None` if the producer had
    /// not filled it when its index was last read.
    #[must_use]
    pub fn ahead(&mut self, n: u32) -> Option<T> {
        let filled = self.ring.filled(self.head, self.tail)?;
        (n < filled).then(|| T::read(&self.ring.map, self.ring.slot(self.tail.wrapping_add(n))))
    }

    /// Releases the slots of all popped entries.
    pub fn release(&mut self) {
        self.released = self.tail;
        self.ring.map.u32(self.ring.consumer).store(self.tail, Release);
    }

    /// Releases the slots of popped entries but the last `kept`.
    pub fn release_but(&mut self, kept: u32) {
        let give = self.unreleased().saturating_sub(kept);
        if give > 0 {
            self.released = self.released.wrapping_add(give);
            self.ring.map.u32(self.ring.consumer).store(self.released, Release);
        }
    }

    /// Returns the number of entries popped and not released.
    #[must_use]
    pub const fn unreleased(&self) -> u32 {
        self.tail.wrapping_sub(self.released)
    }

    /// Entries of the ring.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.ring.count
    }

    /// Sets or clears the flag by which this end requests a system call.
    pub fn set_need_wakeup(&self, needed: bool) {
        let flags = self.ring.map.u32(self.ring.flags);
        if needed {
            flags.fetch_or(NEED_WAKEUP, Relaxed);
        } else {
            flags.fetch_and(!NEED_WAKEUP, Relaxed);
        }
    }

    /// Reads the producer's index and returns the number of filled entries.
    pub fn pending(&mut self) -> u32 {
        self.head = self.ring.map.u32(self.ring.producer).load(Acquire);
        self.ring.filled(self.head, self.tail).unwrap_or(0)
    }

    /// Returns whether the producer requests a system call.
    #[must_use]
    pub fn need_wakeup(&self) -> bool {
        self.ring.map.u32(self.ring.flags).load(Relaxed) & NEED_WAKEUP != 0
    }

    /// Returns whether the producer wrote an impossible index.
    #[must_use]
    pub const fn broken(&self) -> bool {
        self.ring.broken
    }
}
