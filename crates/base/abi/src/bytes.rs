//! Encoding and decoding of little-endian integers in a byte slice.
//!
//! Sealed records are small, so they are encoded field by field instead of being cast: without
//! padding, alignment or `unsafe`.

/// Reads consecutive fields. A read past the end returns zero, and [`Reader::ok`] reports it.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    ok: bool,
}

impl<'a> Reader<'a> {
    /// A reader that starts at the first byte of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, ok: true }
    }

    /// Reads the next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        if let Some((head, tail)) = self.rest.split_first_chunk::<N>() {
            self.rest = tail;
            *head
        } else {
            self.rest = &[];
            self.ok = false;
            [0; N]
        }
    }

    /// Reads the next eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Reads the next four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// Whether no read went past the end.
    #[must_use]
    pub const fn ok(&self) -> bool {
        self.ok
    }

    /// Whether every byte was read, and no read went past the end.
    #[must_use]
    pub const fn finished(&self) -> bool {
        self.ok && self.rest.is_empty()
    }
}

/// Writes consecutive fields into a slice.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// A writer that starts at the first byte of `out`.
    #[must_use]
    pub const fn new(out: &'a mut [u8]) -> Self {
        Self { out, at: 0 }
    }

    /// Appends bytes.
    ///
    /// # Panics
    /// If `out` is too short, which is a bug of the caller: record sizes are constants.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, v: u64) {
        self.bytes(&v.to_le_bytes());
    }

    /// Appends four bytes.
    pub fn u32(&mut self, v: u32) {
        self.bytes(&v.to_le_bytes());
    }

    /// Returns how many bytes were written.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.at
    }

    /// Whether no byte was written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.at == 0
    }
}
