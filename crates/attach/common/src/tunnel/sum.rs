//! The Internet checksum (RFC 1071) as arithmetic: sums of 16-bit words modulo 65535, so that what changed can be taken
//! out and put in without reading the rest.

/// What sums are taken modulo.
const MODULUS: u64 = 0xffff;

/// A sum of big-endian 16-bit words, as a number below 65535.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// Of bytes that begin at an even place of what is summed; a last odd byte is the first of its word.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let words = bytes.chunks_exact(2);
        let last = words.remainder().first().map_or(0, |b| u64::from(*b) << 8);
        // No packet has so many words that this overflows.
        let sum: u64 = words.map(|w| u64::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        Self((sum + last) % MODULUS)
    }

    /// Of a number.
    pub(super) fn word(word: u16) -> Self {
        Self(u64::from(word) % MODULUS)
    }

    /// What a checksum's field says that the sum is of all that it covers but itself.
    pub(super) fn said_by(field: u16) -> Self {
        Self::word(!field)
    }

    /// The field of a checksum over what sums up to this, as UDP has it: never zero.
    pub(super) fn field(self) -> u16 {
        // From 1 to 65535.
        (MODULUS - self.0) as u16
    }

    /// Of the same bytes if they begin `at` bytes further: at an odd place each is the other half of its word.
    #[must_use]
    pub fn at(self, at: usize) -> Self {
        if at.is_multiple_of(2) { self } else { Self((self.0 << 8) % MODULUS) }
    }
}

impl std::ops::Add for Sum {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self((self.0 + other.0) % MODULUS)
    }
}

impl std::ops::Sub for Sum {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self((self.0 + MODULUS - other.0) % MODULUS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_wherever_they_are_cut() {
        let bytes: Vec<u8> = (0..=255).map(|b: u8| b.wrapping_mul(31)).collect();
        for cut in 0..bytes.len() {
            let (front, back) = bytes.split_at(cut);
            assert_eq!(Sum::of(front) + Sum::of(back).at(cut), Sum::of(&bytes), "{cut}");
            assert_eq!(Sum::of(&bytes) - Sum::of(front), Sum::of(back).at(cut), "{cut}");
        }
    }

    /// The example of RFC 1071, section 3.
    #[test]
    fn the_rfcs_example() {
        let sum = Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum, Sum::word(0xddf2));
        assert_eq!((sum.field(), Sum::said_by(sum.field())), (!0xddf2, sum));
        assert_eq!(Sum::default().field(), 0xffff, "a field of zero would say that there is no checksum");
    }
}
