//! Digests of several packets at once.
//!
//! One digest is a chain of some 180 instructions of which each waits for the one before. Sums of digests do not care when
//! they are added up, so packets wait here until there are [`LANES`] of them, and the chains run side by side: in
//! vector registers where the processor has wide ones, which is found out when the program runs.

use crate::PacketDigest;
use crate::digest::{MESSAGE_WORDS, message_words};

/// Packets that are digested together.
pub const LANES: usize = 8;

/// Words of a row of messages, and of one word of the state of each.
type Row = [u64; LANES];
/// Of a message with the word that ends it.
const ROWS: usize = MESSAGE_WORDS + 1;

/// Packets that wait to be digested.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Digests {
    /// By place in the message, then by packet.
    rows: [Row; ROWS],
    /// Words of each message, with the one that ends it.
    lens: [u64; LANES],
    used: usize,
}

impl Default for Digests {
    fn default() -> Self {
        Self { rows: [[0; LANES]; ROWS], lens: [0; LANES], used: 0 }
    }
}

impl Digests {
    /// Packets that wait.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.used
    }

    /// Whether none does.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Adds a packet, as [`PacketDigest::digest`] takes it, and returns its place among those that wait. None, and nothing
    /// was added, if there are [`LANES`] already.
    #[must_use = "a packet that found no place is not digested"]
    #[inline]
    pub fn add(&mut self, header: &[u8], packet_len: u32) -> Option<usize> {
        let lane = self.used;
        if lane >= LANES {
            return None;
        }
        let rows = &mut self.rows;
        let words = message_words(header, packet_len, |i, word| rows[i][lane] = word);
        // What ends a message is its length in bytes, modulo 256, in the highest byte.
        self.rows[words][lane] = (words as u64 * 8) << 56;
        self.lens[lane] = words as u64 + 1;
        self.used += 1;
        Some(lane)
    }

    /// The digests of the packets that wait, by place; places behind them hold anything. None waits afterwards.
    #[inline]
    pub fn finish(&mut self, key: &PacketDigest) -> [u64; LANES] {
        // Places that are not used run along as the shortest message that there is.
        self.lens[self.used..].fill(2);
        self.used = 0;
        sums(key, &self.rows, &self.lens)
    }
}

/// The digests of the columns of `rows`, each as long as `lens` says.
#[allow(unsafe_code)]
#[inline]
fn sums(key: &PacketDigest, rows: &[Row; ROWS], lens: &[u64; LANES]) -> Row {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has what the function was compiled for.
        return unsafe { avx512::sums(key.expose_key(), rows, lens) };
    }
    std::array::from_fn(|lane| {
        let words = (lens[lane] as usize).min(ROWS) - 1;
        key.of_message(rows[..words].iter().map(|row| row[lane]))
    })
}

/// SipHash-1-3 of eight messages side by side.
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
        for place in shortest..longest {
            let going = _mm512_cmpgt_epu64_mask(lens, splat(place));
            let next = compress(state, vector(&rows[place as usize]));
            // Those that have ended keep their state.
            for (word, next) in state.0.iter_mut().zip(next.0) {
                *word = _mm512_mask_mov_epi64(*word, going, next);
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
        // SAFETY: both are 64 bytes of which any are valid.
        unsafe { transmute::<Row, __m512i>(*row) }
    }

    #[allow(unsafe_code)]
    fn row(vector: __m512i) -> Row {
        // SAFETY: as above.
        unsafe { transmute::<__m512i, Row>(vector) }
    }
}
