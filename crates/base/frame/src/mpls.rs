//! MPLS label stack entries (RFC 3032 section 2.1).

use crate::bytes::field32;

/// Bytes of one entry.
pub const ENTRY_LEN: usize = 4;

header_view! {
    /// One entry of a label stack.
    Entry, ENTRY_LEN
}

impl Entry<'_> {
    /// Returns the label, 20 bits.
    #[must_use]
    pub fn label(self) -> u32 {
        field32(self.0, 0) >> 12
    }

    /// Reports whether it is the last entry of the stack.
    #[must_use]
    pub const fn is_bottom(self) -> bool {
        self.0[2] & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_and_bottom_are_read() {
        let entry = Entry::new(&[0x12, 0x34, 0x51, 64]).expect("four bytes");
        assert_eq!((entry.label(), entry.is_bottom()), (0x12345, true));
        assert!(!Entry::new(&[0, 0, 0xe0, 1]).expect("four bytes").is_bottom());
        assert!(Entry::new(&[0; 3]).is_none());
    }
}
