//! Packets of one tenant and direction that are held, in their order.
//!
//! A ring of a power of two of places, made once. Numbers are consecutive, so the packet that an answer belongs to is
//! found by its number alone, and an answer to a packet that has left is known by it too. What is known of a packet
//! stands beside the packets and not around them, is written once, and is changed where it stands.

use crate::config::VmRef;
use crate::packet::Reason;
use p4shield_abi::Direction;

/// What is known of a held packet's fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// The P4 VM has been asked.
    Waiting,
    /// The program passed it.
    Passed,
    /// The tenant's policy lets it through unjudged, for [`Flight::reason`].
    LetThrough,
    /// It is dropped, for [`Flight::reason`].
    Dropped,
}

/// What is known of a held packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    /// When the packet was received.
    pub(crate) received: u64,
    /// When the tenant's policy applies.
    pub(crate) deadline: u64,
    /// Number of the port it came from, in [`crate::ports::Ports`].
    pub(crate) port: u32,
    /// Whose packet it is here.
    pub(crate) vm: Owner,
    /// Whose ingress comes after this egress, if one does.
    pub(crate) next: Owner,
    pub(crate) state: State,
    /// Why, if it is dropped or let through.
    pub(crate) reason: Reason,
}

impl Flight {
    /// Of a packet that is received now and about which its program is to be asked. The deadline is set when it enters a
    /// queue.
    #[inline]
    pub(crate) const fn new(received: u64, port: u32, vm: Owner, next: Owner) -> Self {
        Self { received, deadline: 0, port, vm, next, state: State::Waiting, reason: Reason::Program }
    }

    /// Decides it.
    pub(crate) fn decide(&mut self, (state, reason): Fate) {
        (self.state, self.reason) = (state, reason);
    }
}

/// A state and, where it has one, its reason.
pub(crate) type Fate = (State, Reason);

/// A VM of a tenant, or nobody, in one word: what is two halves or absent is otherwise put together in memory, packet by
/// packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u32);

impl Owner {
    /// No VM: there are fewer tenants.
    pub(crate) const NOBODY: Self = Self(u32::MAX);

    #[inline]
    pub(crate) fn vm(self) -> VmRef {
        VmRef { tenant: (self.0 >> 16) as u16, vm: self.0 as u16 }
    }

    #[inline]
    pub(crate) fn tenant(self) -> usize {
        (self.0 >> 16) as usize
    }
}

impl From<Option<VmRef>> for Owner {
    #[inline]
    fn from(vm: Option<VmRef>) -> Self {
        vm.map_or(Self::NOBODY, |vm| Self(u32::from(vm.tenant) << 16 | u32::from(vm.vm)))
    }
}

/// What an empty place holds.
const EMPTY: Flight = Flight {
    received: 0,
    deadline: 0,
    port: 0,
    vm: Owner::NOBODY,
    next: Owner::NOBODY,
    state: State::Dropped,
    reason: Reason::Unowned,
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
        self.room() == 0
    }

    /// Packets that can be pushed.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.cap.saturating_sub(self.back.wrapping_sub(self.front)) as usize
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

    /// Appends a flight and shows it where it stands. The queue is not full.
    #[inline(always)]
    pub(crate) fn push(&mut self, flight: Flight, packet: P) -> (&mut Flight, &mut P) {
        debug_assert!(!self.is_full(), "the caller makes room first");
        let place = self.place(self.back);
        self.back = self.back.wrapping_add(1);
        let there = &mut self.flights[place];
        // Field by field, from registers. Copied as a whole it is written to the stack in parts and read back wider, for
        // which the processor waits until the parts have left its store buffer.
        let Flight { received, deadline, port, vm, next, state, reason } = flight;
        (there.received, there.deadline, there.port) = (received, deadline, port);
        (there.vm, there.next, there.state, there.reason) = (vm, next, state, reason);
        (there, self.packets[place].insert(packet))
    }

    /// Takes the newest back.
    #[cold]
    pub(crate) fn pop_back(&mut self) -> Option<(Flight, P)> {
        if self.is_empty() {
            return None;
        }
        self.back = self.back.wrapping_sub(1);
        let place = self.place(self.back);
        Some((self.flights[place], self.packets[place].take()?))
    }

    /// Takes out the front packet if its program passed it and nobody else is asked: the way of most. Its flight is
    /// looked at and not copied, since its state was written a moment ago.
    #[inline(always)]
    pub(crate) fn pop_passed(&mut self) -> Option<(Owner, P)> {
        if self.is_empty() {
            return None;
        }
        let place = self.place(self.front);
        let flight = &self.flights[place];
        if flight.state != State::Passed || flight.next != Owner::NOBODY {
            return None;
        }
        let owner = flight.vm;
        let packet = self.packets[place].take()?;
        self.front = self.front.wrapping_add(1);
        Some((owner, packet))
    }

    /// Takes out the packet of this number if it is the front one, waits, and nobody else is asked after it: its program
    /// has just passed it, and what is decided at the front need not be written down first.
    #[inline(always)]
    pub(crate) fn pop_answered(&mut self, number: u64) -> Option<(Owner, P)> {
        if number != self.front || self.is_empty() {
            return None;
        }
        let place = self.place(number);
        let flight = &self.flights[place];
        if flight.state != State::Waiting || flight.next != Owner::NOBODY {
            return None;
        }
        let owner = flight.vm;
        let packet = self.packets[place].take()?;
        self.front = self.front.wrapping_add(1);
        Some((owner, packet))
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

    /// Whether a flight came from the port of this number.
    pub(crate) fn names_port(&self, port: u32) -> bool {
        (0..self.back.wrapping_sub(self.front))
            .any(|i| self.flights[self.place(self.front.wrapping_add(i))].port == port)
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
