//! The interface between rings and pages and the memory that contains them.

use std::sync::atomic::Ordering;

/// Memory that another party may write at any time.
///
/// [`crate::SharedMemory`] implements it. The rings are generic over it, so that loom runs the same
/// code against memory whose every interleaving it controls.
///
/// Offsets are in bytes from the start of the region. They follow from a geometry that was checked
/// against [`Memory::len`], never from data of the peer; so an offset out of range is a bug of this
/// crate and panics, as slice indexing does.
pub trait Memory {
    /// Returns the length of the region in bytes.
    fn len(&self) -> usize;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Loads the little-endian `u32` at `at`, a multiple of 4.
    fn load_u32(&self, at: usize, order: Ordering) -> u32;

    /// Stores a little-endian `u32` at `at`, a multiple of 4.
    fn store_u32(&self, at: usize, value: u32, order: Ordering);

    /// Loads the little-endian `u64` at `at`, a multiple of 8.
    fn load_u64(&self, at: usize, order: Ordering) -> u64;

    /// Stores a little-endian `u64` at `at`, a multiple of 8.
    fn store_u64(&self, at: usize, value: u64, order: Ordering);

    /// Loads consecutive words from `at` on, a multiple of 8; each is read once, relaxed.
    #[inline]
    fn load_words<const N: usize>(&self, at: usize) -> [u64; N] {
        std::array::from_fn(|i| self.load_u64(at + i * size_of::<u64>(), Ordering::Relaxed))
    }

    /// Stores consecutive words from `at` on, a multiple of 8; relaxed.
    #[inline]
    fn store_words<const N: usize>(&self, at: usize, words: [u64; N]) {
        for (i, word) in words.into_iter().enumerate() {
            self.store_u64(at + i * size_of::<u64>(), word, Ordering::Relaxed);
        }
    }

    /// Copies `to.len()` bytes from `at` on into private memory; each byte is read once.
    fn copy_out(&self, at: usize, to: &mut [u8]);

    /// Copies `from` to `at`.
    fn copy_in(&self, at: usize, from: &[u8]);

    /// Issues a memory fence.
    fn fence(order: Ordering);

    /// Prefetches the cache line at `at`. Out of range, it does nothing.
    fn prefetch(&self, at: usize) {
        let _ = at;
    }

    /// Copies `from` to `at`, a multiple of 64, in whole cache lines that are not fetched first; the
    /// rest of the last line is overwritten. [`Self::stream_fence`] has to come before the store that
    /// publishes the data.
    #[inline]
    fn stream_in(&self, at: usize, from: &[u8]) {
        self.copy_in(at, from);
    }

    /// Stores words that fill cache lines, at a multiple of 64; otherwise like [`Self::stream_in`].
    #[inline]
    fn stream_words<const N: usize>(&self, at: usize, words: [u64; N]) {
        self.store_words(at, words);
    }

    /// Orders streamed stores before all later stores.
    fn stream_fence() {}
}

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;
