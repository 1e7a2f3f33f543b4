//! The end that reads.

use super::{COUNTER, EPOCH, LEN, MAGIC, PUBLISHED, SEQUENCE, STRIDE, Shape, VERSION_SLOTS};
use crate::error::{ChannelError, PageFault};
use crate::memory::Memory;
use crate::shm::SharedMemory;
use p4shield_abi::page::SLOT_HEADER_SIZE;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Tries before a slot that is always being written is given up.
const TRIES: u32 = 16;

/// A publication that was copied out. Nothing about it is to be believed before its seal was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Its number on this page, counted from 0, as the page has it.
    pub index: u64,
    /// Epoch of the writer that sealed it, as it claims.
    pub epoch: u64,
    /// Counter within the epoch, as it claims.
    pub counter: u64,
    /// Sealed bytes: so many at the front of the buffer.
    pub len: usize,
}

/// Reads sealed records from a page.
#[derive(Debug)]
pub struct PageReader<M = SharedMemory> {
    memory: M,
    shape: Shape,
}

impl<M: Memory> PageReader<M> {
    /// A reader of a page that its writer sets up, now or later.
    ///
    /// # Errors
    /// If the numbers are out of range or the region is too small for them.
    pub fn new(memory: M, magic: u64, slots: u32, stride: usize) -> Result<Self, ChannelError> {
        Ok(Self { shape: Shape::of(&memory, magic, slots, stride)?, memory })
    }

    /// Bytes that a publication may have: what a buffer needs.
    #[must_use]
    pub fn room(&self) -> usize {
        self.shape.room()
    }

    /// Publications so far, as the page claims: cheap enough to look at before every batch, to see if there is
    /// something new. Zero while the page is not set up.
    #[must_use]
    #[inline]
    pub fn published(&self) -> u64 {
        self.memory.load_u64(PUBLISHED, Acquire)
    }

    /// Copies the newest publication to the front of `to`. None if nothing was published yet.
    ///
    /// # Errors
    /// If the page is not set up as agreed, its newest slot cannot be read in a bounded number of tries or has an
    /// impossible length, or `to` is too small.
    pub fn newest(&self, to: &mut [u8]) -> Result<Option<Publication>, PageFault> {
        self.check()?;
        let mut fault = PageFault::Torn(0);
        for _ in 0..TRIES {
            let published = self.published();
            if published == 0 {
                return Ok(None);
            }
            match self.try_slot(published - 1, to) {
                Ok(publication) => return Ok(Some(publication)),
                Err(e) => fault = e,
            }
            // The writer overtook us: what is newest now is another slot.
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
        for _ in 0..TRIES {
            match self.try_slot(index, to) {
                Err(e @ PageFault::Torn(_)) => fault = e,
                other => return other,
            }
            std::hint::spin_loop();
        }
        Err(fault)
    }

    /// Whether the page's header says what was agreed on.
    fn check(&self) -> Result<(), PageFault> {
        let ours = self.memory.load_u64(MAGIC, Acquire) == self.shape.magic
            && self.memory.load_u64(VERSION_SLOTS, Relaxed) == self.shape.version_slots()
            && self.memory.load_u64(STRIDE, Relaxed) == self.shape.stride as u64;
        if ours { Ok(()) } else { Err(PageFault::NotAPage) }
    }

    /// One try: sequence, slot, sequence.
    fn try_slot(&self, index: u64, to: &mut [u8]) -> Result<Publication, PageFault> {
        let slot = self.shape.slot(index);
        let whole = index.wrapping_mul(2).wrapping_add(2);
        if self.memory.load_u64(slot + SEQUENCE, Acquire) != whole {
            return Err(PageFault::Torn(index));
        }
        let epoch = self.memory.load_u64(slot + EPOCH, Relaxed);
        let counter = self.memory.load_u64(slot + COUNTER, Relaxed);
        // The word's upper half is reserved.
        let claimed = self.memory.load_u64(slot + LEN, Relaxed) as u32;
        let len = claimed as usize;
        let fits = len <= self.shape.room() && len <= to.len();
        if fits {
            self.memory.copy_out(slot + SLOT_HEADER_SIZE, &mut to[..len]);
        }
        M::fence(Acquire);
        if self.memory.load_u64(slot + SEQUENCE, Relaxed) != whole {
            return Err(PageFault::Torn(index));
        }
        if len > self.shape.room() {
            return Err(PageFault::Length { len: claimed, room: self.shape.room() as u32 });
        }
        if !fits {
            return Err(PageFault::TooLong { len, room: to.len() });
        }
        Ok(Publication { index, epoch, counter, len })
    }
}
