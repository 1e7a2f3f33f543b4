//! The Internet checksum (RFC 1071) as arithmetic, so that a change is applied without reading the
//! rest (RFC 1624).
//!
//! A checksum is the complement of a ones' complement sum of 16-bit words. [`Sum`] is that sum:
//! sums of parts are added, a part that changes is subtracted and its replacement added, and
//! [`Sum::checksum`] gives the field.

use core::ops::{Add, Sub};

/// A ones' complement sum of big-endian 16-bit words.
///
/// Zero has two forms, 0 and 0xffff, which compare equal. A sum is 0 only if every word is zero:
/// RFC 1071's addition never returns to it, nor does RFC 1624's subtraction. So a checksum that was
/// updated equals the one that is computed from all bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u16);

impl Sum {
    /// Sums bytes that begin at an even offset of what is summed; a last odd byte is the first of its word.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        // Words in the machine's order fold to the same bytes (RFC 1071 section 2 B), and sums of
        // 32-bit words to the same sum as those of their halves; no slice has so many that this
        // overflows.
        let (words, rest) = bytes.as_chunks::<4>();
        let sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        Self(u16::from_be(fold(sum + u64::from(u32::from_ne_bytes(last)))))
    }

    /// The sum of one number.
    #[must_use]
    pub const fn word(word: u16) -> Self {
        Self(word)
    }

    /// The sum that a checksum's field claims for all bytes that it covers but itself.
    #[must_use]
    pub const fn claimed(checksum: u16) -> Self {
        Self(!checksum)
    }

    /// The sum of the same bytes if they begin at this offset: at an odd one each is the other half
    /// of its word.
    #[must_use]
    pub const fn at(self, offset: usize) -> Self {
        if offset.is_multiple_of(2) { self } else { Self(self.0.swap_bytes()) }
    }

    /// Returns the sum itself, which is what a checksum's field holds while the checksum is left to
    /// be completed.
    #[must_use]
    pub const fn folded(self) -> u16 {
        self.0
    }

    /// Returns the checksum's field, in host byte order.
    #[must_use]
    pub const fn checksum(self) -> u16 {
        !self.0
    }

    /// Returns the checksum's field as UDP has it: never zero, which says that there is none (RFC 768).
    #[must_use]
    pub const fn udp_checksum(self) -> u16 {
        if self.0 == !0 { !0 } else { !self.0 }
    }
}

const fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

impl Add for Sum {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(fold(u64::from(self.0) + u64::from(other.0)))
    }
}

impl Sub for Sum {
    type Output = Self;
    /// Takes a part out by adding its complement (RFC 1624 section 3, equation 3).
    fn sub(self, other: Self) -> Self {
        self + Self(!other.0)
    }
}

impl PartialEq for Sum {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || (self.0 ^ other.0 == !0 && (self.0 == 0 || other.0 == 0))
    }
}

impl Eq for Sum {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 1071 section 3 and RFC 1624 section 4.
    #[test]
    fn the_examples_of_both_rfcs_hold() {
        let sum = Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!((sum.folded(), sum.checksum()), (0xddf2, !0xddf2));
        assert_eq!(Sum::claimed(sum.checksum()), sum);
        let updated = Sum::claimed(0xdd2f) - Sum::word(0x5555) + Sum::word(0x3285);
        assert_eq!(updated.checksum(), 0x0000, "and not 0xffff, as RFC 1141 has it");
    }

    #[test]
    fn both_zeros_are_equal_and_only_udp_avoids_one() {
        assert_eq!(Sum::word(0), Sum::word(0xffff));
        assert_ne!(Sum::word(1), Sum::word(0xfffe));
        assert_eq!((Sum::of(&[0; 8]).checksum(), Sum::word(0xffff).checksum()), (0xffff, 0));
        assert_eq!((Sum::of(&[0; 8]).udp_checksum(), Sum::word(0xffff).udp_checksum()), (0xffff, 0xffff));
    }
}
