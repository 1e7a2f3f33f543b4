//! Packets of one tenant and direction that are held, in their order.
//!
//! A ring of a power of two of places, made once. Numbers are consecutive, so the packet that an answer belongs to is
//! found by its number alone, and an answer to a packet that has left is known by it too. What is known of a packet
//! stands beside the packets and not around them, is written once, and is changed where it stands.

use crate::config::{Others, PortSpec, Source, Stages, VmRef};
use crate::packet::Reason;
use p4shield_abi::Direction;

/// What is known of a held packet's fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The P4 VM has been asked.
    Waiting,
    /// The program passed it.
    Passed,
    /// The tenant's policy lets it through unjudged.
    LetThrough(Reason),
    /// It is dropped.
    Dropped(Reason),
}

/// What is known of a held packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    /// When the packet was received.
    pub(crate) received: u64,
    /// When the tenant's policy applies.
    pub(crate) deadline: u64,
    pub(crate) port: PortSpec,
    /// Whose packet it is here.
    pub(crate) vm: VmRef,
    /// Whose ingress comes after this egress.
    pub(crate) next: Option<VmRef>,
    pub(crate) state: State,
}

/// What an empty place holds.
const EMPTY: Flight = Flight {
    received: 0,
    deadline: 0,
    port: PortSpec { number: 0, stages: Stages::Both, others: Others::Drop, source: Source::Any },
    vm: VmRef { tenant: 0, vm: 0 },
    next: None,
    state: State::Dropped(Reason::Others),
};

/// A first-in-first-out queue of held packets that never grows.
#[derive(Debug)]
pub(crate) struct Queue<P> {
    flights: Box<[Flight]>,
    /// The packet of each flight; none in an empty place.
    packets: Box<[Option<P>]>,
    cap: u64,
    /// Number of the front flight.
    front: u64,
    /// The number that the next flight will have.
    back: u64,
}

impl<P> Queue<P> {
    /// Room for `cap` packets.
    pub(crate) fn new(cap: usize) -> Self {
        let places = cap.next_power_of_two();
        Self {
            flights: vec![EMPTY; places].into_boxed_slice(),
            packets: (0..places).map(|_| None).collect(),
            cap: cap as u64,
            front: 0,
            back: 0,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.back.wrapping_sub(self.front) as usize
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.front == self.back
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.back.wrapping_sub(self.front) >= self.cap
    }

    /// The number of the front flight, if there is one.
    #[inline]
    pub(crate) fn front_number(&self) -> u64 {
        self.front
    }

    /// The number that the next flight will have.
    #[inline]
    pub(crate) fn next_number(&self) -> u64 {
        self.back
    }

    /// Places are a power of two.
    #[inline]
    fn place(&self, number: u64) -> usize {
        number as usize & (self.flights.len() - 1)
    }

    /// Appends a flight. The queue is not full.
    #[inline]
    pub(crate) fn push(&mut self, flight: Flight, packet: P) {
        debug_assert!(!self.is_full(), "the caller makes room first");
        let place = self.place(self.back);
        self.flights[place] = flight;
        self.packets[place] = Some(packet);
        self.back = self.back.wrapping_add(1);
    }

    pub(crate) fn peek(&self) -> Option<&Flight> {
        if self.is_empty() { None } else { self.flights.get(self.place(self.front)) }
    }

    #[inline]
    pub(crate) fn front(&mut self) -> Option<&mut Flight> {
        let place = self.place(self.front);
        if self.is_empty() { None } else { self.flights.get_mut(place) }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(&Flight, P)> {
        if self.is_empty() {
            return None;
        }
        let place = self.place(self.front);
        self.front = self.front.wrapping_add(1);
        let packet = self.packets[place].take()?;
        Some((&self.flights[place], packet))
    }

    /// The flight with this number, if it is still here and waiting.
    #[inline]
    pub(crate) fn waiting(&mut self, number: u64) -> Option<(&mut Flight, &mut P)> {
        if number.wrapping_sub(self.front) >= self.back.wrapping_sub(self.front) {
            return None;
        }
        let place = self.place(number);
        let flight = &mut self.flights[place];
        if flight.state != State::Waiting {
            return None;
        }
        Some((flight, self.packets[place].as_mut()?))
    }

    /// Every flight that waits, with its number, front first.
    pub(crate) fn waiting_all(&mut self, mut each: impl FnMut(u64, &mut Flight, &mut P)) {
        for i in 0..self.back.wrapping_sub(self.front) {
            let number = self.front.wrapping_add(i);
            if let Some((flight, packet)) = self.waiting(number) {
                each(number, flight, packet);
            }
        }
    }
}

/// The identity of a request: number in its queue, and which queue of the tenant.
pub(crate) const fn id_of(number: u64, direction: Direction) -> u64 {
    number << 1 | direction as u64
}

/// Number and queue of an identity.
pub(crate) const fn number_of(id: u64) -> (u64, Direction) {
    (id >> 1, if id & 1 == 0 { Direction::Ingress } else { Direction::Egress })
}
