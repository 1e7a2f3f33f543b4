//! A packet on its way from one ring to another.

use std::ops::Range;

use p4shield_afxdp::ring::Descriptor;

use crate::frames::UmemGeometry;

/// No further buffer.
pub(super) const NO_FRAGMENT: u32 = u32::MAX;

/// Descriptor option `XDP_TX_METADATA`: a `struct xsk_tx_metadata` ends at the packet's first byte.
const METADATA: u32 = 2;

/// A packet in the UMEM. Its holder owns the packet's frames.
///
/// It holds offsets into the UMEM, and no pointer.
#[derive(Debug)]
pub struct RelayedPacket {
    pub(super) descriptor: Descriptor,
    pub(super) frame: u32,
    /// List node of the second buffer.
    pub(super) next_fragment: u32,
    /// Bytes of all buffers.
    pub(super) total: u32,
    start: u64,
    frame_range: Range<u64>,
}

impl RelayedPacket {
    /// Describes the packet of a descriptor that the ledger has accepted.
    pub(super) fn new(geometry: &UmemGeometry, descriptor: Descriptor, frame: u32) -> Self {
        let start = geometry.packet_start(descriptor.address, descriptor.len).unwrap_or_default();
        let frame_range = geometry.frame_range(descriptor.address);
        Self { frame, next_fragment: NO_FRAGMENT, total: descriptor.len, start, frame_range, descriptor }
    }

    /// Returns the byte range of the first buffer, as offsets into the UMEM.
    #[must_use]
    pub const fn bytes(&self) -> Range<u64> {
        self.start..self.start + self.descriptor.len as u64
    }

    /// Returns the byte range of the frame, within which the first buffer may grow.
    #[must_use]
    pub const fn frame_range(&self) -> &Range<u64> {
        &self.frame_range
    }

    /// Returns whether `struct xsk_tx_metadata` precedes the packet, so that its first byte must stay
    /// where it is.
    #[must_use]
    pub const fn has_tx_metadata(&self) -> bool {
        self.descriptor.options & METADATA != 0
    }

    /// Returns the bytes of the whole packet.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.total
    }

    /// Returns whether the packet has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Returns whether the packet has more than one buffer.
    #[must_use]
    pub const fn is_multi_buffer(&self) -> bool {
        self.next_fragment != NO_FRAGMENT
    }

    /// Sets the byte range of the first buffer. Returns false, and changes nothing, if the range is not
    /// within the frame, or if it starts elsewhere and the packet has transmit metadata.
    #[must_use]
    pub fn set_bytes(&mut self, geometry: &UmemGeometry, bytes: Range<u64>) -> bool {
        let len = bytes.end.checked_sub(bytes.start).and_then(|n| u32::try_from(n).ok());
        let within = bytes.start >= self.frame_range.start && bytes.end <= self.frame_range.end;
        let stays = !self.has_tx_metadata() || bytes.start == self.start;
        let (Some(len), true) = (len, within && stays) else { return false };
        let Some(address) = geometry.ring_address(self.descriptor.address, bytes.start) else { return false };
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
    fn packets_with_tx_metadata_keep_their_start() {
        let geometry = UmemGeometry::new(8192, 2048, false).expect("a geometry");
        let packet =
            |options| RelayedPacket::new(&geometry, Descriptor { address: 2048 + 256, len: 100, options }, 1);
        let (mut plain, mut pinned) = (packet(0), packet(METADATA));
        assert_eq!((plain.has_tx_metadata(), pinned.has_tx_metadata()), (false, true));
        for moved in [2304 - 4..2404, 2304 + 4..2404] {
            assert!(plain.set_bytes(&geometry, moved.clone()));
            assert!(!pinned.set_bytes(&geometry, moved));
            assert_eq!((pinned.bytes(), pinned.descriptor.address), (2304..2404, 2304));
        }
        assert!(pinned.set_bytes(&geometry, 2304..2364), "it may be truncated");
        assert_eq!((pinned.descriptor.len, pinned.len()), (60, 60));
        assert!(!pinned.set_bytes(&geometry, 2304..4097), "it must not outgrow its frame");
    }
}
