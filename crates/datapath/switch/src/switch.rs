//! The round of a switch: receive a batch, run the program, let the traffic manager follow, send.

use crate::counts::{Counts, DropReason};
use crate::exit::{Exit, Leaving};
use crate::io::{BATCH, PacketIo};
use crate::places::PortError;
use crate::record::Recorder;
use p4shield_abi::channel::{MAX_HEADER_BYTES, MAX_HEADROOM};
use p4shield_abi::division::entry;
use p4shield_abi::info::InfoStatus;
use p4shield_abi::schema::Architecture;
use p4shield_bpf::{Entry, Meta, Packet, Program, VmInfo};
use p4shield_traffic::{Outcome, Run, Traffic};
use std::time::Instant;

/// Properties of a program that decide how the switch runs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// The architecture, which decides the port of a packet that passes. A program for `v1model` names it,
    /// one for `ubpf_model` after `REDIRECT` only. Else the packet leaves by the other port of two, or by the
    /// port on which it arrived.
    pub architecture: Architecture,
    /// It may ask the traffic manager for copies or further runs ([`p4shield_abi::division`]).
    pub divided: bool,
    /// It reads how long packets waited, so that they wait before egress.
    pub reads_queues: bool,
}

/// A program that the switch can run in place of its own for a while: compiled for tracing, with the same
/// maps.
#[derive(Debug)]
pub struct Twin {
    /// The program.
    pub program: Program,
    /// How the switch runs it.
    pub traits: Traits,
    /// Maps whose entries it takes.
    pub maps: Vec<String>,
}

/// The state of a recording.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) recorder: Recorder,
    /// When it ends unless a client takes records before, in nanoseconds since the start.
    pub(crate) until_ns: u64,
    /// True while the twin runs.
    pub(crate) traced: bool,
}

/// A packet in its place in a batch.
pub(crate) struct Slot {
    pub(crate) packet: Packet,
    /// The packet as it arrived, for the traffic manager.
    pub(crate) original: Vec<u8>,
}

/// A P4 switch with its ports, for one thread.
pub struct Switch<I> {
    pub(crate) exit: Exit<I>,
    pub(crate) program: Program,
    pub(crate) traits: Traits,
    /// Multicast groups and clone sessions.
    pub traffic: Traffic,
    pub(crate) batch: Vec<Slot>,
    pub(crate) info: VmInfo,
    start: Instant,
    /// The program compiled for tracing, or the plain one while that runs.
    pub(crate) twin: Option<Twin>,
    pub(crate) recording: Option<Recording>,
}

