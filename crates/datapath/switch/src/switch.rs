//! The round of a switch: receive a batch, run the program, let the traffic manager follow, send.

use crate::calls::{Calls, Ended, From};
use crate::counts::{Counts, DropReason};
use crate::exit::{Exit, Leaving};
use crate::io::{BATCH, PacketIo};
use crate::links::Links;
use crate::numbers::Way;
use crate::pipeline::{Pipeline, PipelineHandle, unique};
use crate::places::PortError;
use crate::program::{Traits, Twin};
use crate::queues::{QueueLock, Queues};
use p4shield_abi::channel::{MAX_HEADER_BYTES, MAX_HEADROOM};
use p4shield_abi::division::{entry, request};
use p4shield_abi::info::InfoStatus;
use p4shield_bpf::{Entry, Meta, Packet, Program, VmInfo};
use p4shield_traffic::{Outcome, Run, Traffic};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// A packet in its place in a batch.
pub(crate) struct Slot {
    pub(crate) packet: Packet,
    /// The packet as it arrived, for the traffic manager.
    pub(crate) original: Vec<u8>,
}

/// A P4 switch with its ports, for one packet thread.
pub struct Switch<I> {
    pub(crate) pipeline: PipelineHandle,
    pub(crate) queues: Arc<QueueLock>,
    pub(crate) local: Local<I>,
}

/// The part of a switch that one packet thread has for itself.
pub(crate) struct Local<I> {
    pub(crate) exit: Exit<I>,
    pub(crate) batch: Vec<Slot>,
    pub(crate) info: VmInfo,
    /// Packets that wait for functions in a compartment.
    pub(crate) calls: Calls,
    pub(crate) start: Instant,
    /// Until then no packet is received, in nanoseconds since the start.
    pub(crate) holds_until_ns: u64,
}

/// A place for a further packet thread of a switch.
#[derive(Debug)]
pub struct Seat {
    pipeline: PipelineHandle,
    queues: Arc<QueueLock>,
    numbers: Vec<u16>,
    start: Instant,
}

impl Seat {
    /// Makes the switch with this thread's part of the ports, which have the numbers and places of the first
    /// thread's.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn take<I: PacketIo>(self, io: I) -> Result<Switch<I>, PortError> {
        let Self { pipeline, queues, numbers, start } = self;
        Ok(Switch { pipeline, queues, local: Local::new(io, &numbers, start)? })
    }
}

