//! The queues of a switch: set, served, and asked when the next packet leaves.

use crate::exit::Leaving;
use crate::io::PacketIo;
use crate::queue::{Queue, QueueError, QueueLimits, Waiting};
use crate::switch::Switch;
use p4shield_abi::division::argument;
use p4shield_bpf::{Meta, Packet};
use p4shield_traffic::Run;
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

impl<I: PacketIo> Switch<I> {
    /// Returns the queues.
    pub fn queues(&self) -> impl Iterator<Item = QueueState> {
        let ports = self.exit.numbers.iter().zip(&self.exit.queues);
        ports.filter_map(|(port, queue)| {
            let queue = queue.as_ref()?;
            let waiting = queue.len() as u64;
            Some(QueueState { port: *port, limits: queue.limits, waiting, dropped: queue.dropped })
        })
    }

    /// Returns the limits of a port's queue, if it has one.
    ///
    /// # Errors
    /// [`QueueError::NoPort`].
    pub fn queue_limits(&self, port: u16) -> Result<Option<QueueLimits>, QueueError> {
        Ok(self.exit.queues[self.index_of(port)?].as_ref().map(|q| q.limits))
    }

    /// Sets or removes the queue of a port. Packets that wait there leave at once.
    ///
    /// # Errors
    /// [`QueueError`]; nothing has changed.
    pub fn set_queue(&mut self, port: u16, limits: Option<QueueLimits>) -> Result<(), QueueError> {
        let index = self.index_of(port)?;
        self.replace_queue(index, limits.map(Queue::new).transpose()?);
        Ok(())
    }

    /// Replaces the queue of the port in a place. Packets that wait there leave at once.
    pub(crate) fn replace_queue(&mut self, place: usize, queue: Option<Queue>) {
        // A clone of one that leaves now does not wait in the queue that ends.
        self.traffic.queues = false;
        self.release_port(place, true);
        self.exit.queues[place] = queue;
        self.exit.has_queues = self.exit.queues.iter().any(Option::is_some);
        self.traffic.queues = self.waits_before();
    }

    fn index_of(&self, port: u16) -> Result<usize, QueueError> {
        self.exit.indexes.get(usize::from(port)).copied().flatten().ok_or(QueueError::NoPort(port))
    }

    /// Returns true if packets wait between ingress and egress.
    pub(crate) const fn waits_before(&self) -> bool {
        self.traits.reads_queues && self.exit.has_queues
    }

    /// Returns how long no packet of a queue may leave; `None` if none waits.
    pub fn next_release(&self) -> Option<Duration> {
        let due = self.exit.queues.iter().flatten().filter_map(Queue::due_ns).min()?;
        Some(Duration::from_nanos(due.saturating_sub(self.now_ns())))
    }

    /// Lets the packets go that may leave by now, or all that wait.
    pub(crate) fn release(&mut self, all: bool) {
        (0..self.exit.queues.len()).for_each(|port| self.release_port(port, all));
    }

    fn release_port(&mut self, port: usize, all: bool) {
        let now_ns = self.now_ns();
        // More may come while these leave: a clone at the end of egress waits again.
        let most = self.exit.queues[port].as_ref().map_or(0, Queue::len);
        for _ in 0..most {
            let Some(queue) = &mut self.exit.queues[port] else { return };
            let Some(mut packet) = queue.pop(now_ns, all) else { return };
            let left = queue.len() as u32;
            self.exit.counts.waiting -= 1;
            match packet.entry {
                None => {
                    self.exit.send(port, &packet.bytes);
                }
                Some(_) => self.resume(&mut packet, left, now_ns),
            }
            if let Some(queue) = &mut self.exit.queues[port] {
                queue.done(packet);
            }
        }
    }

    /// Runs the second part of the program for a packet that has waited.
    fn resume(&mut self, waited: &mut Waiting, left: u32, now_ns: u64) {
        let micros = |ns: u64| (ns / 1_000) as u32;
        for (at, value) in [
            (argument::QUEUED_AT, micros(waited.since_ns)),
            (argument::QUEUED_BEHIND, waited.behind),
            (argument::WAITED, micros(now_ns - waited.since_ns)),
            (argument::LEFT_BEHIND, left),
        ] {
            if let Some(place) = waited.block.get_mut(at..at + 4) {
                place.copy_from_slice(&value.to_le_bytes());
            }
        }
        let meta = Meta { timestamp_ns: now_ns, ..waited.meta };
        let Self { exit, program, traffic, batch, info, traits, .. } = self;
        let architecture = traits.architecture;
        let mut leaving = Leaving { exit, from: 0, architecture, waits_before: true, now_ns, recorder: None };
        let Some(packet): Option<&mut Packet> = batch.first_mut().map(|slot| &mut slot.packet) else {
            return;
        };
        let mut run = Run { program, packet, meta: &meta, info };
        let entry = waited.entry.unwrap_or_default();
        traffic.resume(&mut run, entry, &waited.bytes, &waited.block, &mut leaving);
    }
}
