//! The writing end of a page.

use super::geometry::{COUNTER, EPOCH, LEN, MAGIC, PUBLISHED, PageGeometry, SEQUENCE, STRIDE, VERSION_SLOTS};
use crate::error::{ChannelError, PageFault};
use crate::memory::Memory;
use crate::shm::SharedMemory;
use p4shield_abi::page::SLOT_HEADER_SIZE;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Publishes sealed records on a page.
#[derive(Debug)]
pub struct PageWriter<M = SharedMemory> {
    memory: M,
    geometry: PageGeometry,
    /// Publications so far. Kept in private memory, because the reader may overwrite the page.
    published: u64,
}

impl<M: Memory> PageWriter<M> {
    /// Sets up a page. Slots are `stride` bytes apart, of which 32 are the slot's header.
    ///
    /// A page that is set up already keeps its publications and their count, so readers see a
    /// restarted writer as newer publications on the same page.
    ///
    /// # Errors
    /// If the numbers are out of range or the region is too small for them.
    pub fn new(memory: M, magic: u64, slots: u32, stride: usize) -> Result<Self, ChannelError> {
        let geometry = PageGeometry::of(&memory, magic, slots, stride)?;
        let ours = memory.load_u64(MAGIC, Relaxed) == magic
            && memory.load_u64(VERSION_SLOTS, Relaxed) == geometry.version_slots()
            && memory.load_u64(STRIDE, Relaxed) == stride as u64;
        let published = if ours { memory.load_u64(PUBLISHED, Relaxed) } else { 0 };
        if !ours {
            memory.store_u64(VERSION_SLOTS, geometry.version_slots(), Relaxed);
            memory.store_u64(STRIDE, stride as u64, Relaxed);
            memory.store_u64(PUBLISHED, 0, Relaxed);
            memory.store_u64(MAGIC, magic, Release);
        }
        Ok(Self { memory, geometry, published })
    }

    /// Returns the number of publications so far.
    #[must_use]
    pub fn published(&self) -> u64 {
        self.published
    }

    /// Returns the longest publication in bytes.
    #[must_use]
    pub fn room(&self) -> usize {
        self.geometry.room()
    }

    /// Publishes `sealed` and returns its index, counted from 0.
    ///
    /// # Errors
    /// If it is longer than [`Self::room`], or the page's header is gone (its file was truncated, or
    /// the other side overwrote it), so that no reader would see the publication.
    pub fn publish(&mut self, epoch: u64, counter: u64, sealed: &[u8]) -> Result<u64, PageFault> {
        if sealed.len() > self.geometry.room() {
            return Err(PageFault::TooLong { len: sealed.len(), room: self.geometry.room() });
        }
        if self.memory.load_u64(MAGIC, Relaxed) != self.geometry.magic {
            return Err(PageFault::NotAPage);
        }
        let index = self.published;
        let slot = self.geometry.slot(index);
        let sequence = index.wrapping_mul(2);
        // Odd: being written. The fence orders the stores that follow behind it, for readers with an
        // acquire fence.
        self.memory.store_u64(slot + SEQUENCE, sequence.wrapping_add(1), Relaxed);
        M::fence(Release);
        self.memory.store_u64(slot + EPOCH, epoch, Relaxed);
        self.memory.store_u64(slot + COUNTER, counter, Relaxed);
        self.memory.store_u64(slot + LEN, sealed.len() as u64, Relaxed);
        self.memory.copy_in(slot + SLOT_HEADER_SIZE, sealed);
        self.memory.store_u64(slot + SEQUENCE, sequence.wrapping_add(2), Release);
        self.published = index.wrapping_add(1);
        self.memory.store_u64(PUBLISHED, self.published, Release);
        Ok(index)
    }
}