impl<I: PacketIo> Switch<I> {
    /// Makes a switch of ports with these numbers, by place.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn new(io: I, numbers: Vec<u16>, program: Program, traits: Traits) -> Result<Self, PortError> {
        let pipeline = PipelineHandle::of(Pipeline::new(program, traits));
        let queues = Arc::new(QueueLock::new());
        Ok(Self { pipeline, queues, local: Local::new(io, &numbers, Instant::now())? })
    }

    /// Returns what makes the same switch on a further thread. Both need [links](Self::set_links).
    pub fn seat(&self) -> Seat {
        Seat {
            pipeline: self.pipeline.clone(),
            queues: Arc::clone(&self.queues),
            numbers: self.local.exit.numbers.clone(),
            start: self.local.start,
        }
    }

    /// Links this thread with the others. `ways` says which thread sends by the port in each place.
    pub fn set_links(&mut self, links: Links, ways: &[Way]) {
        let exit = &mut self.local.exit;
        exit.links = links;
        exit.ways[..ways.len()].copy_from_slice(ways);
    }

    /// Returns the packets of this thread so far.
    pub const fn counts(&self) -> &Counts {
        &self.local.exit.counts
    }

    /// Returns the ports of this thread.
    pub const fn io(&mut self) -> &mut I {
        &mut self.local.exit.io
    }

    /// Locks the pipeline. Other threads that have it wait meanwhile.
    pub fn pipeline(&self) -> MutexGuard<'_, Pipeline> {
        self.pipeline.lock()
    }

    /// Returns the pipeline, for another thread.
    pub fn pipeline_handle(&self) -> PipelineHandle {
        self.pipeline.clone()
    }

    /// Has this thread run another pipeline, and returns the one before. Packets that wait for answers go on
    /// before. A program that reads how long packets waited runs in one pipeline of all threads.
    pub fn exchange_pipeline(&mut self, pipeline: PipelineHandle) -> PipelineHandle {
        self.end_calls();
        std::mem::replace(&mut self.pipeline, pipeline)
    }

    /// Lets packets that wait for answers go on, and receives none for so long: another thread changes what
    /// both share. Zero ends that.
    pub fn hold(&mut self, time: Duration) {
        self.end_calls();
        self.local.holds_until_ns = if time.is_zero() { 0 } else { self.local.after(time) };
    }

    fn end_calls(&mut self) {
        if self.awaits_answers() {
            self.local.drain_calls(&mut self.pipeline.lock(), &mut self.queues.lock());
        }
    }

    /// Returns true while no packet is received.
    fn holds(&mut self) -> bool {
        let holds = self.local.holds_until_ns > 0 && self.local.now_ns() < self.local.holds_until_ns;
        if !holds {
            self.local.holds_until_ns = 0;
        }
        holds
    }

    /// Announces that this thread is about to sleep, so that another one wakes it that hands it a packet.
    /// Returns false if one has: it must not sleep then.
    pub fn doze(&self) -> bool {
        self.local.exit.links.doze()
    }

    /// Says that this thread does not sleep any more.
    pub fn awake(&self) {
        self.local.exit.links.awake();
    }

    /// Lets time pass.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn pass(&mut self, time: Duration) {
        self.local.start = self.local.start.checked_sub(time).unwrap_or(self.local.start);
    }

    /// Replaces the program, and returns the old one. The new one takes the entries of these maps.
    /// Packets that wait before the old one's egress leave at once. A recording ends; the twin is returned,
    /// too.
    pub fn replace(&mut self, program: Program, traits: Traits, maps: &[String]) -> (Program, Option<Twin>) {
        let (pipeline, queues) = (&mut *self.pipeline.lock(), &mut *self.queues.lock());
        self.local.stop_recording(pipeline, queues);
        let twin = pipeline.twin.take();
        let old = self.local.exchange(pipeline, queues, program, traits, maps);
        self.pipeline.note(pipeline);
        (old, twin)
    }

    /// Receives, judges and sends up to one batch of each port. Returns the number of judged packets, and of
    /// those that other threads handed to this one.
    ///
    /// # Errors
    /// The ports report one ([`PacketIo`]). Packets that were received before are sent.
    pub fn round(&mut self) -> Result<usize, I::Error> {
        let mut received = self.local.exit.take_handed() + self.answer();
        if self.holds() {
            self.local.exit.links.wake();
            return self.local.exit.io.flush().map(|()| received);
        }
        let mut failed = Ok(());
        for port in 0..self.local.exit.numbers.len() {
            match self.local.receive(port) {
                Ok(0) => {}
                Ok(count) => {
                    received += count;
                    let (mut pipeline, mut queues) = (self.pipeline.lock(), self.queues.lock_any());
                    self.local.judge(&mut pipeline, queues.as_deref_mut(), port, count);
                }
                Err(error) => failed = Err(error),
            }
        }
        if self.queues.exist() {
            self.local.release(&mut self.pipeline.lock(), &mut self.queues.lock());
        }
        if self.pipeline.records() {
            self.stop_late_recording();
        }
        self.local.exit.links.wake();
        self.local.calls.publish();
        self.local.exit.io.flush()?;
        failed.map(|()| received)
    }
}

