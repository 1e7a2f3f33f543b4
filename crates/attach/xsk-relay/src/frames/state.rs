//! What the ledger remembers of a frame, in one word.

use super::shape::Place;
use super::track::Seat;

/// Who has a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The application: in none of the rings, or not given to us yet.
    Application,
    /// The kernel's fill ring.
    Fill,
    /// The kernel, for a packet to come or one that it has not announced, or the kernel's receive ring.
    KernelReceive,
    /// We, for the P4 VM to judge the packet in it.
    P4Vm,
    /// The application's receive ring.
    ReceiveRing,
    /// The kernel's transmit ring, the kernel, or the kernel's completion ring.
    KernelTransmit,
    /// The application's completion ring.
    Completion,
}

/// Where a word says a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Application = 0,
    /// Fill ring, or past it: with the kernel.
    Fill = 1,
    P4Receive = 2,
    ReceiveRing = 3,
    P4Transmit = 4,
    KernelTransmit = 5,
    Completion = 6,
}

/// A frame's state.
///
/// ```text
///   63    60 59    48 47      32 31                 0
///  ┌────────┬────────┬──────────┬────────────────────┐
///  │ kind   │ seat   │ start    │ position or offset │
///  └────────┴────────┴──────────┴────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) kind: Kind,
    /// The ring that it is in, or the ring that stands for the queue it belongs to.
    pub(super) seat: Seat,
    /// [`Place::start`] as the application gave it.
    pub(super) start: u16,
    /// Position in the ring; [`Place::offset`] as the application gave it while it is being sent.
    pub(super) value: u32,
}

impl State {
    pub(super) const APPLICATION: Self =
        Self { kind: Kind::Application, seat: Seat::NONE, start: 0, value: 0 };

    pub(super) const fn pack(self) -> u64 {
        (self.kind as u64) << 60
            | (self.seat.number() as u64) << 48
            | (self.start as u64) << 32
            | self.value as u64
    }

    pub(super) const fn unpack(word: u64) -> Self {
        let kind = match word >> 60 {
            1 => Kind::Fill,
            2 => Kind::P4Receive,
            3 => Kind::ReceiveRing,
            4 => Kind::P4Transmit,
            5 => Kind::KernelTransmit,
            6 => Kind::Completion,
            _ => Kind::Application,
        };
        Self {
            kind,
            seat: Seat::of((word >> 48 & 0xfff) as u16),
            start: (word >> 32 & 0xffff) as u16,
            value: word as u32,
        }
    }

    /// The address that the application gave when it sent the frame.
    pub(super) const fn place(self, cell: u32) -> Place {
        Place { cell, start: self.start, offset: self.value as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_a_state() {
        for kind in [Kind::Fill, Kind::P4Receive, Kind::ReceiveRing, Kind::P4Transmit, Kind::Completion] {
            let s = State { kind, seat: Seat::of(0xfff), start: 0xffff, value: u32::MAX };
            assert_eq!(State::unpack(s.pack()), s);
        }
        assert_eq!(State::unpack(0).kind, Kind::Application);
    }
}
