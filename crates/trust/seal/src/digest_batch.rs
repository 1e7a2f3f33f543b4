//! Digests of several packets at once.
//!
//! One digest is a chain of about 180 dependent instructions. A sum of digests does not depend on
//! their order or time, so packets wait here until there are [`LANES`] of them, and the chains run in
//! parallel: in AVX-512 registers if the processor has them, which is detected at run time.

use crate::PacketDigest;
use crate::digest::{MESSAGE_WORDS, message_words};

/// Packets that are digested in parallel.
pub const LANES: usize = 8;

/// One word of each message, or of each state.
type Row = [u64; LANES];
/// Words of the longest message, including its last word, the length.
const ROWS: usize = MESSAGE_WORDS + 1;

/// Packets that wait for their digests.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct DigestBatch {
    /// By position in the message, then by packet.
    rows: [Row; ROWS],
    /// Words of each message, including its last word.
    lens: [u64; LANES],
    used: usize,
}

impl Default for DigestBatch {
    fn default() -> Self {
        Self { rows: [[0; LANES]; ROWS], lens: [0; LANES], used: 0 }
    }
}

impl DigestBatch {
    /// Returns how many packets wait.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.used
    }

    /// Whether no packet waits.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Adds a packet, with the arguments of [`PacketDigest::digest`], and returns its lane. None, and
    /// the packet is not added, if [`LANES`] packets wait already.
    #[must_use = "a packet without a lane has no digest"]
    #[inline]
    pub fn add(&mut self, header: &[u8], packet_len: u32) -> Option<usize> {
        let lane = self.used;
        if lane >= LANES {
            return None;
        }
        let rows = &mut self.rows;
        let words = message_words(header, packet_len, |i, word| rows[i][lane] = word);
        // The last word has the message's length in bytes, modulo 256, in its highest byte.
        self.rows[words][lane] = (words as u64 * 8) << 56;
        self.lens[lane] = words as u64 + 1;
        self.used += 1;
        Some(lane)
    }

    /// Returns the digests of the waiting packets, by lane; unused lanes have arbitrary values. No
    /// packet waits afterwards.
    #[inline]
    pub fn finish(&mut self, key: &PacketDigest) -> [u64; LANES] {
        // Unused lanes contain the shortest message.
        self.lens[self.used..].fill(2);
        self.used = 0;
        sums(key, &self.rows, &self.lens)
    }
}

/// Returns the digests of the columns of `rows`, whose lengths are `lens`.
#[allow(unsafe_code)]
#[inline]
fn sums(key: &PacketDigest, rows: &[Row; ROWS], lens: &[u64; LANES]) -> Row {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has AVX-512F, for which the function is compiled.
        return unsafe { avx512::sums(key.expose_key(), rows, lens) };
    }
    std::array::from_fn(|lane| {
        let words = (lens[lane] as usize).min(ROWS) - 1;
        key.of_message(rows[..words].iter().map(|row| row[lane]))
    })
}

/// SipHash-1-3 of eight messages in parallel.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{LANES, ROWS, Row};
    use std::arch::x86_64::{
        __m512i, _mm512_add_epi64, _mm512_cmpgt_epu64_mask, _mm512_mask_mov_epi64, _mm512_rol_epi64,
        _mm512_set1_epi64, _mm512_xor_si512,
    };
    use std::mem::transmute;

    #[derive(Clone, Copy)]
    struct State([__m512i; 4]);

    /// As [`super::sums`].
    #[target_feature(enable = "avx512f")]
    pub(super) fn sums(key: &[u8; 16], rows: &[Row; ROWS], lens: &[u64; LANES]) -> Row {
        let [k0, k1] = [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|i| key[at + i])));
        let mut state = State([
            splat(k0 ^ 0x736f_6d65_7073_6575),
            splat(k1 ^ 0x646f_7261_6e64_6f6d),
            splat(k0 ^ 0x6c79_6765_6e65_7261),
            splat(k1 ^ 0x7465_6462_7974_6573),
        ]);
        let shortest = lens.iter().fold(ROWS as u64, |n, len| n.min(*len));
        let longest = lens.iter().fold(0, |n, len| n.max(*len)).min(ROWS as u64);
        for row in &rows[..shortest as usize] {
            state = compress(state, vector(row));
        }
        let lens = vector(lens);
        for i in shortest..longest {
            let active = _mm512_cmpgt_epu64_mask(lens, splat(i));
            let next = compress(state, vector(&rows[i as usize]));
            // Messages that have ended keep their state.
            for (word, next) in state.0.iter_mut().zip(next.0) {
                *word = _mm512_mask_mov_epi64(*word, active, next);
            }
        }
        state.0[2] = _mm512_xor_si512(state.0[2], splat(0xff));
        let State([a, b, c, d]) = round(round(round(state)));
        row(_mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d)))
    }

    #[target_feature(enable = "avx512f")]
    fn compress(mut state: State, message: __m512i) -> State {
        state.0[3] = _mm512_xor_si512(state.0[3], message);
        state = round(state);
        state.0[0] = _mm512_xor_si512(state.0[0], message);
        state
    }

    #[target_feature(enable = "avx512f")]
    fn round(State([a, b, c, d]): State) -> State {
        let (a, c) = (_mm512_add_epi64(a, b), _mm512_add_epi64(c, d));
        let b = _mm512_xor_si512(_mm512_rol_epi64::<13>(b), a);
        let d = _mm512_xor_si512(_mm512_rol_epi64::<16>(d), c);
        let a = _mm512_rol_epi64::<32>(a);
        let (c, a) = (_mm512_add_epi64(c, b), _mm512_add_epi64(a, d));
        let b = _mm512_xor_si512(_mm512_rol_epi64::<17>(b), c);
        let d = _mm512_xor_si512(_mm512_rol_epi64::<21>(d), a);
        State([a, b, _mm512_rol_epi64::<32>(c), d])
    }

    #[target_feature(enable = "avx512f")]
    fn splat(word: u64) -> __m512i {
        _mm512_set1_epi64(word.cast_signed())
    }

    #[allow(unsafe_code)]
    fn vector(row: &Row) -> __m512i {
        // SAFETY: both types have 64 bytes, and every bit pattern is valid.
        unsafe { transmute::<Row, __m512i>(*row) }
    }

    #[allow(unsafe_code)]
    fn row(vector: __m512i) -> Row {
        // SAFETY: as above.
        unsafe { transmute::<__m512i, Row>(vector) }
    }
}