impl<I: PacketIo> Local<I> {
    fn new(io: I, numbers: &[u16], start: Instant) -> Result<Self, PortError> {
        let slot = || Slot {
            packet: Packet::new(MAX_HEADROOM as usize, MAX_HEADER_BYTES as usize),
            original: Vec::with_capacity(MAX_HEADER_BYTES as usize),
        };
        Ok(Self {
            exit: Exit::new(io, numbers)?,
            batch: std::iter::repeat_with(slot).take(BATCH).collect(),
            info: VmInfo::unknown(InfoStatus::Missing),
            calls: Calls::new(),
            start,
            holds_until_ns: 0,
        })
    }

    /// Returns nanoseconds since the start.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Replaces the program, and returns the old one.
    pub(crate) fn exchange(
        &mut self,
        pipeline: &mut Pipeline,
        queues: &mut Queues,
        mut program: Program,
        traits: Traits,
        maps: &[String],
    ) -> Program {
        self.drain_calls(pipeline, queues);
        // What they clone does not wait again for the new program.
        pipeline.traffic.queues = false;
        self.release_all(pipeline, queues);
        self.drain_calls(pipeline, queues);
        pipeline.series = unique();
        for name in maps {
            let new = program.maps_mut().and_then(|m| m.get_mut(name));
            let old = pipeline.program.maps_mut().and_then(|m| m.get_mut(name));
            if let (Some(new), Some(old)) = (new, old) {
                // Without the same definition, the map starts with the new program's entries.
                let _ = new.take(old);
            }
        }
        pipeline.traits = traits;
        pipeline.traffic.queues = traits.reads_queues && queues.exist();
        std::mem::replace(&mut pipeline.program, program)
    }

    /// Copies up to a batch of packets into the slots. Returns the number of filled slots.
    fn receive(&mut self, port: usize) -> Result<usize, I::Error> {
        let (batch, mut filled) = (&mut self.batch, 0);
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
            batch[filled].packet.reset(bytes, bytes.len() as u32);
            filled += 1;
        })?;
        Ok(filled)
    }

    /// Runs the program on the first `count` slots, which arrived at `port`.
    pub(crate) fn judge(
        &mut self,
        pipeline: &mut Pipeline,
        queues: Option<&mut Queues>,
        port: usize,
        count: usize,
    ) {
        let timestamp_ns = self.now_ns();
        let waits_before = pipeline.traits.reads_queues && queues.as_ref().is_some_and(|q| q.exist());
        let from =
            Entry { number: if waits_before { entry::QUEUED } else { entry::ARRIVAL }, ..Entry::default() };
        let Self { exit, batch, info, calls, .. } = self;
        let Pipeline { program, traffic, traits, recording, series, .. } = pipeline;
        let architecture = traits.architecture;
        let recorder = recording.as_mut().map(|r| &mut r.recorder);
        let number = exit.numbers[port];
        let meta = Meta { input_port: number.into(), timestamp_ns, ..Meta::default() };
        let calls = calls.is_set().then_some(calls);
        let caller = From { series: *series, ..From::default() };
        let now_ns = timestamp_ns;
        let mut leaving =
            Leaving { exit, queues, from: port, architecture, waits_before, now_ns, recorder, calls, caller };
        for Slot { packet, original } in &mut batch[..count] {
            if traits.divided {
                original.clear();
                original.extend_from_slice(packet.bytes());
            }
            let is_busy = leaving.calls.is_some() && leaving.begin_flow(packet.bytes());
            if let Some(recorder) = &mut leaving.recorder {
                recorder.begin(number, packet.bytes(), program);
            }
            let result = program.run_from(from, packet, &meta, info);
            let asks = traits.divided && Traffic::asks(&result);
            // One that calls waits anyway.
            if is_busy && !(asks && result.output_action & request::CALL != 0) {
                let (entry, arrived, result) = (from, original.as_slice(), &result);
                leaving.finish_later(Ended { entry, arrived, packet, result, meta: &meta, program });
            } else if asks {
                let mut run = Run { program, packet, meta: &meta, info };
                traffic.follow(&mut run, from, original, &result, &mut leaving);
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
