//! The places of ports, and their numbers.
//!
//! A port has a number, which the program knows, and a place in [`PacketIo`]. A place whose port was deleted
//! is vacant until another port takes it; counts are by place, too. Memory for [`MAX_PORTS`]
//! places is there from the start, so that the packet thread allocates none.

use crate::counts::{Counts, DropReason, PortCounts};
use crate::exit::Exit;
use crate::io::{ExchangePorts, PacketIo, Refused, Unsent};
use crate::links::Links;
use crate::numbers::{MAX_PORT, MAX_PORTS, VACANT, Way};

/// The reason why a port is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The number is too large.
    #[error("port {0}: a port's number is 0 to {MAX_PORT}")]
    TooLarge(u16),
    /// Two ports have one number.
    #[error("two ports have number {0}")]
    Twice(u16),
    /// There are more or fewer numbers than ports.
    #[error("there are {ports} ports and {numbers} numbers")]
    Numbers {
        /// Ports.
        ports: usize,
        /// Numbers.
        numbers: usize,
    },
    /// There is no such port.
    #[error("the switch has no port {0}")]
    NoPort(u16),
    /// The ports refuse the exchange.
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl<I: PacketIo> Exit<I> {
    /// Gives the ports these numbers, by place.
    ///
    /// # Errors
    /// [`PortError`].
    pub(crate) fn new(io: I, numbers: &[u16]) -> Result<Self, PortError> {
        if numbers.len() != io.ports() {
            return Err(PortError::Numbers { ports: io.ports(), numbers: numbers.len() });
        }
        let counts = Counts { ports: Vec::with_capacity(MAX_PORTS), ..Counts::default() };
        let mut exit = Self {
            io,
            numbers: Vec::with_capacity(MAX_PORTS),
            indexes: vec![None; MAX_PORTS].into_boxed_slice(),
            pair: None,
            counts,
            ways: Vec::with_capacity(MAX_PORTS),
            links: Links::default(),
        };
        for (place, number) in numbers.iter().enumerate() {
            exit.check_free(*number)?;
            exit.take_place(place, *number);
        }
        Ok(exit)
    }

    /// Returns an error if no further port can have this number.
    pub(crate) fn check_free(&self, number: u16) -> Result<(), PortError> {
        match self.indexes.get(usize::from(number)) {
            None => Err(PortError::TooLarge(number)),
            Some(Some(_)) => Err(PortError::Twice(number)),
            Some(None) => Ok(()),
        }
    }

    pub(crate) fn place_of(&self, number: u16) -> Result<usize, PortError> {
        self.indexes.get(usize::from(number)).copied().flatten().ok_or(PortError::NoPort(number))
    }

    /// Gives a place, which is vacant or the one behind the last, to the port with a number that is free.
    pub(crate) fn take_place(&mut self, place: usize, number: u16) {
        if place == self.numbers.len() {
            self.numbers.push(number);
            self.counts.ports.push(PortCounts::default());
            self.ways.push(Way::OWN);
        }
        self.numbers[place] = number;
        self.indexes[usize::from(number)] = Some(place);
        self.find_pair();
    }

    pub(crate) fn find_pair(&mut self) {
        let mut places = (0..self.numbers.len()).filter(|place| self.numbers[*place] != VACANT);
        self.pair = match (places.next(), places.next(), places.next()) {
            (Some(a), Some(b), None) => Some([a, b]),
            _ => None,
        };
    }
}

impl<I: ExchangePorts> Exit<I> {
    /// Exchanges the port in a place. What the old one had not sent counts as dropped instead.
    pub(crate) fn exchange(&mut self, place: usize, port: &mut Option<I::Port>) -> Result<(), PortError> {
        let Unsent { packets, bytes } = self.io.unsent(place);
        self.io.exchange(place, port)?;
        let counts = &mut self.counts.ports[place];
        counts.sent -= packets;
        counts.sent_bytes -= bytes;
        self.counts.dropped[DropReason::PortDown as usize] += packets;
        Ok(())
    }
}
