//! A reproducible campaign of damaged inputs within `cargo test`.
//!
//! The targets of coverage-guided fuzzing are in `fuzz/`.

/// A small generator of pseudo-random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the generator of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`, or 0.
    pub const fn below(&mut self, n: usize) -> usize {
        let n = if n == 0 { 1 } else { n as u64 };
        (self.number() % n) as usize
    }

    /// Returns fewer than `most` uniform bytes.
    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most)).map(|_| self.number() as u8).collect()
    }

    /// Returns the input with a few parts changed, removed, repeated or replaced by a part of another input.
    #[must_use]
    pub fn damaged(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            let end = (at + 1 + self.below(16)).min(bytes.len());
            match self.below(7) {
                0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                1 if !bytes.is_empty() => bytes[at] = self.number() as u8,
                // Numbers at the limits of their ranges.
                2 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
                3 => drop(bytes.drain(at.min(end)..end)),
                4 => bytes.truncate(at),
                5 => {
                    let piece = bytes[at.min(end)..end].to_vec();
                    bytes.splice(at..at, piece);
                }
                _ => {
                    let from = self.below(other.len());
                    let piece = other[from..].iter().take(1 + self.below(16)).copied();
                    let piece: Vec<u8> = piece.collect();
                    bytes.splice(at..at, piece);
                }
            }
        }
        bytes
    }
}

/// Feeds `target` every seed, then damaged seeds and random bytes in turn, until the campaign's bytes are
/// used up.
///
/// # Panics
/// There is no seed: random bytes alone reach little of a parser.
pub fn campaign(seeds: &[Vec<u8>], mut target: impl FnMut(&[u8])) {
    assert!(!seeds.is_empty(), "a campaign begins with inputs that are right");
    seeds.iter().for_each(|seed| target(seed));
    let budget = p4shield_need::extent(1_000_000, 20_000_000);
    let (mut random, mut spent) = (Random::new(2026), 0);
    while spent < budget {
        let bytes = if random.below(8) == 0 {
            random.bytes(512)
        } else {
            let (seed, other) = (random.below(seeds.len()), random.below(seeds.len()));
            random.damaged(&seeds[seed], &seeds[other])
        };
        spent += bytes.len() + 1;
        target(&bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_campaign_is_reproducible_and_near_its_seeds() {
        let run = || {
            let (mut right, mut all) = (0, 0);
            campaign(&[b"{\"do\":\"list\"}".to_vec(), b"7".to_vec()], |bytes| {
                right += usize::from(bytes.starts_with(b"{\"do\":"));
                all += 1;
            });
            (right, all)
        };
        let (right, all) = run();
        assert!(right > 100 && all > right, "{right} of {all}");
        assert_eq!(run(), (right, all));
    }
}
