//! Mapped memory that is shared with someone who writes to it at any time.
//!
//! Nothing here hands out a reference to shared bytes: words are reached as atomics, frames through
//! [`crate::Frame`], whose owner is known.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::{Error, Result};

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

/// A mapping that is unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to no thread; what is reached through it is reached as atomics, or as the bytes of
// a frame whose one owner is known.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Private zeroed memory of at least `len` bytes, in huge pages if asked for and there are enough, populated
    /// at once so that no packet waits for a page fault.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn anonymous(len: usize, huge: bool) -> Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        let map = |len, flags| {
            // SAFETY: a new mapping at an address that the kernel chooses touches no memory in use.
            let at = unsafe {
                mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)
            };
            at.map(|base| (base, len))
        };
        let huge = huge.then(|| map(len.next_multiple_of(HUGE), flags | MapFlags::HUGETLB).ok()).flatten();
        let (base, len) = huge.map_or_else(|| map(len, flags), Ok).map_err(|e| Error::Map {
            what: "packet memory",
            bytes: len,
            source: e.into(),
        })?;
        Ok(Self::own(base.cast(), len))
    }

    /// `len` bytes of `fd` from `offset` on, shared.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn shared(fd: BorrowedFd<'_>, offset: u64, len: usize, what: &'static str) -> Result<Self> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory in use.
        let base = unsafe { mmap(std::ptr::null_mut(), len, prot, flags, fd, offset) };
        let base = base.map_err(|e| Error::Map { what, bytes: len, source: e.into() })?;
        Ok(Self::own(base.cast(), len))
    }

    fn own(base: *mut u8, len: usize) -> Self {
        Self { base: NonNull::new(base).expect("mmap never returns address 0 without MAP_FIXED"), len }
    }

    /// Bytes of it.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes; it always has.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its first byte. To dereference it is the caller's business, within [`Mapping::len`].
    #[must_use]
    pub const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The word at `offset`.
    ///
    /// # Panics
    /// If it is out of bounds or not aligned: offsets are checked once, by whoever gets them from outside.
    #[must_use]
    pub fn u32(&self, offset: usize) -> &AtomicU32 {
        assert!(self.holds(offset, 4, 4));
        // SAFETY: in bounds and aligned (mappings start at a page), valid for any bits, atomic towards everyone.
        unsafe { self.base.add(offset).cast().as_ref() }
    }

    /// The double word at `offset`.
    ///
    /// # Panics
    /// As [`Mapping::u32`].
    #[must_use]
    pub fn u64(&self, offset: usize) -> &AtomicU64 {
        assert!(self.holds(offset, 8, 8));
        // SAFETY: as in `u32`.
        unsafe { self.base.add(offset).cast().as_ref() }
    }

    /// Whether `len` bytes at `offset` are within and aligned.
    #[must_use]
    pub fn holds(&self, offset: usize, len: usize, align: usize) -> bool {
        offset.is_multiple_of(align) && offset.checked_add(len).is_some_and(|end| end <= self.len)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that was made, and nothing borrows from it any more. Failure would leave it
        // mapped, which harms nobody.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn memory_is_zeroed_and_bounded() {
        let m = Mapping::anonymous(4096, false).unwrap();
        assert_eq!(m.u64(4088).load(Relaxed), 0);
        assert!(!m.holds(4092, 8, 4));
        assert!(!m.holds(2, 4, 4));
        assert!(!m.holds(usize::MAX - 3, 8, 4));
    }

    #[test]
    #[should_panic(expected = "holds")]
    fn words_out_of_bounds_are_refused() {
        let m = Mapping::anonymous(4096, false).unwrap();
        let _ = m.u32(4096);
    }
}
