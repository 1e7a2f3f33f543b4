//! What rings and pages ask of the memory they live in.

use std::sync::atomic::Ordering;

/// Memory that another party may write at any time.
///
/// [`crate::SharedMemory`] is the one that counts. Being generic over it is what lets loom run the very code of
/// the rings against memory whose every interleaving it controls.
///
/// Offsets are in bytes, from the start of the region. They are always computed from a geometry that was checked
/// against [`Memory::len`], never from what the peer wrote; so an offset out of range is a bug of this crate and
/// panics, as indexing a slice does.
pub trait Memory {
    /// Bytes of the region.
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

    /// Loads words one after the other from `at` on, a multiple of 8; each is read once, relaxed.
    #[inline]
    fn load_words<const N: usize>(&self, at: usize) -> [u64; N] {
        std::array::from_fn(|i| self.load_u64(at + i * size_of::<u64>(), Ordering::Relaxed))
    }

    /// Stores words one after the other from `at` on, a multiple of 8; relaxed.
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

    /// A memory fence.
    fn fence(order: Ordering);

    /// Tells the processor that the cache line at `at` will be read soon. Out of range: nothing happens.
    fn prefetch(&self, at: usize) {
        let _ = at;
    }

    /// Copies `from` to `at`, a multiple of 64, by whole cache lines that need not be fetched before: what stands
    /// behind it in its last line is lost. [`Self::stream_fence`] has to come before the store that publishes it.
    #[inline]
    fn stream_in(&self, at: usize, from: &[u8]) {
        self.copy_in(at, from);
    }

    /// Stores words that fill cache lines, at a multiple of 64; otherwise as [`Self::stream_in`].
    #[inline]
    fn stream_words<const N: usize>(&self, at: usize, words: [u64; N]) {
        self.store_words(at, words);
    }

    /// Orders what was streamed before every later store.
    fn stream_fence() {}
}

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;
