//! The end that publishes.

use super::{COUNTER, EPOCH, LEN, MAGIC, PUBLISHED, SEQUENCE, STRIDE, Shape, VERSION_SLOTS};
use crate::error::{ChannelError, PageFault};
use crate::memory::Memory;
use crate::shm::SharedMemory;
use p4shield_abi::page::SLOT_HEADER_SIZE;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Publishes sealed records on a page.
#[derive(Debug)]
pub struct PageWriter<M = SharedMemory> {
    memory: M,
    shape: Shape,
    /// Publications so far; kept in private, since the page is the reader's to scribble on.
    published: u64,
}

impl<M: Memory> PageWriter<M> {
    /// Sets a page up. Slots are `stride` bytes apart, of which 32 are the slot's header.
    ///
    /// A page that is set up already keeps its publications, and counting goes on where it stood: readers see a
    /// writer that was started again as the same page with newer publications.
    ///
    /// # Errors
    /// If the numbers are out of range or the region is too small for them.
    pub fn new(memory: M, magic: u64, slots: u32, stride: usize) -> Result<Self, ChannelError> {
        let shape = Shape::of(&memory, magic, slots, stride)?;
        let ours = memory.load_u64(MAGIC, Relaxed) == magic
            && memory.load_u64(VERSION_SLOTS, Relaxed) == shape.version_slots()
            && memory.load_u64(STRIDE, Relaxed) == stride as u64;
        let published = if ours { memory.load_u64(PUBLISHED, Relaxed) } else { 0 };
        if !ours {
            memory.store_u64(VERSION_SLOTS, shape.version_slots(), Relaxed);
            memory.store_u64(STRIDE, stride as u64, Relaxed);
            memory.store_u64(PUBLISHED, 0, Relaxed);
            memory.store_u64(MAGIC, magic, Release);
        }
        Ok(Self { memory, shape, published })
    }

    /// Publications so far.
    #[must_use]
    pub fn published(&self) -> u64 {
        self.published
    }

    /// Bytes that a publication may have.
    #[must_use]
    pub fn room(&self) -> usize {
        self.shape.room()
    }

    /// Publishes `sealed` and returns its index, counted from 0.
    ///
    /// # Errors
    /// If it is longer than [`Self::room`]; or the page is not there any more (its file was cut short, or the other
    /// side wrote over its header), so that nobody would see it.
    pub fn publish(&mut self, epoch: u64, counter: u64, sealed: &[u8]) -> Result<u64, PageFault> {
        if sealed.len() > self.shape.room() {
            return Err(PageFault::TooLong { len: sealed.len(), room: self.shape.room() });
        }
        if self.memory.load_u64(MAGIC, Relaxed) != self.shape.magic {
            return Err(PageFault::NotAPage);
        }
        let index = self.published;
        let slot = self.shape.slot(index);
        let sequence = index.wrapping_mul(2);
        // Odd: being written. The fence keeps what follows behind it, for readers with an acquire fence.
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
