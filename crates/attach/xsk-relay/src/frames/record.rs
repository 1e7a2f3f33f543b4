//! The ledger's record of a frame, packed into one `u64`.

use super::geometry::FrameAddress;
use super::rings::RingId;

/// The owner of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameOwner {
    /// The application: the frame is in no ring, or was never used.
    Application,
    /// The kernel's fill ring.
    Fill,
    /// The kernel, which receives into the frame or has put it into its receive ring.
    KernelReceive,
    /// This library, while the P4 VM judges the packet.
    P4Vm,
    /// The application's receive ring.
    ReceiveRing,
    /// The kernel's transmit ring, the kernel, or the kernel's completion ring.
    KernelTransmit,
    /// The application's completion ring.
    Completion,
}

/// The state of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum FrameState {
    Application = 0,
    /// In the fill ring, or taken from it by the kernel.
    Fill = 1,
    HeldReceive = 2,
    ReceiveRing = 3,
    HeldTransmit = 4,
    KernelTransmit = 5,
    Completion = 6,
}

/// The record of a frame.
///
/// ```text
///   63    60 59    48 47      32 31                 0
///  ┌────────┬────────┬──────────┬────────────────────┐
///  │ state  │ ring   │ start    │ position or offset │
///  └────────┴────────┴──────────┴────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameRecord {
    pub(super) kind: FrameState,
    /// The ring that holds the frame, or the ring that identifies its queue.
    pub(super) ring_id: RingId,
    /// [`FrameAddress::start`] of the address that the application wrote.
    pub(super) start: u16,
    /// Position in the ring; while the frame is being sent, [`FrameAddress::offset`] of the
    /// application's address.
    pub(super) value: u32,
}

impl FrameRecord {
    pub(super) const APPLICATION: Self =
        Self { kind: FrameState::Application, ring_id: RingId::NONE, start: 0, value: 0 };

    pub(super) const fn pack(self) -> u64 {
        (self.kind as u64) << 60
            | (self.ring_id.number() as u64) << 48
            | (self.start as u64) << 32
            | self.value as u64
    }

    pub(super) const fn unpack(word: u64) -> Self {
        let kind = match word >> 60 {
            1 => FrameState::Fill,
            2 => FrameState::HeldReceive,
            3 => FrameState::ReceiveRing,
            4 => FrameState::HeldTransmit,
            5 => FrameState::KernelTransmit,
            6 => FrameState::Completion,
            _ => FrameState::Application,
        };
        Self {
            kind,
            ring_id: RingId::of((word >> 48 & 0xfff) as u16),
            start: (word >> 32 & 0xffff) as u16,
            value: word as u32,
        }
    }

    /// Returns the address that the application sent.
    pub(super) const fn address(self, frame: u32) -> FrameAddress {
        FrameAddress { frame, start: self.start, offset: self.value as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_packing() {
        for kind in [
            FrameState::Fill,
            FrameState::HeldReceive,
            FrameState::ReceiveRing,
            FrameState::HeldTransmit,
            FrameState::Completion,
        ] {
            let s = FrameRecord { kind, ring_id: RingId::of(0xfff), start: 0xffff, value: u32::MAX };
            assert_eq!(FrameRecord::unpack(s.pack()), s);
        }
        assert_eq!(FrameRecord::unpack(0).kind, FrameState::Application);
    }
}
