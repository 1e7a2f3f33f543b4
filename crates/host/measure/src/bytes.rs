//! Numbers in files that come from outside: each read is checked.

/// Place in a file that contradicts its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// The contradiction.
    pub(crate) what: &'static str,
    /// Where it is, in bytes from the beginning of the file.
    pub(crate) at: usize,
}

/// Returns a part of a file.
pub(crate) fn part(file: &[u8], at: usize, len: usize) -> Result<&[u8], Wrong> {
    let found = at.checked_add(len).and_then(|end| file.get(at..end));
    found.ok_or(Wrong { what: "the file ends before", at })
}

/// Returns as many bytes as the caller's array has.
pub(crate) fn bytes<const N: usize>(file: &[u8], at: usize) -> Result<[u8; N], Wrong> {
    let found = part(file, at, N)?.first_chunk();
    found.copied().ok_or(Wrong { what: "the file ends before", at })
}

/// Reads a little-endian number of 16 bits.
pub(crate) fn half(file: &[u8], at: usize) -> Result<u16, Wrong> {
    bytes(file, at).map(u16::from_le_bytes)
}

/// Reads a little-endian number of 32 bits.
pub(crate) fn word(file: &[u8], at: usize) -> Result<u32, Wrong> {
    bytes(file, at).map(u32::from_le_bytes)
}
