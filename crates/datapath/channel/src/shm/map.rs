//! Mappings of files, and the only dereferences of shared memory in this project.
//!
//! The other side may write at any time, so a plain read would be a data race and the compiler might
//! read twice. Every access here is a relaxed (or stronger) atomic access instead: of whole aligned
//! words where possible, of bytes at unaligned ends. On x86-64 and arm64 each is one ordinary load or
//! store. Rust's memory model does not cover other processes; within one process (tests) honest ends
//! never race, and for a dishonest one the model requires that each access is atomic. Copies of two
//! words at a time ([`vector`]) are volatile, which is equivalent: the access is made once, as
//! written, and the compiler assumes nothing about it.

#[cfg(target_arch = "x86_64")]
use super::stream;
use super::{Mapping, SharedMemory, vector};
#[cfg(target_arch = "x86_64")]
use crate::memory::LINE;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// A shared mapping of a file, unmapped on drop.
pub(super) struct Mmap {
    base: *mut c_void,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Mmap {}
// SAFETY: `Mmap` itself never dereferences `base`.
unsafe impl Sync for Mmap {}

impl Mmap {
    /// Maps the first `len` bytes of `fd`, all pages present.
    pub(super) fn new(fd: impl AsFd, len: usize) -> Result<Self, Errno> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        Self::map(fd, len, prot, flags)
    }

    /// Maps the first `len` bytes of `fd` read-only. Nothing stores to it, which would be a fault.
    pub(super) fn read_only(fd: impl AsFd, len: usize) -> Result<Self, Errno> {
        Self::map(fd, len, ProtFlags::READ, MapFlags::SHARED | MapFlags::POPULATE)
    }

    fn map(fd: impl AsFd, len: usize, prot: ProtFlags, flags: MapFlags) -> Result<Self, Errno> {
        // SAFETY: a new mapping at an address of the kernel's choice aliases no Rust object.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, fd, 0) }?;
        Ok(Self { base, len })
    }
}

impl Drop for Mmap {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and `SharedMemory` owns this value, so no pointer into
        // it is left. Unmapping an existing mapping does not fail.
        let _ = unsafe { rustix::mm::munmap(self.base, self.len) };
    }
}

// SAFETY: `base` is the start of a page-aligned mapping of at least `len` bytes that lives until drop
// and of which no references are made. That it stays readable is what seals and `sigbus` are for.
unsafe impl Mapping for Mmap {
    fn base(&self) -> *mut u8 {
        self.base.cast()
    }

    fn len(&self) -> usize {
        self.len
    }
}

/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// Bytes of half a word.
const HALF: usize = size_of::<u32>();

impl SharedMemory {
    /// Panics unless `bytes` bytes at `at` lie within the region and `at` is a multiple of `align`.
    #[inline]
    fn check(&self, at: usize, bytes: usize, align: usize) {
        assert!(
            at <= self.len && bytes <= self.len - at && at.is_multiple_of(align),
            "{bytes} bytes at {at} are not within a region of {}",
            self.len
        );
    }

    #[inline]
    pub(super) fn word32(&self, at: usize) -> &AtomicU32 {
        self.check(at, size_of::<u32>(), align_of::<AtomicU32>());
        // SAFETY: in range and aligned (checked; `base` is aligned to 64), alive as long as `self`,
        // and every access to the region by this process is atomic.
        unsafe { AtomicU32::from_ptr(self.base.add(at).cast()) }
    }

    #[inline]
    pub(super) fn word64(&self, at: usize) -> &AtomicU64 {
        self.check(at, WORD, WORD);
        // SAFETY: as in `word32`.
        unsafe { AtomicU64::from_ptr(self.base.add(at).cast()) }
    }

    #[inline]
    pub(super) fn words_out<const N: usize>(&self, at: usize) -> [u64; N] {
        self.check(at, N * WORD, WORD);
        // SAFETY: in range and aligned (checked); as in `word32`.
        std::array::from_fn(|i| u64::from_le(unsafe { self.load_word(at + i * WORD) }))
    }

    #[inline]
    pub(super) fn words_in<const N: usize>(&self, at: usize, words: [u64; N]) {
        self.check(at, N * WORD, WORD);
        for (i, word) in words.into_iter().enumerate() {
            // SAFETY: in range and aligned (checked); as in `word32`.
            unsafe { self.store_word(at + i * WORD, word.to_le()) };
        }
    }

    /// Copies bytes out: in vectors first, the rest in ever smaller units. Not inlined, because its
    /// callers need their registers.
    #[inline(never)]
    pub(super) fn copy_bytes_out(&self, at: usize, to: &mut [u8]) {
        self.check(at, to.len(), 1);
        let (mut place, mut to) = (at, to);
        if !at.is_multiple_of(vector::BYTES) {
            // Headers are aligned, except for rewritten ones.
            let head;
            (head, to) = to.split_at_mut(to.len().min(at.wrapping_neg() % vector::BYTES));
            self.bytes_out(at, head);
            place += head.len();
        }
        let (vectors, to) = to.as_chunks_mut::<{ vector::BYTES }>();
        for vector in vectors {
            // SAFETY: `place` is aligned for `load`, and its bytes were checked above; as in `word32`.
            *vector = unsafe { vector::load(self.base.add(place)) };
            place += vector::BYTES;
        }
        let (words, to) = to.as_chunks_mut::<WORD>();
        if let [word] = words {
            // SAFETY: `place` is aligned to a word and `WORD` bytes from it on were checked above; as
            // in `word32`.
            *word = unsafe { self.load_word(place) }.to_ne_bytes();
            place += WORD;
        }
        let (halves, to) = to.as_chunks_mut::<HALF>();
        if let [half] = halves {
            // SAFETY: `place` is aligned to half a word, the bytes were checked above; as in `word32`.
            let word = unsafe { AtomicU32::from_ptr(self.base.add(place).cast()) };
            *half = word.load(Ordering::Relaxed).to_ne_bytes();
            place += HALF;
        }
        self.bytes_out(place, to);
    }

