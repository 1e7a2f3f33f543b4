//! Attributes of the kernel's messages. Nothing that it says is believed to be well formed.

/// An attribute's type without its flags (`NLA_TYPE_MASK`).
pub(crate) const TYPE: u16 = 0x3fff;

/// The attributes in a list, as type and value; `None`: the rest is no attribute.
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = Option<(u16, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let first = (half(self.0, 0), half(self.0, 2));
        let found = match first {
            (Some(length), Some(kind)) => {
                self.0.get(4..usize::from(length)).map(|value| (kind & TYPE, value, usize::from(length)))
            }
            _ => None,
        };
        // The last one need not be padded.
        self.0 =
            found.and_then(|(_, _, length)| self.0.get(length.next_multiple_of(4)..)).unwrap_or_default();
        Some(found.map(|(kind, value, _)| (kind, value)))
    }
}

pub(crate) fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}
