//! The queues of a switch: set, served, and asked when the next packet leaves.

use crate::calls::From;
use crate::exit::Leaving;
use crate::io::PacketIo;
use crate::pipeline::Pipeline;
use crate::queue::{Queue, QueueError, QueueLimits, Waiting};
use crate::queues::Queues;
use crate::record::Step;
use crate::switch::{Local, Slot, Switch};
use p4shield_abi::division::argument;
use p4shield_bpf::Meta;
use p4shield_traffic::{Ready, Run};
use std::time::Duration;

/// The state of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// Number of the port.
    pub port: u16,
    /// Its limits.
    pub limits: QueueLimits,
    /// Packets that wait now.
    pub waiting: u64,
    /// Packets that found it full.
    pub dropped: u64,
}

/// Where a packet has waited.
struct Place {
    /// Number of the port.
    port: u16,
    /// Packets that still wait there.
    left: u32,
}

impl<I: PacketIo> Switch<I> {
    /// Copies the states of the queues, those of all threads. Without an allocation if `states` has room.
    pub fn copy_queues(&self, states: &mut Vec<QueueState>) {
        let queues = self.queues.lock();
        let state = |port: &u16| {
            let queue = queues.get(*port)?;
            let waiting = queue.len() as u64;
            Some(QueueState { port: *port, limits: queue.limits, waiting, dropped: queue.dropped })
        };
        states.extend(queues.ports().iter().filter_map(state));
    }

    /// Returns the states of the queues.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn queues(&self) -> Vec<QueueState> {
        let mut states = Vec::new();
        self.copy_queues(&mut states);
        states
    }

    /// Returns the limits of a port's queue, if it has one.
    ///
    /// # Errors
    /// [`QueueError::NoPort`].
    pub fn queue_limits(&self, port: u16) -> Result<Option<QueueLimits>, QueueError> {
        self.local.exit.place_of(port).map_err(|_| QueueError::NoPort(port))?;
        Ok(self.queues.lock().limits(port))
    }

    /// Sets or removes the queue of a port. Packets that wait there leave at once.
    ///
    /// # Errors
    /// [`QueueError`]; nothing has changed.
    pub fn set_queue(&mut self, port: u16, limits: Option<QueueLimits>) -> Result<(), QueueError> {
        self.local.exit.place_of(port).map_err(|_| QueueError::NoPort(port))?;
        self.replace_queue(port, limits.map(Queue::new).transpose()?);
        Ok(())
    }

    /// Replaces the queue of a port. Packets that wait there leave at once.
    pub(crate) fn replace_queue(&mut self, port: u16, queue: Option<Queue>) {
        let (pipeline, queues) = (&mut *self.pipeline.lock(), &mut *self.queues.lock());
        // A clone of one that leaves now does not wait in the queue that ends.
        pipeline.traffic.queues = false;
        self.local.release_port(pipeline, queues, port, true);
        queues.set(port, queue);
        pipeline.traffic.queues = pipeline.traits.reads_queues && queues.exist();
        self.queues.note(queues);
    }

    /// Returns how long no packet may leave of the queues that this thread serves; `None` if none waits.
    pub fn next_release(&self) -> Option<Duration> {
        let queues = self.queues.lock_any()?;
        let own = queues.ports().iter().filter(|port| self.local.serves(**port));
        let due = own.filter_map(|port| queues.get(*port)?.due_ns()).min()?;
        Some(Duration::from_nanos(due.saturating_sub(self.local.now_ns())))
    }
}

impl<I: PacketIo> Local<I> {
    /// Returns whether this thread serves the queue of a port.
    fn serves(&self, port: u16) -> bool {
        self.exit.place_of(port).is_ok_and(|place| self.exit.ways[place].has_queue)
    }

    /// Lets the packets go that may leave by now, of the queues that this thread serves.
    pub(crate) fn release(&mut self, pipeline: &mut Pipeline, queues: &mut Queues) {
        for n in 0..queues.ports().len() {
            let port = queues.ports()[n];
            if self.serves(port) {
                self.release_port(pipeline, queues, port, false);
            }
        }
    }

    /// Lets all packets go that wait.
    pub(crate) fn release_all(&mut self, pipeline: &mut Pipeline, queues: &mut Queues) {
        for n in 0..queues.ports().len() {
            self.release_port(pipeline, queues, queues.ports()[n], true);
        }
    }

    fn release_port(&mut self, pipeline: &mut Pipeline, queues: &mut Queues, port: u16, all: bool) {
        let now_ns = self.now_ns();
        // More may come while these leave: a clone at the end of egress waits again.
        let most = queues.get(port).map_or(0, Queue::len);
        for _ in 0..most {
            let Some(queue) = queues.get_mut(port) else { return };
            let Some(mut packet) = queue.pop(now_ns, all) else { return };
            let left = queue.len() as u32;
            self.exit.counts.waiting = self.exit.counts.waiting.wrapping_sub(1);
            self.leave(pipeline, queues, &mut packet, Place { port, left });
            if let Some(queue) = queues.get_mut(port) {
                queue.done(packet);
            }
        }
    }

    /// Lets a packet go that has waited, and leaves so many behind.
    fn leave(&mut self, pipeline: &mut Pipeline, queues: &mut Queues, waited: &mut Waiting, at: Place) {
        let now_ns = self.now_ns();
        let time_ns = now_ns.saturating_sub(waited.since_ns);
        let Self { exit, batch, info, calls, .. } = self;
        let Pipeline { program, traffic, traits, recording, series, .. } = pipeline;
        let mut recorder = recording.as_mut().map(|r| &mut r.recorder);
        if let (Some(recorder), Some(id)) = (&mut recorder, waited.record) {
            let time = Duration::from_nanos(time_ns);
            recorder.resume(id, Step::Waited { port: at.port, time }, program);
        }
        let architecture = traits.architecture;
        let queues = Some(queues);
        let calls = calls.is_set().then_some(calls);
        let caller = From { flow: waited.flow, series: *series, ..From::default() };
        let mut leaving = Leaving {
            exit,
            queues,
            from: 0,
            architecture,
            waits_before: true,
            now_ns,
            recorder,
            calls,
            caller,
        };
        if let Some(entry) = waited.entry {
            waited.note(now_ns, at.left);
            let meta = Meta { timestamp_ns: now_ns, ..waited.meta };
            let Some(Slot { packet, .. }) = batch.first_mut() else { return };
            let mut run = Run { program, packet, meta: &meta, info };
            let Waiting { bytes, block, runs, .. } = &*waited;
            let ready = Ready { entry, bytes, block, meta: &meta, runs: *runs };
            if !leaving.begin_later(&ready) {
                traffic.resume(&mut run, ready, &mut leaving);
            }
        } else {
            leaving.send_waited(at.port, &waited.bytes);
        }
        if let Some(recorder) = &mut leaving.recorder {
            recorder.end();
        }
    }
}

impl Waiting {
    /// Notes for egress how long the packet waited until now, and how many it leaves behind.
    fn note(&mut self, now_ns: u64, left: u32) {
        let micros = |ns: u64| (ns / 1_000) as u32;
        for (at, value) in [
            (argument::QUEUED_AT, micros(self.since_ns)),
            (argument::QUEUED_BEHIND, self.behind),
            (argument::WAITED, micros(now_ns.saturating_sub(self.since_ns))),
            (argument::LEFT_BEHIND, left),
        ] {
            if let Some(place) = self.block.get_mut(at..at + 4) {
                place.copy_from_slice(&value.to_le_bytes());
            }
        }
    }
}
