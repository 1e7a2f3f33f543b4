//! Ports that come and go while packets flow.
//!
//! Each method takes a bounded time, allocates nothing and makes no system call, but for the buffers of a
//! queue that ends. A port that comes is taken out of the option, and one that goes is put there, so that
//! another thread drops it.

use crate::counts::PortCounts;
use crate::io::{ExchangePorts, PacketIo};
use crate::numbers::{VACANT, Way};
use crate::places::PortError;
use crate::switch::Switch;

impl<I: ExchangePorts> Switch<I> {
    /// Adds a port with this number, or this thread's part of it.
    ///
    /// # Errors
    /// [`PortError`]; nothing has changed.
    pub fn add_port(&mut self, number: u16, port: &mut Option<I::Port>) -> Result<(), PortError> {
        let exit = &mut self.local.exit;
        exit.check_free(number)?;
        let vacant = exit.numbers.iter().position(|n| *n == VACANT);
        let place = vacant.unwrap_or(exit.numbers.len());
        exit.io.exchange(place, port)?;
        exit.take_place(place, number);
        exit.ways[place] = Way::OWN;
        Ok(())
    }

    /// Deletes a port with its queue. Packets that wait there, or that its device has not taken, are dropped
    /// for [`crate::DropReason::PortDown`]. Its counts go to [`crate::Counts::deleted`]. Groups and clone
    /// sessions that name the port stay, and their copies are dropped for [`crate::DropReason::NoPort`].
    ///
    /// # Errors
    /// [`PortError`]; nothing has changed.
    pub fn delete_port(&mut self, number: u16, port: &mut Option<I::Port>) -> Result<(), PortError> {
        let place = self.local.exit.place_of(number)?;
        self.local.exit.exchange(place, port)?;
        self.replace_queue(number, None);
        let exit = &mut self.local.exit;
        let counts = std::mem::take(&mut exit.counts.ports[place]);
        exit.counts.deleted = exit.counts.deleted.plus(counts);
        exit.numbers[place] = VACANT;
        exit.indexes[usize::from(number)] = None;
        exit.find_pair();
        Ok(())
    }

    /// Exchanges what is behind a port's number, which may be nothing: packets to it are dropped then.
    ///
    /// # Errors
    /// [`PortError`]; nothing has changed.
    pub fn exchange_port(&mut self, number: u16, port: &mut Option<I::Port>) -> Result<(), PortError> {
        let place = self.local.exit.place_of(number)?;
        self.local.exit.exchange(place, port)
    }

    /// Says which thread sends by a port; without it, this one does.
    ///
    /// # Errors
    /// [`PortError::NoPort`].
    pub fn set_port_way(&mut self, number: u16, way: Way) -> Result<(), PortError> {
        let place = self.local.exit.place_of(number)?;
        self.local.exit.ways[place] = way;
        Ok(())
    }

    /// Says whether a port can send. While it cannot, packets to it are dropped.
    ///
    /// # Errors
    /// [`PortError::NoPort`].
    pub fn set_port_up(&mut self, number: u16, up: bool) -> Result<(), PortError> {
        let place = self.local.exit.place_of(number)?;
        self.local.exit.io.set_up(place, up);
        Ok(())
    }

    /// Returns the numbers of the ports that are lost and have to be opened anew, each with the reason.
    pub fn lost_ports(&self) -> impl Iterator<Item = (u16, &'static str)> {
        let numbers = self.local.exit.numbers.iter().enumerate();
        numbers.filter_map(|(place, number)| Some((*number, self.local.exit.io.lost(place)?)))
    }
}

impl<I: PacketIo> Switch<I> {
    /// Returns the counts of each port, by its number.
    pub fn port_counts(&self) -> impl Iterator<Item = (u16, PortCounts)> {
        let all = self.local.exit.numbers.iter().zip(&self.local.exit.counts.ports);
        all.filter(|(number, _)| **number != VACANT).map(|(number, counts)| (*number, *counts))
    }
}
