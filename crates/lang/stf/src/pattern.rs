//! Patterns of expected packets.

/// A pattern of nibbles, each given or open.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Pattern {
    nibbles: Vec<Option<u8>>,
    exact: bool,
}

/// A mismatch between a packet and a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The packet is shorter than the pattern.
    Short {
        /// Expected length in bytes.
        expected: usize,
        /// Length of the packet in bytes.
        got: usize,
    },
    /// The packet is longer than a pattern that ends with `$`.
    Long {
        /// Expected length in bytes.
        expected: usize,
        /// Length of the packet in bytes.
        got: usize,
    },
    /// The bytes at these offsets differ.
    Bytes(Vec<usize>),
}

impl Pattern {
    /// Returns a pattern that matches exactly these bytes.
    #[must_use]
    pub fn exactly(bytes: &[u8]) -> Self {
        let nibbles = bytes.iter().flat_map(|b| [Some(b >> 4), Some(b & 15)]).collect();
        Self { nibbles, exact: true }
    }

    /// Parses hexadecimal digits, `*` for an open one, spaces, and a `$` at the end.
    ///
    /// # Errors
    /// Returns the first invalid character.
    pub fn parse(text: &str) -> Result<Self, char> {
        let text = text.trim_end();
        let (digits, exact) = text.strip_suffix('$').map_or((text, false), |t| (t, true));
        let mut nibbles = Vec::with_capacity(digits.len());
        for c in digits.chars().filter(|c| !c.is_whitespace()) {
            match c {
                '*' => nibbles.push(None),
                c => nibbles.push(Some(c.to_digit(16).ok_or(c)? as u8)),
            }
        }
        Ok(Self { nibbles, exact })
    }

    /// Returns the length of the pattern in bytes; an odd nibble counts as a byte.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nibbles.len().div_ceil(2)
    }

    /// Returns whether the pattern has no nibbles.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nibbles.is_empty()
    }

    /// Checks whether a packet matches the pattern.
    ///
    /// # Errors
    /// Returns the mismatch.
    pub fn matches(&self, packet: &[u8]) -> Result<(), Mismatch> {
        let (expected, got) = (self.len(), packet.len());
        let differs = |i: usize| {
            let byte = packet[i];
            let have = [byte >> 4, byte & 15];
            (0..2).any(|n| self.nibbles.get(2 * i + n).copied().flatten().is_some_and(|want| want != have[n]))
        };
        let wrong: Vec<usize> = (0..expected.min(got)).filter(|i| differs(*i)).collect();
        if !wrong.is_empty() {
            return Err(Mismatch::Bytes(wrong));
        }
        if got < expected {
            return Err(Mismatch::Short { expected, got });
        }
        if self.exact && got > expected {
            return Err(Mismatch::Long { expected, got });
        }
        Ok(())
    }

    /// Returns the two digits of a byte.
    #[must_use]
    pub fn byte(&self, i: usize) -> String {
        let digit = |n: usize| match self.nibbles.get(n) {
            Some(Some(d)) => char::from_digit((*d).into(), 16).unwrap_or('?'),
            Some(None) => '*',
            None => ' ',
        };
        [digit(2 * i), digit(2 * i + 1)].iter().collect()
    }

    /// Returns the bytes, with zeros for open digits.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let digit = |n: usize| self.nibbles.get(n).copied().flatten().unwrap_or(0);
        (0..self.len()).map(|i| digit(2 * i) << 4 | digit(2 * i + 1)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, packet: &[u8]) -> Result<(), Mismatch> {
        Pattern::parse(pattern).expect("a pattern").matches(packet)
    }

    #[test]
    fn a_prefix_suffices_unless_the_line_ends_with_dollar() {
        assert_eq!(matches("01 02", &[1, 2, 3]), Ok(()));
        assert_eq!(matches("01 02 $", &[1, 2, 3]), Err(Mismatch::Long { expected: 2, got: 3 }));
        assert_eq!(matches("0102$", &[1, 2]), Ok(()));
        assert_eq!(matches("0102", &[1]), Err(Mismatch::Short { expected: 2, got: 1 }));
    }

    #[test]
    fn a_star_leaves_a_nibble_open() {
        assert_eq!(matches("a* *b", &[0xa7, 0x7b]), Ok(()));
        assert_eq!(matches("a* *b c", &[0xb7, 0x7b, 0xc1]), Err(Mismatch::Bytes(vec![0])));
        assert_eq!(matches("0", &[0x0f]), Ok(()));
    }

    #[test]
    fn other_characters_are_refused() {
        assert_eq!(Pattern::parse("01 x2"), Err('x'));
        assert_eq!(Pattern::parse("01$02"), Err('$'));
    }
}
