//! The queue: packets of one tenant and direction that are held, in their order.
//!
//! A ring of slots, a power of two, allocated once. Packets have consecutive numbers, so the number
//! in an answer finds its packet and shows whether the packet has left. Flights and packets stand in
//! arrays of their own: a flight is written once and changed in place.
//!
//! [`crate::request`] puts packets in, [`crate::verdict`] decides them, [`crate::release`] takes them out.

use crate::flight::{Flight, FlightState, Owner};

/// First-in-first-out queue of held packets, of fixed capacity.
#[derive(Debug)]
pub(crate) struct Queue<P> {
    flights: Box<[Flight]>,
    /// The packet of each flight; none in an unused slot.
    packets: Box<[Option<P>]>,
    capacity: u64,
    /// Number of the oldest flight.
    front: u64,
    /// Number of the next flight.
    back: u64,
}

impl<P> Queue<P> {
    /// A queue with room for `capacity` packets.
    pub(crate) fn new(capacity: usize) -> Self {
        Self::with_slots(capacity.next_power_of_two(), capacity)
    }

    /// A queue whose memory an older one has; see [`Self::take_capacity`].
    pub(crate) fn heir(capacity: usize) -> Self {
        Self::with_slots(1, capacity)
    }

    fn with_slots(slots: usize, capacity: usize) -> Self {
        Self {
            flights: vec![Flight::EMPTY; slots].into_boxed_slice(),
            packets: (0..slots).map(|_| None).collect(),
            capacity: capacity as u64,
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

    /// Returns how many packets can be pushed.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.capacity.saturating_sub(self.back.wrapping_sub(self.front)) as usize
    }

    /// Returns the number of the oldest flight, if there is one.
    #[inline]
    pub(crate) fn front_number(&self) -> u64 {
        self.front
    }

    /// Returns the number that the next flight gets.
    #[inline]
    pub(crate) fn next_number(&self) -> u64 {
        self.back
    }

    #[inline]
    fn slot(&self, number: u64) -> usize {
        number as usize & (self.flights.len() - 1)
    }

    /// Appends a flight and returns it in its slot. The caller has made room.
    #[inline(always)]
    pub(crate) fn push(&mut self, flight: Flight, packet: P) -> (&mut Flight, &mut P) {
        debug_assert!(!self.is_full(), "the caller makes room first");
        let slot = self.slot(self.back);
        self.back = self.back.wrapping_add(1);
        let entry = &mut self.flights[slot];
        // Field by field, from registers. A copy of the whole structure would be written to the stack
        // in parts and read back in wider loads, which stall until the parts have left the store
        // buffer.
        let Flight { received, deadline, port, vm, next, state, reason } = flight;
        (entry.received, entry.deadline, entry.port) = (received, deadline, port);
        (entry.vm, entry.next, entry.state, entry.reason) = (vm, next, state, reason);
        (entry, self.packets[slot].insert(packet))
    }

    /// Removes the newest packet.
    #[cold]
    pub(crate) fn pop_back(&mut self) -> Option<(Flight, P)> {
        if self.is_empty() {
            return None;
        }
        self.back = self.back.wrapping_sub(1);
        let slot = self.slot(self.back);
        Some((self.flights[slot], self.packets[slot].take()?))
    }

    /// Removes the oldest packet if its program passed it and no other program judges it, which is
    /// the most frequent case. The flight is read in place, because a copy would wait for its state,
    /// which was written just before.
    #[inline(always)]
    pub(crate) fn pop_passed(&mut self) -> Option<(Owner, P)> {
        if self.is_empty() {
            return None;
        }
        let slot = self.slot(self.front);
        let flight = &self.flights[slot];
        if flight.state != FlightState::Passed || flight.next != Owner::NONE {
            return None;
        }
        let owner = flight.vm;
        let packet = self.packets[slot].take()?;
        self.front = self.front.wrapping_add(1);
        Some((owner, packet))
    }

    /// Removes packet `number`, which its program has just passed, if it is the oldest, waits, and no
    /// other program judges it. Its state need not be written first.
    #[inline(always)]
    pub(crate) fn pop_if_front(&mut self, number: u64) -> Option<(Owner, P)> {
        if number != self.front || self.is_empty() {
            return None;
        }
        let slot = self.slot(number);
        let flight = &self.flights[slot];
        if flight.state != FlightState::Waiting || flight.next != Owner::NONE {
            return None;
        }
        let owner = flight.vm;
        let packet = self.packets[slot].take()?;
        self.front = self.front.wrapping_add(1);
        Some((owner, packet))
    }

    /// Returns the oldest flight.
    pub(crate) fn peek(&self) -> Option<&Flight> {
        if self.is_empty() { None } else { self.flights.get(self.slot(self.front)) }
    }

    /// Returns the oldest flight, to change it.
    #[inline]
    pub(crate) fn front(&mut self) -> Option<&mut Flight> {
        let slot = self.slot(self.front);
        if self.is_empty() { None } else { self.flights.get_mut(slot) }
    }

    /// Removes the oldest packet.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(&Flight, P)> {
        if self.is_empty() {
            return None;
        }
        let slot = self.slot(self.front);
        self.front = self.front.wrapping_add(1);
        let packet = self.packets[slot].take()?;
        Some((&self.flights[slot], packet))
    }

    /// Returns flight `number` if it is still held and waiting.
    #[inline]
    pub(crate) fn waiting(&mut self, number: u64) -> Option<(&mut Flight, &mut P)> {
        if number.wrapping_sub(self.front) >= self.back.wrapping_sub(self.front) {
            return None;
        }
        let slot = self.slot(number);
        let flight = &mut self.flights[slot];
        if flight.state != FlightState::Waiting {
            return None;
        }
        Some((flight, self.packets[slot].as_mut()?))
    }

    /// Whether a held packet came from the port with this index.
    pub(crate) fn references_port(&self, port: u32) -> bool {
        (0..self.back.wrapping_sub(self.front))
            .any(|i| self.flights[self.slot(self.front.wrapping_add(i))].port == port)
    }

    /// Takes the capacity of an empty queue: its memory too, if this queue has less. Packets keep their
    /// numbers. A queue that holds more than its new capacity takes no packet until enough have left.
    pub(crate) fn take_capacity(&mut self, fresh: &mut Self) {
        if fresh.flights.len() > self.flights.len() {
            (fresh.front, fresh.back) = (self.front, self.back);
            for i in 0..self.len() as u64 {
                let number = self.front.wrapping_add(i);
                let (from, to) = (self.slot(number), fresh.slot(number));
                fresh.flights[to] = self.flights[from];
                fresh.packets[to] = self.packets[from].take();
            }
            std::mem::swap(self, fresh);
            (fresh.front, fresh.back) = (0, 0);
        } else {
            self.capacity = fresh.capacity;
        }
    }

    /// Calls `each` for every flight, oldest first.
    pub(crate) fn for_each(&mut self, mut each: impl FnMut(&mut Flight)) {
        for i in 0..self.len() as u64 {
            let slot = self.slot(self.front.wrapping_add(i));
            each(&mut self.flights[slot]);
        }
    }

    /// Calls `each` for every waiting flight and its number, oldest first.
    pub(crate) fn for_each_waiting(&mut self, mut each: impl FnMut(u64, &mut Flight, &mut P)) {
        for i in 0..self.back.wrapping_sub(self.front) {
            let number = self.front.wrapping_add(i);
            if let Some((flight, packet)) = self.waiting(number) {
                each(number, flight, packet);
            }
        }
    }
}