impl<I: PacketIo> Switch<I> {
    /// Makes a switch of ports with these numbers, by place.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn new(io: I, numbers: Vec<u16>, program: Program, traits: Traits) -> Result<Self, PortError> {
        let exit = Exit::new(io, &numbers)?;
        let slot = || Slot {
            packet: Packet::new(MAX_HEADROOM as usize, MAX_HEADER_BYTES as usize),
            original: Vec::with_capacity(MAX_HEADER_BYTES as usize),
        };
        Ok(Self {
            batch: std::iter::repeat_with(slot).take(BATCH).collect(),
            traffic: Traffic::new(),
            info: VmInfo::unknown(InfoStatus::Missing),
            start: Instant::now(),
            exit,
            program,
            traits,
            twin: None,
            recording: None,
        })
    }

    /// Returns the packets so far.
    pub const fn counts(&self) -> &Counts {
        &self.exit.counts
    }

    /// Returns the ports.
    pub const fn io(&mut self) -> &mut I {
        &mut self.exit.io
    }

    /// Returns the program, whose maps hold the entries of its tables.
    pub const fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Returns nanoseconds since the start.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Lets time pass.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn pass(&mut self, time: std::time::Duration) {
        self.start = self.start.checked_sub(time).unwrap_or(self.start);
    }

    /// Replaces the program, and returns the old one. The new one takes the entries of these maps.
    /// Packets that wait before the old one's egress leave at once. A recording ends; the twin is returned,
    /// too.
    pub fn replace(&mut self, program: Program, traits: Traits, maps: &[String]) -> (Program, Option<Twin>) {
        self.stop_recording();
        let twin = self.twin.take();
        (self.exchange(program, traits, maps), twin)
    }

    /// Replaces the program, and returns the old one.
    pub(crate) fn exchange(&mut self, mut program: Program, traits: Traits, maps: &[String]) -> Program {
        // What they clone does not wait again for the new program.
        self.traffic.queues = false;
        self.release(true);
        for name in maps {
            let new = program.maps_mut().and_then(|m| m.get_mut(name));
            let old = self.program.maps_mut().and_then(|m| m.get_mut(name));
            if let (Some(new), Some(old)) = (new, old) {
                // Without the same definition, the map starts with the new program's entries.
                let _ = new.take(old);
            }
        }
        self.traits = traits;
        self.traffic.queues = self.waits_before();
        std::mem::replace(&mut self.program, program)
    }

    /// Receives, judges and sends up to one batch of each port. Returns the number of judged packets.
    ///
    /// # Errors
    /// The ports report one ([`PacketIo`]). Packets that were received before are sent.
    pub fn round(&mut self) -> Result<usize, I::Error> {
        let mut received = 0;
        let mut failed = Ok(());
        for port in 0..self.exit.numbers.len() {
            match self.receive(port) {
                Ok(count) => {
                    received += count;
                    self.judge(port, count);
                }
                Err(error) => failed = Err(error),
            }
        }
        if self.exit.has_queues {
            self.release(false);
        }
        if self.recording.is_some() {
            self.stop_late_recording();
        }
        self.exit.io.flush()?;
        failed.map(|()| received)
    }

    /// Copies up to a batch of packets into the slots. Returns the number of filled slots.
    fn receive(&mut self, port: usize) -> Result<usize, I::Error> {
        let (batch, divided, mut filled) = (&mut self.batch, self.traits.divided, 0);
        let Exit { io, counts, .. } = &mut self.exit;
        let (counts, dropped) = (&mut counts.ports[port], &mut counts.dropped);
        let most = batch.len();
        io.receive(port, most, |bytes| {
            counts.received += 1;
            counts.received_bytes += bytes.len() as u64;
            if bytes.len() > MAX_HEADER_BYTES as usize {
                dropped[DropReason::TooLong as usize] += 1;
                return;
            }
            let Slot { packet, original } = &mut batch[filled];
            packet.reset(bytes, bytes.len() as u32);
            if divided {
                original.clear();
                original.extend_from_slice(bytes);
            }
            filled += 1;
        })?;
        Ok(filled)
    }

    /// Runs the program on the first `count` slots, which arrived at `port`.
    pub(crate) fn judge(&mut self, port: usize, count: usize) {
        if count == 0 {
            return;
        }
        let timestamp_ns = self.now_ns();
        let waits_before = self.waits_before();
        let from =
            Entry { number: if waits_before { entry::QUEUED } else { entry::ARRIVAL }, ..Entry::default() };
        let meta = Meta { input_port: self.exit.numbers[port].into(), timestamp_ns, ..Meta::default() };
        let Self { exit, program, traffic, batch, info, traits, recording, .. } = self;
        let architecture = traits.architecture;
        let recorder = recording.as_mut().map(|r| &mut r.recorder);
        let number = exit.numbers[port];
        let mut leaving =
            Leaving { exit, from: port, architecture, waits_before, now_ns: timestamp_ns, recorder };
        for Slot { packet, original } in &mut batch[..count] {
            if let Some(recorder) = &mut leaving.recorder {
                recorder.begin(number, packet.bytes(), program);
            }
            let result = program.run_from(from, packet, &meta, info);
            if traits.divided && Traffic::asks(&result) {
                let mut run = Run { program, packet, meta: &meta, info };
                traffic.follow(&mut run, original, &result, &mut leaving);
            } else {
                leaving.ran(program);
                leaving.send(packet, &result);
            }
            if let Some(recorder) = &mut leaving.recorder {
                recorder.end();
            }
        }
    }
}
