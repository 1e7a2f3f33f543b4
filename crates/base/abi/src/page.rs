//! Common layout of info page, log page and handshake page: records in memory that a user VM and a P4 VM
//! share. Those of the first two are sealed.
//!
//! A page is a [`PageHeader`] and a ring of slots of one size; integers are little-endian.
//! [`crate::info_page`], [`crate::log_page`] and [`crate::handshake_page`] define the kinds.
//!
//! ```text
//!  0                    PageHeader (64 bytes)
//!  64                   slot 0: SlotHeader (32 bytes), then up to slot_stride - 32 sealed bytes
//!  64 + slot_stride     slot 1
//!  ...
//! ```
//!
//! Only the writer writes. Publication `n` (from 0) goes into slot `n % slots`. The writer makes
//! `sequence` odd (`2n + 1`) before it writes a slot, and even (`2n + 2`) afterwards. A reader copies
//! the slot to private memory between two reads of `sequence`, and retries if they differ or are odd.
//! This keeps half-written slots of an honest writer from being taken for forgeries; the seal
//! protects against a hostile one.
//!
//! A virtual machine reaches its pages through an ivshmem BAR, a process through a file: page sizes
//! are powers of two.

/// Version of the layout of pages.
pub const PAGE_VERSION: u32 = 1;

/// Bytes of the authentication tag of AES-256-GCM.
pub const TAG_SIZE: usize = 16;

/// Bytes of the salt before the ciphertext, which a writer draws at its start: part of what its key is
/// derived from.
pub const SALT_SIZE: usize = 8;

/// Header of a page, at offset 0. `repr(C)`, 64 bytes: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct PageHeader {
    /// Offset 0: [`crate::info_page::INFO_MAGIC`] or [`crate::log_page::LOG_MAGIC`]; written last.
    pub magic: u64,
    /// Offset 8: [`PAGE_VERSION`].
    pub version: u32,
    /// Offset 12: number of slots.
    pub slots: u32,
    /// Offset 16: bytes from one slot to the next.
    pub slot_stride: u32,
    /// Offset 20: zero.
    pub reserved: u32,
    /// Offset 24: publications so far; the newest is in slot `(published - 1) % slots`. Atomic,
    /// released after the slot.
    pub published: u64,
}

/// Header of a slot. `repr(C)`, 32 bytes; `len` sealed bytes (salt, ciphertext, tag) follow.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SlotHeader {
    /// Offset 0: `2n + 1` while publication `n` is being written, then `2n + 2`. Atomic.
    pub sequence: u64,
    /// Offset 8: epoch of the writer that sealed the record; never decreases.
    pub epoch: u64,
    /// Offset 16: counter within the epoch, from 0; it is the nonce under the key of epoch and salt.
    pub counter: u64,
    /// Offset 24: number of sealed bytes.
    pub len: u32,
    /// Offset 28: zero.
    pub reserved: u32,
}

/// Bytes of [`PageHeader`].
pub const PAGE_HEADER_SIZE: usize = 64;
/// Bytes of [`SlotHeader`].
pub const SLOT_HEADER_SIZE: usize = 32;

/// Returns the distance of slots for records of `record_size` bytes.
pub(crate) const fn slot_stride(record_size: usize) -> usize {
    (SLOT_HEADER_SIZE + SALT_SIZE + record_size + TAG_SIZE).next_multiple_of(64)
}

/// Returns the size of a page, a power of two.
pub(crate) const fn page_size(slots: u32, slot_stride: usize) -> usize {
    (PAGE_HEADER_SIZE + slots as usize * slot_stride).next_power_of_two()
}

const _: () = assert!(size_of::<PageHeader>() == PAGE_HEADER_SIZE);
const _: () = assert!(size_of::<SlotHeader>() == SLOT_HEADER_SIZE);
