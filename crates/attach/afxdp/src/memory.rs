//! Mapped memory that a peer may write at any time.
//!
//! This module returns no reference to shared bytes: words are accessed as atomics, frames through
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
pub struct MmapRegion {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to no thread. Its memory is accessed as atomics, or as the bytes of a
// frame whose only owner is known.
unsafe impl Send for MmapRegion {}
// SAFETY: as above.
unsafe impl Sync for MmapRegion {}

impl MmapRegion {
    /// Maps private zeroed memory of at least `len` bytes, in huge pages if requested and available, and
    /// populates it, so that no packet waits for a page fault.
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
            what: "a UMEM",
            bytes: len,
            source: e.into(),
        })?;
        Ok(Self::own(base.cast(), len))
    }

    /// Maps `len` bytes of `fd` from `offset` on, shared.
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

    /// Returns the bytes of the mapping.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns false: a mapping has at least one byte.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of the first byte. The caller must keep within [`MmapRegion::len`].
    #[must_use]
    pub const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the `u32` at `offset`.
    ///
    /// # Panics
    /// If it is out of bounds or not aligned. Offsets from outside are checked once, where they enter.
    #[must_use]
    pub fn u32(&self, offset: usize) -> &AtomicU32 {
        assert!(self.holds(offset, 4, 4));
        // SAFETY: in bounds and aligned (mappings start at a page), valid for any bits, and atomic.
        unsafe { self.base.add(offset).cast().as_ref() }
    }

    /// Returns the `u64` at `offset`.
    ///
    /// # Panics
    /// As [`MmapRegion::u32`].
    #[must_use]
    pub fn u64(&self, offset: usize) -> &AtomicU64 {
        assert!(self.holds(offset, 8, 8));
        // SAFETY: as in `u32`.
        unsafe { self.base.add(offset).cast().as_ref() }
    }

    /// Has the processor fetch the cache line at `offset`, which may be out of bounds.
    #[inline]
    pub(crate) fn prefetch(&self, offset: u64) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let at = self.base.as_ptr().wrapping_add(offset as usize);
            // SAFETY: a prefetch only affects the cache, for any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    /// Returns whether `len` bytes at `offset` are within the mapping and aligned.
    #[must_use]
    pub fn holds(&self, offset: usize, len: usize, align: usize) -> bool {
        offset.is_multiple_of(align) && offset.checked_add(len).is_some_and(|end| end <= self.len)
    }
}

impl Drop for MmapRegion {
    fn drop(&mut self) {
        // SAFETY: this mapping was created by this object, and nothing borrows from it any more. If it
        // fails, the memory stays mapped, which is harmless.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn memory_is_zeroed_and_bounded() {
        let m = MmapRegion::anonymous(4096, false).unwrap();
        assert_eq!(m.u64(4088).load(Relaxed), 0);
        assert!(!m.holds(4092, 8, 4));
        assert!(!m.holds(2, 4, 4));
        assert!(!m.holds(usize::MAX - 3, 8, 4));
    }

    #[test]
    #[should_panic(expected = "holds")]
    fn words_out_of_bounds_are_refused() {
        let m = MmapRegion::anonymous(4096, false).unwrap();
        let _ = m.u32(4096);
    }
}