    /// Copies bytes in, like [`Self::copy_bytes_out`].
    #[inline(never)]
    pub(super) fn copy_bytes_in(&self, at: usize, from: &[u8]) {
        self.check(at, from.len(), 1);
        let (mut place, mut from) = (at, from);
        if !at.is_multiple_of(vector::BYTES) {
            let head;
            (head, from) = from.split_at(from.len().min(at.wrapping_neg() % vector::BYTES));
            self.bytes_in(at, head);
            place += head.len();
        }
        let (vectors, from) = from.as_chunks::<{ vector::BYTES }>();
        for vector in vectors {
            // SAFETY: `place` is aligned for `store`, and its bytes were checked above; as in `word32`.
            unsafe { vector::store(self.base.add(place), vector) };
            place += vector::BYTES;
        }
        let (words, from) = from.as_chunks::<WORD>();
        if let [word] = words {
            // SAFETY: `place` is aligned to a word and `WORD` bytes from it on were checked above; as
            // in `word32`.
            unsafe { self.store_word(place, u64::from_ne_bytes(*word)) };
            place += WORD;
        }
        let (halves, from) = from.as_chunks::<HALF>();
        if let [half] = halves {
            // SAFETY: `place` is aligned to half a word, the bytes were checked above; as in `word32`.
            let word = unsafe { AtomicU32::from_ptr(self.base.add(place).cast()) };
            word.store(u32::from_ne_bytes(*half), Ordering::Relaxed);
            place += HALF;
        }
        self.bytes_in(place, from);
    }

    /// Loads a word.
    ///
    /// # Safety
    /// `at` is a multiple of `WORD`, and `WORD` bytes from it on are in range.
    #[inline]
    unsafe fn load_word(&self, at: usize) -> u64 {
        // SAFETY: in range and aligned by contract; as in `word32`.
        unsafe { AtomicU64::from_ptr(self.base.add(at).cast()) }.load(Ordering::Relaxed)
    }

    /// Stores a word.
    ///
    /// # Safety
    /// As for [`Self::load_word`].
    #[inline]
    unsafe fn store_word(&self, at: usize, word: u64) {
        // SAFETY: in range and aligned by contract; as in `word32`.
        unsafe { AtomicU64::from_ptr(self.base.add(at).cast()) }.store(word, Ordering::Relaxed);
    }

    /// Copies bytes out one by one. The caller has checked the range.
    #[inline]
    fn bytes_out(&self, at: usize, to: &mut [u8]) {
        for (i, byte) in to.iter_mut().enumerate() {
            // SAFETY: in range, as the caller checked; a byte is always aligned; as in `word32`.
            *byte = unsafe { AtomicU8::from_ptr(self.base.add(at + i)) }.load(Ordering::Relaxed);
        }
    }

    /// Copies bytes in one by one. The caller has checked the range.
    #[inline]
    fn bytes_in(&self, at: usize, from: &[u8]) {
        for (i, byte) in from.iter().enumerate() {
            // SAFETY: in range, as the caller checked; a byte is always aligned; as in `word32`.
            unsafe { AtomicU8::from_ptr(self.base.add(at + i)) }.store(*byte, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn prefetch_line(&self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        if at < self.len {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: SSE is part of x86-64; prefetching has no effect on memory, and the address is
            // in range.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.base.add(at).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(super) fn stream_bytes_in(&self, at: usize, from: &[u8]) {
        self.check(at, from.len().next_multiple_of(LINE), LINE);
        let mut place = at;
        let (chunks, rest) = from.as_chunks::<{ stream::BYTES }>();
        for chunk in chunks {
            // SAFETY: `place` is aligned, and its line is in range (checked); as in `word32`.
            unsafe { stream::bytes(self.base.add(place), chunk) };
            place += stream::BYTES;
        }
        if !rest.is_empty() {
            // SAFETY: as above.
            unsafe { stream::words(self.base.add(place), stream::last_words(from, rest.len())) };
            place += stream::BYTES;
        }
        while !place.is_multiple_of(LINE) {
            // SAFETY: as above.
            unsafe { stream::words(self.base.add(place), [0; 2]) };
            place += stream::BYTES;
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(super) fn stream_words_in<const N: usize>(&self, at: usize, words: [u64; N]) {
        self.check(at, N * WORD, LINE);
        let (pairs, rest) = words.as_chunks::<2>();
        debug_assert!(rest.is_empty(), "lines are full");
        for (i, pair) in pairs.iter().enumerate() {
            // SAFETY: in range and aligned (checked); as in `word32`.
            unsafe { stream::words(self.base.add(at + i * stream::BYTES), pair.map(u64::to_le)) };
        }
    }
}
