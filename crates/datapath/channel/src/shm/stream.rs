//! Streaming stores: whole cache lines that bypass the caches.
//!
//! An ordinary store needs its cache line first, and a line of a ring is still owned by the core that
//! read it last: the store waits in the store buffer until that core gives up the line, and all later
//! stores wait behind it. Streamed data is combined in a separate buffer and written when the line is
//! full, so nothing waits. It is not ordered with other stores; a fence has to come before its
//! publication.

#[cfg(target_arch = "x86_64")]
mod arch {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_set_epi64x, _mm_sfence, _mm_stream_si128};

    /// Bytes of one store; four fill a line.
    pub(in crate::shm) const BYTES: usize = 16;

    /// Stores [`BYTES`] bytes.
    ///
    /// # Safety
    /// `to` is a multiple of [`BYTES`], and as many bytes there can be written.
    #[inline(always)]
    pub(in crate::shm) unsafe fn bytes(to: *mut u8, from: &[u8; BYTES]) {
        // SAFETY: aligned and valid by contract; SSE2 is part of x86-64.
        unsafe { _mm_stream_si128(to.cast(), _mm_loadu_si128(from.as_ptr().cast())) };
    }

    /// Stores two words, the lower one first.
    ///
    /// # Safety
    /// As for [`bytes`].
    #[inline(always)]
    pub(in crate::shm) unsafe fn words(to: *mut u8, [low, high]: [u64; 2]) {
        // SAFETY: aligned and valid by contract; SSE2 is part of x86-64.
        unsafe { _mm_stream_si128(to.cast(), _mm_set_epi64x(high.cast_signed(), low.cast_signed())) };
    }

    /// Orders all streamed stores before any later store.
    #[inline(always)]
    pub(in crate::shm) fn fence() {
        // SAFETY: SSE is part of x86-64.
        unsafe { _mm_sfence() };
    }
}

pub(super) use arch::{BYTES, bytes, fence, words};

/// Returns the last `len` bytes of `from`, fewer than [`BYTES`], as words and followed by zeros.
/// Computed in registers, because reading back bytes just assembled in memory would stall.
#[inline(always)]
pub(super) fn last_words(from: &[u8], len: usize) -> [u64; 2] {
    let all = match from.last_chunk::<BYTES>() {
        Some(last) => u128::from_le_bytes(*last) >> (8 * (BYTES - len)),
        None => short(from),
    };
    [all as u64, (all >> 64) as u64]
}

#[cold]
fn short(from: &[u8]) -> u128 {
    from.iter().rev().fold(0, |all, byte| all << 8 | u128::from(*byte))
}
