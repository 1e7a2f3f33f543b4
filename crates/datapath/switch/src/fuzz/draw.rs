//! Choices, drawn from bytes.

/// Bytes that are not used up yet. Behind their end, everything is 0.
pub(super) struct Draw<'a>(pub(super) &'a [u8]);

impl<'a> Draw<'a> {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(super) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub(super) fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Draws a number below `n`, which is 1 to 256.
    pub(super) fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n.max(1)
    }

    /// Takes up to `most` bytes.
    pub(super) fn take(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Takes up to `most` bytes and makes them `len` long.
    pub(super) fn filled(&mut self, most: usize, len: usize) -> Vec<u8> {
        let mut bytes = self.take(most.min(len)).to_vec();
        bytes.resize(len, 0);
        bytes
    }
}
