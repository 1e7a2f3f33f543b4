//! The round of a switch: receive a batch, run the program, replicate, send.

use crate::counts::{Counts, DropReason, PortCounts};
use crate::groups::{Copy, Groups};
use crate::io::{BATCH, PacketIo};
use p4shield_abi::Verdict;
use p4shield_abi::channel::{MAX_HEADER_BYTES, MAX_HEADROOM};
use p4shield_abi::context::action;
use p4shield_abi::info::InfoStatus;
use p4shield_abi::schema::Architecture;
use p4shield_bpf::{Meta, Packet, Program, RunResult, VmInfo};
use std::time::Instant;

/// Highest number of a port: programs for v1model have 9 bits for it.
pub const MAX_PORT: u16 = 511;

/// `ubpf_action.REDIRECT` of `ubpf_model`.
const REDIRECT: u32 = 3;

/// The reason why the numbers of ports are refused.
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
}

/// Properties of a program that decide how the switch runs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// The architecture, which decides the port of a packet that passes. A program for `v1model` names it,
    /// one for `ubpf_model` after `REDIRECT` only. Else the packet leaves by the other port of two, or by the
    /// port on which it arrived.
    pub architecture: Architecture,
    /// It may send packets to multicast groups.
    pub replicates: bool,
}

/// A packet in its place in a batch.
struct Slot {
    packet: Packet,
    /// The packet as it arrived, for the copies of a multicast group.
    original: Vec<u8>,
}

/// A P4 switch with its ports, for one thread.
pub struct Switch<I> {
    io: I,
    program: Program,
    traits: Traits,
    /// Multicast groups.
    pub groups: Groups,
    /// Numbers of the ports, by index.
    numbers: Vec<u16>,
    /// Indexes of the ports, by number.
    indexes: Box<[Option<usize>]>,
    batch: Vec<Slot>,
    counts: Counts,
    info: VmInfo,
    start: Instant,
}

