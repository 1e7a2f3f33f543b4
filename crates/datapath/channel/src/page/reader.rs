//! The reading end of a page.

use super::geometry::{COUNTER, EPOCH, LEN, MAGIC, PUBLISHED, PageGeometry, SEQUENCE, STRIDE, VERSION_SLOTS};
use crate::error::{ChannelError, PageFault};
use crate::memory::Memory;
use crate::shm::SharedMemory;
use p4shield_abi::page::SLOT_HEADER_SIZE;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Attempts to read a slot that is being written.
const ATTEMPTS: u32 = 16;

/// A publication, copied out of the page. It is untrusted until its seal has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Its number on this page, from 0.
    pub index: u64,
    /// Claimed epoch of the writer that sealed it.
    pub epoch: u64,
    /// Claimed counter within the epoch.
    pub counter: u64,
    /// Length of the sealed bytes at the front of the buffer.
    pub len: usize,
}

/// Reads sealed records from a page.
#[derive(Debug)]
pub struct PageReader<M = SharedMemory> {
    memory: M,
    geometry: PageGeometry,
}

impl<M: Memory> PageReader<M> {
    /// A reader of a page that its writer has set up or will set up.
    ///
    /// # Errors
    /// If the numbers are out of range or the region is too small for them.
    pub fn new(memory: M, magic: u64, slots: u32, stride: usize) -> Result<Self, ChannelError> {
        Ok(Self { geometry: PageGeometry::of(&memory, magic, slots, stride)?, memory })
    }

    /// Returns the longest publication in bytes, which a buffer has to hold.
    #[must_use]
    pub fn room(&self) -> usize {
        self.geometry.room()
    }

    /// Returns the number of publications that the page claims; one load, cheap enough for every
    /// batch. Zero while the page is not set up.
    #[must_use]
    #[inline]
    pub fn published(&self) -> u64 {
        self.memory.load_u64(PUBLISHED, Acquire)
    }

    /// Copies the newest publication to the front of `to`. None if nothing was published yet.
    ///
    /// # Errors
    /// If the page is not set up with this geometry, its newest slot is being written at every
    /// attempt or has an invalid length, or `to` is too small.
    pub fn newest(&self, to: &mut [u8]) -> Result<Option<Publication>, PageFault> {
        self.check()?;
        let mut fault = PageFault::Torn(0);
        for _ in 0..ATTEMPTS {
            let published = self.published();
            if published == 0 {
                return Ok(None);
            }
            match self.try_slot(published - 1, to) {
                Ok(publication) => return Ok(Some(publication)),
                Err(e) => fault = e,
            }
            // The writer has overtaken this reader: the newest publication is in another slot.
            std::hint::spin_loop();
        }
        Err(fault)
    }

    /// Copies publication `index` to the front of `to`.
    ///
    /// # Errors
    /// As [`Self::newest`]; [`PageFault::Torn`] also if it was not published yet or has been overwritten.
    pub fn read(&self, index: u64, to: &mut [u8]) -> Result<Publication, PageFault> {
        self.check()?;
        let mut fault = PageFault::Torn(index);
        for _ in 0..ATTEMPTS {
            match self.try_slot(index, to) {
                Err(e @ PageFault::Torn(_)) => fault = e,
                other => return other,
            }
            std::hint::spin_loop();
        }
        Err(fault)
    }

    /// Checks that the page's header matches the geometry.
    fn check(&self) -> Result<(), PageFault> {
        let ours = self.memory.load_u64(MAGIC, Acquire) == self.geometry.magic
            && self.memory.load_u64(VERSION_SLOTS, Relaxed) == self.geometry.version_slots()
            && self.memory.load_u64(STRIDE, Relaxed) == self.geometry.stride as u64;
        if ours { Ok(()) } else { Err(PageFault::NotAPage) }
    }

    /// Attempts to read a slot once: sequence number, slot, sequence number.
    fn try_slot(&self, index: u64, to: &mut [u8]) -> Result<Publication, PageFault> {
        let slot = self.geometry.slot(index);
        let whole = index.wrapping_mul(2).wrapping_add(2);
        if self.memory.load_u64(slot + SEQUENCE, Acquire) != whole {
            return Err(PageFault::Torn(index));
        }
        let epoch = self.memory.load_u64(slot + EPOCH, Relaxed);
        let counter = self.memory.load_u64(slot + COUNTER, Relaxed);
        // The word's upper half is reserved.
        let claimed = self.memory.load_u64(slot + LEN, Relaxed) as u32;
        let len = claimed as usize;
        let fits = len <= self.geometry.room() && len <= to.len();
        if fits {
            self.memory.copy_out(slot + SLOT_HEADER_SIZE, &mut to[..len]);
        }
        M::fence(Acquire);
        if self.memory.load_u64(slot + SEQUENCE, Relaxed) != whole {
            return Err(PageFault::Torn(index));
        }
        if len > self.geometry.room() {
            return Err(PageFault::Length { len: claimed, room: self.geometry.room() as u32 });
        }
        if !fits {
            return Err(PageFault::TooLong { len, room: to.len() });
        }
        Ok(Publication { index, epoch, counter, len })
    }
}
