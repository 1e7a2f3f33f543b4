//! A packet on its way from one ring to another.

use std::ops::Range;

use super::chain::END;
use crate::frames::Shape;
use p4shield_afxdp::ring::Descriptor;

/// Flag of a descriptor: what the interface is to do with the packet stands in front of it (`XDP_TX_METADATA`).
const METADATA: u32 = 2;

/// A packet in packet memory: who has this has its frames, and hands them on by handing on this.
///
/// It knows where the bytes are and not the bytes.
#[derive(Debug)]
pub struct Parcel {
    pub(super) descriptor: Descriptor,
    pub(super) cell: u32,
    /// The first further buffer.
    pub(super) rest: u32,
    /// Bytes in all buffers.
    pub(super) total: u32,
    start: u64,
    room: Range<u64>,
}

impl Parcel {
    /// The packet that a descriptor names, which the ledger has found to be within its frame.
    pub(super) fn new(shape: &Shape, descriptor: Descriptor, cell: u32) -> Self {
        let start = shape.bytes(descriptor.address, descriptor.len).unwrap_or_default();
        let room = shape.room(descriptor.address);
        Self { cell, rest: END, total: descriptor.len, start, room, descriptor }
    }

    /// Where its first buffer's bytes are, in bytes from the start of the packet memory.
    #[must_use]
    pub const fn bytes(&self) -> Range<u64> {
        self.start..self.start + self.descriptor.len as u64
    }

    /// The bytes that its first buffer may grow into: these and no others of the memory are its own.
    #[must_use]
    pub const fn room(&self) -> &Range<u64> {
        &self.room
    }

    /// Whether something that the interface is told about the packet stands right in front of it: its first byte has to stay
    /// where it is.
    #[must_use]
    pub const fn is_pinned(&self) -> bool {
        self.descriptor.options & METADATA != 0
    }

    /// Bytes of the whole packet.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.total
    }

    /// Whether it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Whether it has more than one buffer.
    #[must_use]
    pub const fn is_chained(&self) -> bool {
        self.rest != END
    }

    /// Makes these the bytes of its first buffer. `false`, and nothing changes, if they are not within its room, or begin
    /// elsewhere and it is pinned.
    #[must_use]
    pub fn set_bytes(&mut self, shape: &Shape, bytes: Range<u64>) -> bool {
        let len = bytes.end.checked_sub(bytes.start).and_then(|n| u32::try_from(n).ok());
        let within = bytes.start >= self.room.start && bytes.end <= self.room.end;
        let stays = !self.is_pinned() || bytes.start == self.start;
        let (Some(len), true) = (len, within && stays) else { return false };
        let Some(address) = shape.readdress(self.descriptor.address, bytes.start) else { return false };
        self.total = self.total - self.descriptor.len + len;
        self.start = bytes.start;
        (self.descriptor.address, self.descriptor.len) = (address, len);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_with_metadata_in_front_keeps_its_place() {
        let shape = Shape::new(8192, 2048, false).expect("a shape");
        let parcel = |options| Parcel::new(&shape, Descriptor { address: 2048 + 256, len: 100, options }, 1);
        let (mut free, mut pinned) = (parcel(0), parcel(METADATA));
        assert_eq!((free.is_pinned(), pinned.is_pinned()), (false, true));
        for moved in [2304 - 4..2404, 2304 + 4..2404] {
            assert!(free.set_bytes(&shape, moved.clone()));
            assert!(!pinned.set_bytes(&shape, moved));
            assert_eq!((pinned.bytes(), pinned.descriptor.address), (2304..2404, 2304));
        }
        assert!(pinned.set_bytes(&shape, 2304..2364), "it may be cut");
        assert_eq!((pinned.descriptor.len, pinned.len()), (60, 60));
        assert!(!pinned.set_bytes(&shape, 2304..4097), "and not grow out of its frame");
    }
}