impl<I: PacketIo> Switch<I> {
    /// Makes a switch of ports with these numbers, by index.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn new(io: I, numbers: Vec<u16>, program: Program, traits: Traits) -> Result<Self, PortError> {
        if numbers.len() != io.ports() {
            return Err(PortError::Numbers { ports: io.ports(), numbers: numbers.len() });
        }
        let mut indexes = vec![None; usize::from(MAX_PORT) + 1].into_boxed_slice();
        for (index, number) in numbers.iter().enumerate() {
            let place = indexes.get_mut(usize::from(*number)).ok_or(PortError::TooLarge(*number))?;
            if place.replace(index).is_some() {
                return Err(PortError::Twice(*number));
            }
        }
        let slot = || Slot {
            packet: Packet::new(MAX_HEADROOM as usize, MAX_HEADER_BYTES as usize),
            original: Vec::with_capacity(MAX_HEADER_BYTES as usize),
        };
        Ok(Self {
            counts: Counts { ports: vec![PortCounts::default(); numbers.len()], ..Counts::default() },
            batch: std::iter::repeat_with(slot).take(BATCH).collect(),
            groups: Groups::default(),
            info: VmInfo::unknown(InfoStatus::Missing),
            start: Instant::now(),
            io,
            program,
            traits,
            numbers,
            indexes,
        })
    }

    /// Returns the packets so far.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the ports.
    pub const fn io(&mut self) -> &mut I {
        &mut self.io
    }

    /// Returns the program, whose maps hold the entries of its tables.
    pub const fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Replaces the program, and returns the old one. The new one takes the entries of these maps.
    pub fn replace(&mut self, mut program: Program, traits: Traits, maps: &[String]) -> Program {
        for name in maps {
            let new = program.maps_mut().and_then(|m| m.get_mut(name));
            let old = self.program.maps_mut().and_then(|m| m.get_mut(name));
            if let (Some(new), Some(old)) = (new, old) {
                // Without the same definition, the map starts with the new program's entries.
                let _ = new.take(old);
            }
        }
        self.traits = traits;
        std::mem::replace(&mut self.program, program)
    }

    /// Receives, judges and sends up to one batch of each port. Returns the number of judged packets.
    ///
    /// # Errors
    /// A device is gone, or broke its rings. Packets that were received before are sent.
    pub fn round(&mut self) -> Result<usize, I::Error> {
        let mut received = 0;
        let mut failed = Ok(());
        for port in 0..self.numbers.len() {
            match self.receive(port) {
                Ok(count) => {
                    received += count;
                    self.judge(port, count);
                }
                Err(error) => failed = Err(error),
            }
        }
        self.io.flush()?;
        failed.map(|()| received)
    }

    /// Copies up to a batch of packets into the slots. Returns the number of filled slots.
    fn receive(&mut self, port: usize) -> Result<usize, I::Error> {
        let (batch, replicates, mut filled) = (&mut self.batch, self.traits.replicates, 0);
        let (counts, dropped) = (&mut self.counts.ports[port], &mut self.counts.dropped);
        let most = batch.len();
        self.io.receive(port, most, |bytes| {
            counts.received += 1;
            counts.received_bytes += bytes.len() as u64;
            if bytes.len() > MAX_HEADER_BYTES as usize {
                dropped[DropReason::TooLong as usize] += 1;
                return;
            }
            let Slot { packet, original } = &mut batch[filled];
            packet.reset(bytes, bytes.len() as u32);
            if replicates {
                original.clear();
                original.extend_from_slice(bytes);
            }
            filled += 1;
        })?;
        Ok(filled)
    }

    /// Runs the program on the first `count` slots, which arrived at `port`.
    fn judge(&mut self, port: usize, count: usize) {
        if count == 0 {
            return;
        }
        let timestamp_ns = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let meta = Meta { input_port: self.numbers[port].into(), timestamp_ns, ..Meta::default() };
        for slot in 0..count {
            let result = self.program.run(&mut self.batch[slot].packet, &meta, &self.info);
            if result.verdict != Verdict::Pass
                && result.stopped.is_none()
                && self.traits.replicates
                && result.output_action == action::REPLICATE
            {
                self.replicate(slot, &meta, result.output_port);
            } else {
                self.send(slot, port, &result);
            }
        }
    }

    /// Makes the copies of a packet for a multicast group.
    fn replicate(&mut self, slot: usize, meta: &Meta, group: u32) {
        let copies = self.groups.copies(group).len();
        if copies == 0 {
            return self.drop_packet(DropReason::NoGroup);
        }
        self.counts.replicated += 1;
        for n in 0..copies {
            let Copy { port, replica } = self.groups.copies(group)[n];
            self.counts.copies += 1;
            let Slot { packet, original } = &mut self.batch[slot];
            packet.reset(original, original.len() as u32);
            let result = self.program.run_copy(packet, meta, &self.info, (port, replica));
            self.send(slot, usize::MAX, &result);
        }
    }

    /// Sends a packet, which arrived at the port with index `from`, as the program decided.
    fn send(&mut self, slot: usize, from: usize, result: &RunResult) {
        if result.stopped.is_some() || result.limit.is_some() {
            return self.drop_packet(DropReason::Stopped);
        }
        if result.verdict != Verdict::Pass {
            return self.drop_packet(DropReason::Program);
        }
        let is_named = match self.traits.architecture {
            Architecture::V1model => true,
            Architecture::Ubpf => result.output_action == REDIRECT,
            Architecture::Ebpf => false,
        };
        let to = match self.numbers.len() {
            _ if is_named => usize::try_from(result.output_port).ok().and_then(|p| *self.indexes.get(p)?),
            2 => Some(1 - from),
            _ => Some(from),
        };
        let Some(to) = to else { return self.drop_packet(DropReason::NoPort) };
        let packet = &self.batch[slot].packet;
        let bytes = &packet.bytes()[..packet.len().min(result.total as usize)];
        if self.io.send(to, bytes) {
            let counts = &mut self.counts.ports[to];
            counts.sent += 1;
            counts.sent_bytes += bytes.len() as u64;
        } else {
            self.drop_packet(DropReason::NoRoom);
        }
    }

    fn drop_packet(&mut self, reason: DropReason) {
        self.counts.dropped[reason as usize] += 1;
    }
}
