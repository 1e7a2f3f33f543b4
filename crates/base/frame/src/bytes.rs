//! Reads of big-endian numbers at an offset of any bytes, and views of headers.

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

/// Defines the view `$view` of a header's fixed part, `$len` bytes. `ports`: it begins with the ports
/// of TCP and UDP.
macro_rules! header_view {
    ($(#[$doc:meta])* $view:ident, $len:ident $(, $ports:ident)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $view<'a>(&'a [u8; $len]);

        impl<'a> $view<'a> {
            /// Views the header at the beginning of `bytes`. No field is checked.
            #[must_use]
            #[inline]
            pub fn new(bytes: &'a [u8]) -> Option<Self> {
                $crate::bytes::chunk(bytes, 0).map(Self)
            }

            $(header_view! { @$ports })?
        }
    };
    (@ports) => {
        /// Returns the source port.
        #[must_use]
        #[inline]
        pub fn source_port(self) -> u16 {
            $crate::bytes::field16(self.0, 0)
        }

        /// Returns the destination port.
        #[must_use]
        #[inline]
        pub fn destination_port(self) -> u16 {
            $crate::bytes::field16(self.0, 2)
        }
    };
}
