//! Bytes of a packet that waits, in memory that is allocated once.
//!
//! Hundreds of packets wait at a time, and buffers for the longest ones lie on pages of their own: a
//! processor has neither their cache lines nor the addresses of their pages at hand when a packet goes on. So
//! short ones lie in the place itself, behind what is known of their packet.

/// Bytes of which up to `SHORT` are kept in place.
#[derive(Debug)]
pub(crate) struct Kept<const SHORT: usize> {
    /// Length of those in place; `None`: they are in `long`.
    len: Option<u16>,
    short: [u8; SHORT],
    long: Vec<u8>,
}

impl<const SHORT: usize> Default for Kept<SHORT> {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl<const SHORT: usize> Kept<SHORT> {
    /// Makes room for so many bytes.
    pub(crate) fn with_capacity(most: usize) -> Self {
        Self { len: Some(0), short: [0; SHORT], long: Vec::with_capacity(most) }
    }

    /// Keeps a copy of these bytes.
    #[inline]
    pub(crate) fn set(&mut self, bytes: &[u8]) {
        if let Some(short) = self.short.get_mut(..bytes.len()) {
            short.copy_from_slice(bytes);
            self.len = Some(bytes.len() as u16);
        } else {
            self.fill(|long| {
                long.clear();
                long.extend_from_slice(bytes);
            });
        }
    }

    /// Keeps what `write` leaves in the buffer.
    pub(crate) fn fill(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.len = None;
        write(&mut self.long);
    }

    /// Returns the bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self.len {
            Some(len) => &self.short[..usize::from(len)],
            None => &self.long,
        }
    }

    /// Returns the bytes, to change them.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self.len {
            Some(len) => &mut self.short[..usize::from(len)],
            None => &mut self.long,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_any_length_are_kept_until_the_next_ones() {
        let mut kept = Kept::<4>::with_capacity(8);
        let before = kept.long.as_ptr();
        for bytes in [&[1, 2, 3, 4, 5][..], &[6], &[], &[7; 8], &[8; 4]] {
            kept.set(bytes);
            assert_eq!(kept.bytes(), bytes);
            assert_eq!(kept.bytes_mut(), bytes);
        }
        kept.fill(|long| long.clone_from(&vec![9; 3]));
        assert_eq!(kept.bytes(), [9; 3]);
        assert_eq!(kept.long.as_ptr(), before, "nothing is allocated");
    }
}
