//! The two ends of an info page or a log page.
//!
//! A page is a ring of slots, each a seqlock, with a counter of publications in front. Its one writer never waits
//! for readers; a reader copies a slot out between two looks at the slot's sequence and tries again, a bounded
//! number of times, if the writer was there in between.
//!
//! The seqlock keeps an honest writer's half-written slots from looking like forgeries. Against a dishonest one
//! there is the seal of what is published, and here only the promise that reading never panics, loops, or reads out
//! of place, whatever stands in the page.

mod reader;
mod writer;

pub use reader::{PageReader, Publication};
pub use writer::PageWriter;

use crate::error::ChannelError;
use crate::memory::Memory;
use p4shield_abi::page::{PAGE_HEADER_SIZE, SLOT_HEADER_SIZE};
use std::mem::offset_of;

/// Offsets of [`p4shield_abi::page::PageHeader`]; version and slots, stride and reserved are written as one word each.
const MAGIC: usize = offset_of!(p4shield_abi::page::PageHeader, magic);
const VERSION_SLOTS: usize = offset_of!(p4shield_abi::page::PageHeader, version);
const STRIDE: usize = offset_of!(p4shield_abi::page::PageHeader, slot_stride);
const PUBLISHED: usize = offset_of!(p4shield_abi::page::PageHeader, published);

/// Offsets in [`p4shield_abi::page::SlotHeader`].
const SEQUENCE: usize = offset_of!(p4shield_abi::page::SlotHeader, sequence);
const EPOCH: usize = offset_of!(p4shield_abi::page::SlotHeader, epoch);
const COUNTER: usize = offset_of!(p4shield_abi::page::SlotHeader, counter);
const LEN: usize = offset_of!(p4shield_abi::page::SlotHeader, len);

/// What both sides were told about a page.
#[derive(Clone, Copy, Debug)]
struct Shape {
    magic: u64,
    slots: u32,
    stride: usize,
}

impl Shape {
    fn of<M: Memory>(memory: &M, magic: u64, slots: u32, stride: usize) -> Result<Self, ChannelError> {
        let needed =
            (slots as usize).checked_mul(stride).and_then(|n| n.checked_add(PAGE_HEADER_SIZE)).filter(|_| {
                slots != 0 && stride > SLOT_HEADER_SIZE && stride.is_multiple_of(8) && stride <= 1 << 30
            });
        match needed {
            None => Err(ChannelError::Header { what: "slots or slot stride" }),
            Some(needed) if needed > memory.len() => {
                Err(ChannelError::TooSmall { needed, actual: memory.len() })
            }
            Some(_) => Ok(Self { magic, slots, stride }),
        }
    }

    /// Offset of the slot of publication `index`.
    const fn slot(&self, index: u64) -> usize {
        PAGE_HEADER_SIZE + (index % self.slots as u64) as usize * self.stride
    }

    /// Sealed bytes that a slot holds.
    const fn room(&self) -> usize {
        self.stride - SLOT_HEADER_SIZE
    }

    const fn version_slots(&self) -> u64 {
        p4shield_abi::page::PAGE_VERSION as u64 | (self.slots as u64) << 32
    }
}
