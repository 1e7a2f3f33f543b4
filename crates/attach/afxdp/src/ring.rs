//! One end of a single-producer, single-consumer ring as AF_XDP lays it out.
//!
//! A ring is two free-running `u32` indexes, a word of flags and a power of two of entries, at offsets that its
//! maker tells ([`RingOffsets`], from `XDP_MMAP_OFFSETS` where the maker is the kernel). The entry `i` is in slot
//! `i % entries`.
//!
//! ```text
//!   producer end                                 consumer end
//!   load consumer  (Acquire)  how much is free   load producer (Acquire)   how much is there
//!   write entries  (Relaxed)                     read entries  (Relaxed)
//!   store producer (Release)  publish            store consumer (Release)  give slots back
//! ```
//!
//! The producer's Release and the consumer's Acquire order the entry's bytes (and the frame they name) before the
//! index that announces it; the consumer's Release and the producer's Acquire order the reading of an entry before
//! its slot is written again. Each end keeps copies of both indexes and reads the other's only when its copy says
//! full or empty, so that the cache line moves once a batch and not once an entry.
//!
//! Entries are reached as atomic words: a peer that writes at the wrong time makes wrong values, never undefined
//! behaviour. A peer whose index is impossible (more in the ring than entries) is [`Producer::broken`] or
//! [`Consumer::broken`], and the ring reads as full or empty from then on.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::memory::Mapping;
use crate::{Error, Result};

/// Where the parts of a ring are, in bytes from the start of its mapping.
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
    /// Bytes of the mapping of a ring of `count` entries.
    #[must_use]
    pub const fn bytes<T: Entry>(&self, count: u32) -> usize {
        (self.entries as usize).saturating_add((count as usize).saturating_mul(T::SIZE))
    }
}

/// Flag: the kernel waits for a system call before it goes on with this ring.
pub const NEED_WAKEUP: u32 = libc::XDP_RING_NEED_WAKEUP;

/// An entry of a receive or transmit ring: `struct xdp_desc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// First byte of the packet, in bytes from the start of the packet memory.
    pub address: u64,
    /// Bytes of the packet.
    pub len: u32,
    /// `XDP_PKT_CONTD` and others.
    pub options: u32,
}

/// What can be an entry: a few whole double words.
pub trait Entry: Copy + sealed::Sealed {
    /// Bytes of an entry.
    const SIZE: usize;
    #[doc(hidden)]
    fn read(map: &Mapping, at: usize) -> Self;
    #[doc(hidden)]
    fn write(self, map: &Mapping, at: usize);
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u64 {}
    impl Sealed for super::Descriptor {}
}

impl Entry for u64 {
    const SIZE: usize = 8;

    fn read(map: &Mapping, at: usize) -> Self {
        map.u64(at).load(Relaxed)
    }

    fn write(self, map: &Mapping, at: usize) {
        map.u64(at).store(self, Relaxed);
    }
}

impl Entry for Descriptor {
    const SIZE: usize = 16;

    fn read(map: &Mapping, at: usize) -> Self {
        Self {
            address: map.u64(at).load(Relaxed),
            len: map.u32(at + 8).load(Relaxed),
            options: map.u32(at + 12).load(Relaxed),
        }
    }

    fn write(self, map: &Mapping, at: usize) {
        map.u64(at).store(self.address, Relaxed);
        map.u32(at + 8).store(self.len, Relaxed);
        map.u32(at + 12).store(self.options, Relaxed);
    }
}

/// What both ends share.
#[derive(Debug)]
struct Ring<T> {
    map: Arc<Mapping>,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    count: u32,
    broken: bool,
    entry: PhantomData<fn() -> T>,
}

impl<T: Entry> Ring<T> {
    fn new(map: Arc<Mapping>, at: RingOffsets, count: u32) -> Result<Self> {
        if !count.is_power_of_two() || count > 1 << 30 {
            let (what, value) = ("number of ring entries", u64::from(count));
            return Err(Error::Config { what, value, rule: "it must be a power of two up to 2^30" });
        }
        let place = |what, offset: u64, len: usize, align| {
            let found = usize::try_from(offset).ok().filter(|&o| map.holds(o, len, align));
            found.ok_or(Error::RingBounds { what, offset, entries: count, bytes: map.len() })
        };
        let producer = place("producer index", at.producer, 4, 4)?;
        let consumer = place("consumer index", at.consumer, 4, 4)?;
        let flags = place("flags", at.flags, 4, 4)?;
        let entries = place("entries", at.entries, T::SIZE.saturating_mul(count as usize), 8)?;
        Ok(Self { map, producer, consumer, flags, entries, count, broken: false, entry: PhantomData })
    }

    fn slot(&self, index: u32) -> usize {
        self.entries + (index & (self.count - 1)) as usize * T::SIZE
    }

    /// The distance from `consumer` to `producer`, or `None` (for ever) if it is more than the ring holds.
    fn filled(&mut self, producer: u32, consumer: u32) -> Option<u32> {
        let n = producer.wrapping_sub(consumer);
        self.broken |= n > self.count;
        (!self.broken).then_some(n)
    }
}

/// The writing end.
#[derive(Debug)]
pub struct Producer<T> {
    ring: Ring<T>,
    /// Entries written, published or not.
    head: u32,
    /// The other end's index, as last seen.
    tail: u32,
}

impl<T: Entry> Producer<T> {
    /// The writing end of the ring of `count` entries in `map`, from where its indexes stand.
    ///
    /// # Errors
    /// [`Error::RingBounds`] or [`Error::Config`] if the offsets or the count cannot be.
    pub fn new(map: Arc<Mapping>, at: RingOffsets, count: u32) -> Result<Self> {
        let ring = Ring::new(map, at, count)?;
        let (head, tail) =
            (ring.map.u32(ring.producer).load(Relaxed), ring.map.u32(ring.consumer).load(Acquire));
        Ok(Self { ring, head, tail })
    }

