//! Shared code of fuzz campaigns.

/// A deterministic generator, so that every run of a campaign is the same.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    /// Returns the next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `n`, or 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Returns the size of a campaign in bytes.
pub(crate) fn fuzz_bytes() -> usize {
    p4shield_need::extent(1_000_000, 20_000_000)
}
