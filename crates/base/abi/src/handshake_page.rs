//! The handshake page: messages between a user VM and a P4 VM before they have keys.
//!
//! Two halves, each a page ([`crate::page`]) with one slot, in which a publication is a message of the
//! handshake in clear. The host can change everything in it: only the handshake's own authentication counts.
//!
//! | offset | bytes | contents |
//! |---|---|---|
//! | 0 | [`HALF_SIZE`] | messages of the user VM, which alone writes them; magic [`FROM_VM_MAGIC`] |
//! | [`HALF_SIZE`] | [`HALF_SIZE`] | messages of the P4 VM, which alone writes them; magic [`FROM_P4VM_MAGIC`] |
//!
//! Epoch and counter of a slot are zero: a message has the number of its attempt in itself. The parties take
//! turns, so that one slot for each suffices; a message that was overwritten unread is repeated.

use crate::page::{PAGE_HEADER_SIZE, SLOT_HEADER_SIZE};

/// First eight bytes of the user VM's half.
pub const FROM_VM_MAGIC: u64 = u64::from_le_bytes(*b"P4SHHSVM");

/// First eight bytes of the P4 VM's half.
pub const FROM_P4VM_MAGIC: u64 = u64::from_le_bytes(*b"P4SHHSP4");

/// Bytes of a half.
pub const HALF_SIZE: usize = 32 * 1024;

/// Slots of a half.
pub const HALF_SLOTS: u32 = 1;

/// Bytes of the slot of a half, which fills it.
pub const HALF_SLOT_STRIDE: usize = HALF_SIZE - PAGE_HEADER_SIZE;

/// Most bytes of a message.
pub const MESSAGE_ROOM: usize = HALF_SLOT_STRIDE - SLOT_HEADER_SIZE;

/// Bytes of a handshake page, a power of two.
pub const HANDSHAKE_PAGE_SIZE: usize = 2 * HALF_SIZE;

const _: () = assert!(HANDSHAKE_PAGE_SIZE.is_power_of_two());
const _: () = assert!(HALF_SLOT_STRIDE.is_multiple_of(8));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_of_the_page_is_fixed() {
        assert_eq!((HALF_SIZE, HANDSHAKE_PAGE_SIZE), (0x8000, 0x1_0000));
        assert_eq!((HALF_SLOT_STRIDE, MESSAGE_ROOM), (32_704, 32_672));
        assert_eq!(FROM_VM_MAGIC.to_le_bytes(), *b"P4SHHSVM");
        assert_eq!(FROM_P4VM_MAGIC.to_le_bytes(), *b"P4SHHSP4");
    }
}