    /// Entries that can be pushed now; at least `want` if there are that many, else all there are.
    pub fn room(&mut self, want: u32) -> u32 {
        let room = |ring: &mut Ring<T>, head, tail| ring.filled(head, tail).map_or(0, |n| ring.count - n);
        let cached = room(&mut self.ring, self.head, self.tail);
        if cached >= want {
            return cached;
        }
        self.tail = self.ring.map.u32(self.ring.consumer).load(Acquire);
        room(&mut self.ring, self.head, self.tail)
    }

    /// Writes one entry, which the other end sees after [`Producer::publish`]. `false` if the ring is full.
    #[must_use]
    pub fn push(&mut self, entry: T) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        entry.write(&self.ring.map, self.ring.slot(self.head));
        self.head = self.head.wrapping_add(1);
        true
    }

    /// Shows the other end what was pushed.
    pub fn publish(&mut self) {
        self.ring.map.u32(self.ring.producer).store(self.head, Release);
    }

    /// Entries that the other end has not taken yet.
    pub fn pending(&mut self) -> u32 {
        self.tail = self.ring.map.u32(self.ring.consumer).load(Acquire);
        self.ring.filled(self.head, self.tail).unwrap_or(self.ring.count)
    }

    /// Whether the other end asks for a system call.
    #[must_use]
    pub fn need_wakeup(&self) -> bool {
        self.ring.map.u32(self.ring.flags).load(Relaxed) & NEED_WAKEUP != 0
    }

    /// Whether the other end's index became impossible.
    #[must_use]
    pub const fn broken(&self) -> bool {
        self.ring.broken
    }

    /// Entries of the ring.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.ring.count
    }

    /// Index of the entry that is pushed next.
    #[must_use]
    pub const fn position(&self) -> u32 {
        self.head
    }

    /// Reads the other end's index, from any thread.
    pub fn reader(&self) -> impl Fn() -> u32 + Send + Sync + use<T> {
        let (map, at) = (Arc::clone(&self.ring.map), self.ring.consumer);
        move || map.u32(at).load(Acquire)
    }
}

/// The reading end.
#[derive(Debug)]
pub struct Consumer<T> {
    ring: Ring<T>,
    /// The other end's index, as last seen.
    head: u32,
    /// Entries read, given back or not.
    tail: u32,
    /// Entries given back.
    released: u32,
}

impl<T: Entry> Consumer<T> {
    /// The reading end of the ring of `count` entries in `map`, from where its indexes stand.
    ///
    /// # Errors
    /// [`Error::RingBounds`] or [`Error::Config`] if the offsets or the count cannot be.
    pub fn new(map: Arc<Mapping>, at: RingOffsets, count: u32) -> Result<Self> {
        let ring = Ring::new(map, at, count)?;
        let (head, tail) =
            (ring.map.u32(ring.producer).load(Acquire), ring.map.u32(ring.consumer).load(Relaxed));
        Ok(Self { ring, head, tail, released: tail })
    }

    /// Entries that can be popped now; looks at the other end's index when its copy shows none.
    pub fn available(&mut self) -> u32 {
        match self.ring.filled(self.head, self.tail) {
            Some(0) => {
                self.head = self.ring.map.u32(self.ring.producer).load(Acquire);
                self.ring.filled(self.head, self.tail).unwrap_or(0)
            }
            n => n.unwrap_or(0),
        }
    }

    /// Reads one entry; its slot is given back by [`Consumer::release`].
    #[must_use]
    pub fn pop(&mut self) -> Option<T> {
        if self.available() == 0 {
            return None;
        }
        let entry = T::read(&self.ring.map, self.ring.slot(self.tail));
        self.tail = self.tail.wrapping_add(1);
        Some(entry)
    }

    /// Gives the slots of what was popped back to the other end.
    pub fn release(&mut self) {
        self.released = self.tail;
        self.ring.map.u32(self.ring.consumer).store(self.tail, Release);
    }

    /// Gives back the slots of what was popped but the last `kept`, and never takes one back that was given.
    pub fn release_but(&mut self, kept: u32) {
        let give = self.unreleased().saturating_sub(kept);
        if give > 0 {
            self.released = self.released.wrapping_add(give);
            self.ring.map.u32(self.ring.consumer).store(self.released, Release);
        }
    }

    /// Entries that were popped and not given back.
    #[must_use]
    pub const fn unreleased(&self) -> u32 {
        self.tail.wrapping_sub(self.released)
    }

    /// Entries of the ring.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.ring.count
    }

    /// Sets or clears the flag by which this end asks the other for a system call.
    pub fn set_need_wakeup(&self, ask: bool) {
        let flags = self.ring.map.u32(self.ring.flags);
        if ask {
            flags.fetch_or(NEED_WAKEUP, Relaxed);
        } else {
            flags.fetch_and(!NEED_WAKEUP, Relaxed);
        }
    }

    /// Entries that stand in the ring now, looked up afresh.
    pub fn pending(&mut self) -> u32 {
        self.head = self.ring.map.u32(self.ring.producer).load(Acquire);
        self.ring.filled(self.head, self.tail).unwrap_or(0)
    }

    /// Whether the other end asks for a system call.
    #[must_use]
    pub fn need_wakeup(&self) -> bool {
        self.ring.map.u32(self.ring.flags).load(Relaxed) & NEED_WAKEUP != 0
    }

    /// Whether the other end's index became impossible.
    #[must_use]
    pub const fn broken(&self) -> bool {
        self.ring.broken
    }
}
