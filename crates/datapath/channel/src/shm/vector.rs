//! The widest loads and stores that every processor of an architecture has.
//!
//! A header takes half as many stores as with words, hence half as many entries of the store buffer,
//! where a store waits for its cache line from the other core.

#[cfg(target_arch = "x86_64")]
mod arch {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128};

    /// Bytes of a vector.
    pub(in crate::shm) const BYTES: usize = size_of::<__m128i>();

    /// Loads a vector, in one access.
    ///
    /// # Safety
    /// `from` is a multiple of [`BYTES`], and as many bytes there can be read.
    #[inline(always)]
    pub(in crate::shm) unsafe fn load(from: *const u8) -> [u8; BYTES] {
        let mut to = [0; BYTES];
        // SAFETY: aligned and valid by contract; SSE2 is part of x86-64.
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), from.cast::<__m128i>().read_volatile()) };
        to
    }

    /// Stores a vector, in one access.
    ///
    /// # Safety
    /// `to` is a multiple of [`BYTES`], and as many bytes there can be written.
    #[inline(always)]
    pub(in crate::shm) unsafe fn store(to: *mut u8, from: &[u8; BYTES]) {
        // SAFETY: aligned and valid by contract; SSE2 is part of x86-64.
        unsafe { to.cast::<__m128i>().write_volatile(_mm_loadu_si128(from.as_ptr().cast())) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod arch {
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Bytes of a vector: a word.
    pub(in crate::shm) const BYTES: usize = size_of::<u64>();

    /// Loads a vector, in one access.
    ///
    /// # Safety
    /// `from` is a multiple of [`BYTES`], and as many bytes there can be read, atomically.
    #[inline(always)]
    pub(in crate::shm) unsafe fn load(from: *const u8) -> [u8; BYTES] {
        // SAFETY: aligned and valid by contract.
        unsafe { AtomicU64::from_ptr(from.cast_mut().cast()) }.load(Ordering::Relaxed).to_ne_bytes()
    }

    /// Stores a vector, in one access.
    ///
    /// # Safety
    /// `to` is a multiple of [`BYTES`], and as many bytes there can be written, atomically.
    #[inline(always)]
    pub(in crate::shm) unsafe fn store(to: *mut u8, from: &[u8; BYTES]) {
        // SAFETY: aligned and valid by contract.
        unsafe { AtomicU64::from_ptr(to.cast()) }.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
    }
}

pub(super) use arch::{BYTES, load, store};
