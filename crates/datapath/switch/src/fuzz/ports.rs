//! Ports in memory that can be full, stuck, lost and exchanged, and that keep books of their own.

use crate::io::{ExchangePorts, PacketIo, Refused, Unsent};
use crate::numbers::MAX_PORTS;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A port.
#[derive(Default)]
pub(super) struct Port {
    pub(super) input: VecDeque<Vec<u8>>,
    /// Lengths of packets that the device has not taken.
    pending: Vec<usize>,
    /// Most of them.
    pub(super) room: usize,
    /// True if the device takes nothing.
    pub(super) stuck: bool,
    down: bool,
}

impl Port {
    pub(super) fn open() -> Self {
        Self { room: 64, ..Self::default() }
    }
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Sum {
    pub(super) const fn add(&mut self, len: usize) {
        self.packets += 1;
        self.bytes += len as u64;
    }
}

/// The ports by place, and what passed them.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) places: Vec<Option<Port>>,
    /// Packets that the switch received.
    pub(super) arrived: Sum,
    /// Those that are longer than a switch takes.
    pub(super) too_long: u64,
    /// Packets that devices took.
    delivered: Sum,
    /// Packets that were lost with their port.
    pub(super) lost: u64,
}

impl Memory {
    pub(super) fn new(ports: usize) -> Self {
        Self { places: (0..ports).map(|_| Some(Port::open())).collect(), ..Self::default() }
    }

    pub(super) fn port(&mut self, place: usize) -> Option<&mut Port> {
        self.places.get_mut(place)?.as_mut()
    }

    /// Returns what the switch has sent, as far as it was not lost.
    pub(super) fn sent(&self) -> Sum {
        let mut sum = self.delivered;
        self.places.iter().flatten().flat_map(|port| &port.pending).for_each(|len| sum.add(*len));
        sum
    }
}

impl PacketIo for Memory {
    type Error = Infallible;

    fn ports(&self) -> usize {
        self.places.len()
    }

    fn receive(
        &mut self,
        place: usize,
        most: usize,
        mut each: impl FnMut(&[u8]),
    ) -> Result<usize, Infallible> {
        let Self { places, arrived, too_long, .. } = self;
        let Some(Some(port)) = places.get_mut(place) else { return Ok(0) };
        let count = most.min(port.input.len());
        for packet in port.input.drain(..count) {
            arrived.add(packet.len());
            *too_long += u64::from(packet.len() > p4shield_abi::channel::MAX_HEADER_BYTES as usize);
            each(&packet);
        }
        Ok(count)
    }

    fn send(&mut self, place: usize, packet: &[u8]) -> bool {
        let Some(port) = self.port(place) else { return false };
        let takes = !port.down && port.pending.len() < port.room;
        if takes {
            port.pending.push(packet.len());
        }
        takes
    }

    fn is_up(&self, place: usize) -> bool {
        self.places.get(place).is_some_and(|p| p.as_ref().is_some_and(|p| !p.down))
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        for port in self.places.iter_mut().flatten().filter(|port| !port.stuck) {
            port.pending.drain(..).for_each(|len| self.delivered.add(len));
        }
        Ok(())
    }

    fn wait(&mut self, _: Duration, _: Option<BorrowedFd<'_>>) -> Result<(), Infallible> {
        Ok(())
    }
}

impl ExchangePorts for Memory {
    type Port = Port;

    fn exchange(&mut self, place: usize, port: &mut Option<Port>) -> Result<(), Refused> {
        if place >= MAX_PORTS {
            return Err(Refused("there is no such place"));
        }
        // As a device in use by another process.
        if port.as_ref().is_some_and(|p| p.room == 0) {
            return Err(Refused("a port without room"));
        }
        if place == self.places.len() {
            self.places.push(None);
        }
        std::mem::swap(&mut self.places[place], port);
        self.lost += port.as_mut().map_or(0, |old| old.pending.drain(..).len() as u64);
        Ok(())
    }

    fn unsent(&mut self, place: usize) -> Unsent {
        let pending = self.port(place).map(|port| &port.pending);
        let bytes = pending.iter().flat_map(|all| all.iter()).map(|len| *len as u64).sum();
        Unsent { packets: pending.map_or(0, |all| all.len() as u64), bytes }
    }

    fn set_up(&mut self, place: usize, up: bool) {
        if let Some(port) = self.port(place) {
            port.down = !up;
        }
    }

    fn lost(&self, place: usize) -> Option<&'static str> {
        let port = self.places.get(place)?.as_ref()?;
        (port.stuck && port.down).then_some("it is stuck and down")
    }
}
