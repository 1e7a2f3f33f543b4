//! The info page: sealed snapshots of in-VM information, from the user VM to the P4 VM.
//!
//! A page ([`crate::page`]) of [`INFO_SLOTS`] slots, each with a sealed
//! [`Snapshot`](crate::info::Snapshot) of [`SNAPSHOT_SIZE`] bytes.

use crate::info::SNAPSHOT_SIZE;
use crate::page::{page_size, slot_stride};

/// First eight bytes of an info page.
pub const INFO_MAGIC: u64 = u64::from_le_bytes(*b"P4SHINFO");

/// Slots: one is read while the other is written.
pub const INFO_SLOTS: u32 = 2;

/// Bytes from one slot to the next.
pub const INFO_SLOT_STRIDE: usize = slot_stride(SNAPSHOT_SIZE);

/// Bytes of an info page, a power of two.
pub const INFO_PAGE_SIZE: usize = page_size(INFO_SLOTS, INFO_SLOT_STRIDE);
