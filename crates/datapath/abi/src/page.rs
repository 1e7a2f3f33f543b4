//! Info page and log page: sealed records in memory that a user VM and a P4 VM share.
//!
//! Both pages are a [`PageHeader`] and a ring of slots of one size. The writer alone writes; publication `n`
//! (counted from 0) goes into slot `n % slots`. A slot is a [`SlotHeader`], then the sealed bytes. The writer
//! makes `sequence` odd (`2n + 1`) before it touches a slot and even (`2n + 2`) when it has finished; a reader
//! copies the slot to private memory between two reads of `sequence` and retries when they differ or are odd.
//! That keeps an honest writer's half-written slots from looking like forgeries; it is no protection against a
//! hostile one, which the seal is.
//!
//! A VM reaches its pages through an ivshmem BAR, a process through a file: page sizes are powers of two.

/// First eight bytes of an info page.
pub const INFO_MAGIC: u64 = u64::from_le_bytes(*b"P4SHINFO");
/// First eight bytes of a log page.
pub const LOG_MAGIC: u64 = u64::from_le_bytes(*b"P4SHLOGS");
/// Version of the layout of both pages.
pub const PAGE_VERSION: u32 = 1;

/// Slots of an info page: one is read while the other is written.
pub const INFO_SLOTS: u32 = 2;
/// Slots of a log page: 25 seconds of records at the default interval.
pub const LOG_SLOTS: u32 = 256;

/// Authentication tag of AES-256-GCM.
pub const TAG_SIZE: usize = 16;

/// Start of a page. `repr(C)`, one cache line, followed by the slots.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct PageHeader {
    /// [`INFO_MAGIC`] or [`LOG_MAGIC`]; written last.
    pub magic: u64,
    /// [`PAGE_VERSION`].
    pub version: u32,
    /// Number of slots.
    pub slots: u32,
    /// Bytes from one slot to the next.
    pub slot_stride: u32,
    /// Zero.
    pub reserved: u32,
    /// Publications so far: the newest is in slot `(published - 1) % slots`. Atomic, released after the slot.
    pub published: u64,
}

/// Start of a slot. `repr(C)`, 32 bytes, then `len` sealed bytes (ciphertext, then tag).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SlotHeader {
    /// `2n + 1` while publication `n` is being written, then `2n + 2`. Atomic.
    pub sequence: u64,
    /// Start of the writer that sealed it; never goes back.
    pub epoch: u64,
    /// Counter within the epoch, from 0; with the epoch's key it is the nonce.
    pub counter: u64,
    /// Sealed bytes that follow.
    pub len: u32,
    /// Zero.
    pub reserved: u32,
}

/// Bytes of [`PageHeader`].
pub const PAGE_HEADER_SIZE: usize = 64;
/// Bytes of [`SlotHeader`].
pub const SLOT_HEADER_SIZE: usize = 32;

/// Bytes from one slot of an info page to the next.
pub const INFO_SLOT_STRIDE: usize =
    (SLOT_HEADER_SIZE + crate::info::SNAPSHOT_SIZE + TAG_SIZE).next_multiple_of(64);
/// Bytes from one slot of a log page to the next.
pub const LOG_SLOT_STRIDE: usize =
    (SLOT_HEADER_SIZE + crate::log::RECORD_SIZE + TAG_SIZE).next_multiple_of(64);

/// Bytes of an info page, a power of two.
pub const INFO_PAGE_SIZE: usize =
    (PAGE_HEADER_SIZE + INFO_SLOTS as usize * INFO_SLOT_STRIDE).next_power_of_two();
/// Bytes of a log page, a power of two.
pub const LOG_PAGE_SIZE: usize =
    (PAGE_HEADER_SIZE + LOG_SLOTS as usize * LOG_SLOT_STRIDE).next_power_of_two();

const _: () = assert!(size_of::<PageHeader>() == PAGE_HEADER_SIZE);
const _: () = assert!(size_of::<SlotHeader>() == SLOT_HEADER_SIZE);
