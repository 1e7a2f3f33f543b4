//! Geometry of a page, and offsets in it.

use crate::error::ChannelError;
use crate::memory::Memory;
use p4shield_abi::page::{PAGE_HEADER_SIZE, SLOT_HEADER_SIZE};
use std::mem::offset_of;

/// Offsets of [`p4shield_abi::page::PageHeader`]; version and slots, stride and reserved are written
/// as one word each.
pub(super) const MAGIC: usize = offset_of!(p4shield_abi::page::PageHeader, magic);
pub(super) const VERSION_SLOTS: usize = offset_of!(p4shield_abi::page::PageHeader, version);
pub(super) const STRIDE: usize = offset_of!(p4shield_abi::page::PageHeader, slot_stride);
pub(super) const PUBLISHED: usize = offset_of!(p4shield_abi::page::PageHeader, published);

/// Offsets in [`p4shield_abi::page::SlotHeader`].
pub(super) const SEQUENCE: usize = offset_of!(p4shield_abi::page::SlotHeader, sequence);
pub(super) const EPOCH: usize = offset_of!(p4shield_abi::page::SlotHeader, epoch);
pub(super) const COUNTER: usize = offset_of!(p4shield_abi::page::SlotHeader, counter);
pub(super) const LEN: usize = offset_of!(p4shield_abi::page::SlotHeader, len);

/// Geometry of a page, as both sides are configured.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageGeometry {
    pub(super) magic: u64,
    slots: u32,
    pub(super) stride: usize,
}

impl PageGeometry {
    /// Checks the numbers and the size of the region.
    pub(super) fn of<M: Memory>(
        memory: &M,
        magic: u64,
        slots: u32,
        stride: usize,
    ) -> Result<Self, ChannelError> {
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

    /// Returns the offset of the slot of publication `index`.
    pub(super) const fn slot(&self, index: u64) -> usize {
        PAGE_HEADER_SIZE + (index % self.slots as u64) as usize * self.stride
    }

    /// Returns how many sealed bytes a slot holds.
    pub(super) const fn room(&self) -> usize {
        self.stride - SLOT_HEADER_SIZE
    }

    /// Encodes version and slots as the page contains them.
    pub(super) const fn version_slots(&self) -> u64 {
        p4shield_abi::page::PAGE_VERSION as u64 | (self.slots as u64) << 32
    }
}
