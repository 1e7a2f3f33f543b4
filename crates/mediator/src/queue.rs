//! Packets of one tenant and direction that are held, in their order.
//!
//! Identities are consecutive, so the packet that an answer belongs to is found by subtraction, and an answer to
//! a packet that has left is known by its number alone.

use crate::config::{PortSpec, VmRef};
use crate::packet::Reason;
use p4shield_abi::Direction;
use std::collections::VecDeque;

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

/// A held packet.
#[derive(Debug)]
pub(crate) struct Flight<P> {
    pub(crate) packet: P,
    pub(crate) state: State,
    /// When the tenant's policy applies.
    pub(crate) deadline: u64,
    /// When the packet was received.
    pub(crate) received: u64,
    /// Whose packet it is here.
    pub(crate) vm: VmRef,
    /// Whose ingress comes after this egress.
    pub(crate) next: Option<VmRef>,
    pub(crate) port: PortSpec,
}

/// A first-in-first-out queue of held packets that never grows.
#[derive(Debug)]
pub(crate) struct Queue<P> {
    flights: VecDeque<Flight<P>>,
    cap: usize,
    /// Number of the front flight.
    front: u64,
}

impl<P> Queue<P> {
    pub(crate) fn new(cap: usize) -> Self {
        Self { flights: VecDeque::with_capacity(cap), cap, front: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.flights.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.flights.len() >= self.cap
    }

    /// The number that the next flight will have.
    pub(crate) fn next_number(&self) -> u64 {
        self.front.wrapping_add(self.flights.len() as u64)
    }

    /// Appends a flight. The queue is not full.
    pub(crate) fn push(&mut self, flight: Flight<P>) {
        debug_assert!(!self.is_full(), "the caller makes room first");
        self.flights.push_back(flight);
    }

    pub(crate) fn front(&self) -> Option<&Flight<P>> {
        self.flights.front()
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut Flight<P>> {
        self.flights.front_mut()
    }

    pub(crate) fn pop(&mut self) -> Option<Flight<P>> {
        let flight = self.flights.pop_front()?;
        self.front = self.front.wrapping_add(1);
        Some(flight)
    }

    /// The flight with this number, if it is still here and waiting.
    pub(crate) fn waiting(&mut self, number: u64) -> Option<&mut Flight<P>> {
        let index = usize::try_from(number.wrapping_sub(self.front)).ok()?;
        self.flights.get_mut(index).filter(|f| f.state == State::Waiting)
    }

    /// Every flight with its number, front first.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Flight<P>)> {
        let front = self.front;
        self.flights.iter_mut().zip(0_u64..).map(move |(flight, i)| (front.wrapping_add(i), flight))
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
