//! Reads of big-endian numbers at an offset of any bytes.

/// Returns the `N` bytes at `offset`, or `None` if they are not all there.
#[inline]
pub(crate) fn chunk<const N: usize>(bytes: &[u8], offset: usize) -> Option<&[u8; N]> {
    bytes.get(offset..)?.first_chunk()
}

/// Returns the big-endian 16-bit number at `offset`.
#[inline]
pub(crate) fn be16(bytes: &[u8], offset: usize) -> Option<u16> {
    chunk(bytes, offset).map(|b| u16::from_be_bytes(*b))
}

/// Returns the big-endian 16-bit number at a constant offset of a header; 0 behind its end.
#[inline]
pub(crate) fn field16<const N: usize>(header: &[u8; N], offset: usize) -> u16 {
    be16(header, offset).unwrap_or(0)
}

/// Returns the big-endian 32-bit number at a constant offset of a header; 0 behind its end.
#[inline]
pub(crate) fn field32<const N: usize>(header: &[u8; N], offset: usize) -> u32 {
    chunk(header, offset).map_or(0, |b| u32::from_be_bytes(*b))
}

/// Returns the big-endian 128-bit number at a constant offset of a header; 0 behind its end.
#[inline]
pub(crate) fn field128<const N: usize>(header: &[u8; N], offset: usize) -> u128 {
    chunk(header, offset).map_or(0, |b| u128::from_be_bytes(*b))
}
