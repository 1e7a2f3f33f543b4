//! The way out: a run's packet is sent by its port, or dropped for a counted reason.

use crate::calls::{Calls, Ended, From};
use crate::counts::{Counts, DropReason};
use crate::io::{BATCH, PacketIo};
use crate::links::{Handed, Links};
use crate::numbers::Way;
use crate::queue::{Arriving, Pushed};
use crate::queues::Queues;
use crate::record::{RecordId, Recorder, Step};
use p4shield_abi::Verdict;
use p4shield_abi::division::destination;
use p4shield_abi::schema::Architecture;
use p4shield_bpf::Meta;
use p4shield_bpf::{Packet, Program, RunResult};
use p4shield_traffic::{Event, Loss, Outcome, Ready};

/// `ubpf_action.REDIRECT` of `ubpf_model`.
const REDIRECT: u32 = 3;

/// The ports of a switch, and what passed them.
pub(crate) struct Exit<I> {
    pub(crate) io: I,
    /// Numbers of the ports, by place; [`crate::numbers::VACANT`] for a place without a port.
    pub(crate) numbers: Vec<u16>,
    /// Places of the ports, by number.
    pub(crate) indexes: Box<[Option<usize>]>,
    /// The places of both ports, if there are two.
    pub(crate) pair: Option<[usize; 2]>,
    pub(crate) counts: Counts,
    /// The thread that sends by the port, by place.
    pub(crate) ways: Vec<Way>,
    /// The links with other threads.
    pub(crate) links: Links,
}

/// The way out for packets that arrived at one port.
pub(crate) struct Leaving<'a, I> {
    pub(crate) exit: &'a mut Exit<I>,
    /// The queues, if there are any.
    pub(crate) queues: Option<&'a mut Queues>,
    /// Place of the port.
    pub(crate) from: usize,
    pub(crate) architecture: Architecture,
    /// True if packets have waited before egress, or may do so.
    pub(crate) waits_before: bool,
    /// Nanoseconds since the start.
    pub(crate) now_ns: u64,
    /// Records what becomes of the packet.
    pub(crate) recorder: Option<&'a mut Recorder>,
    /// The packets that wait for a compartment, if there is one.
    pub(crate) calls: Option<&'a mut Calls>,
    /// The packet that calls.
    pub(crate) caller: From,
}

impl<I: PacketIo> Exit<I> {
    /// Sends a packet by the port in this place, or drops it if the port is down or has no room. Returns the
    /// reason if it was dropped.
    #[inline]
    pub(crate) fn send(&mut self, to: usize, bytes: &[u8]) -> Option<DropReason> {
        // A switch with one thread looks at nothing else.
        match self.links.is_alone() {
            false if self.ways[to].thread.is_some() => self.hand(to, bytes),
            _ => put(&mut self.io, &mut self.counts, to, bytes),
        }
    }

    /// Hands a packet to the thread that sends by the port in this place.
    #[inline(never)]
    fn hand(&mut self, to: usize, bytes: &[u8]) -> Option<DropReason> {
        let thread = self.ways[to].thread;
        if thread.is_some_and(|thread| self.links.push(thread, self.numbers[to], bytes)) {
            self.counts.waiting = self.counts.waiting.wrapping_add(1);
            None
        } else {
            self.counts.drop_for(DropReason::NoRoom);
            Some(DropReason::NoRoom)
        }
    }

    /// Sends packets that other threads handed to this one. Returns their number.
    pub(crate) fn take_handed(&mut self) -> usize {
        let Self { io, links, counts, ways, indexes, .. } = self;
        links.take(BATCH, |Handed { port, bytes }| {
            counts.waiting = counts.waiting.wrapping_sub(1);
            let place = indexes.get(usize::from(*port)).copied().flatten();
            match place {
                // A port may have moved to another thread meanwhile.
                Some(to) if ways[to].thread.is_some() => counts.drop_for(DropReason::PortDown),
                Some(to) => drop(put(io, counts, to, bytes)),
                None => counts.drop_for(DropReason::NoPort),
            }
        })
    }

    /// Returns the other port of two, or the same one of more or less.
    const fn other(&self, from: usize) -> usize {
        match self.pair {
            Some([a, b]) if from == a => b,
            Some([a, _]) => a,
            None => from,
        }
    }
}

/// Puts a packet into the port in this place. Returns the reason if it was dropped instead.
#[inline]
fn put<I: PacketIo>(io: &mut I, counts: &mut Counts, to: usize, bytes: &[u8]) -> Option<DropReason> {
    if io.send(to, bytes) {
        let counts = &mut counts.ports[to];
        counts.sent += 1;
        counts.sent_bytes += bytes.len() as u64;
        None
    } else {
        Some(lose(io, counts, to))
    }
}

/// Counts a packet that its port did not take.
#[cold]
fn lose<I: PacketIo>(io: &I, counts: &mut Counts, to: usize) -> DropReason {
    let reason = if io.is_up(to) { DropReason::NoRoom } else { DropReason::PortDown };
    counts.drop_for(reason);
    reason
}

impl<I: PacketIo> Leaving<'_, I> {
    /// Sends or drops a packet, as the program decided.
    // Without a call of its own, a common packet costs a tenth less: its result stays in registers.
    #[inline(always)]
    pub(crate) fn send(&mut self, packet: &Packet, result: &RunResult) {
        if result.stopped.is_some() || result.limit.is_some() {
            return self.drop_packet(DropReason::Stopped);
        }
        if result.verdict != Verdict::Pass {
            return self.drop_packet(DropReason::Program);
        }
        let is_named = match self.architecture {
            Architecture::V1model => true,
            Architecture::Ubpf => result.output_action == REDIRECT,
            Architecture::Ebpf => false,
        };
        let (port, priority) = match self.architecture {
            Architecture::V1model => destination(result.output_port),
            _ => (u16::try_from(result.output_port).unwrap_or(u16::MAX), 0),
        };
        let to = if is_named {
            self.exit.indexes.get(usize::from(port)).copied().flatten()
        } else {
            Some(self.exit.other(self.from))
        };
        let Some(to) = to else { return self.drop_packet(DropReason::NoPort) };
        let bytes = &packet.bytes()[..packet.len().min(result.total as usize)];
        if !self.waits_before && self.queues.is_some() && self.has_queue(self.exit.numbers[to]) {
            let number = self.exit.numbers[to];
            let (record, meta) = (self.recorded(), &Meta::default());
            let flow = self.caller.flow;
            let from = Arriving { entry: None, priority, bytes, block: &[], meta, runs: 0, record, flow };
            self.queue(number, &from);
        } else {
            self.put(to, bytes);
        }
    }

    /// Sends a packet by the port in this place.
    #[inline(always)]
    fn put(&mut self, to: usize, bytes: &[u8]) {
        let lost = self.exit.send(to, bytes);
        if let Some(recorder) = &mut self.recorder {
            let port = self.exit.numbers[to];
            recorder.step(|| match lost {
                None => Step::Sent { port, bytes: bytes.to_vec() },
                Some(reason) => Step::Dropped(reason),
            });
        }
    }

    /// Sends a packet that has waited behind egress.
    pub(crate) fn send_waited(&mut self, port: u16, bytes: &[u8]) {
        match self.exit.place_of(port) {
            Ok(to) => self.put(to, bytes),
            Err(_) => self.drop_packet(DropReason::NoPort),
        }
    }

    /// Begins with a packet. Returns true if others of its flow wait for answers.
    pub(crate) fn begin_flow(&mut self, bytes: &[u8]) -> bool {
        let Some(calls) = self.calls.as_deref_mut() else { return false };
        self.caller.flow = Calls::flow(self.from, bytes);
        calls.is_busy(self.caller.flow)
    }

    /// Lets a packet wait whose run has ended while others of its flow wait for answers.
    #[inline(never)]
    pub(crate) fn finish_later(&mut self, mut ended: Ended<'_>) {
        let Some(calls) = self.calls.as_deref_mut() else { return };
        if let Some(recorder) = &mut self.recorder {
            recorder.ran(ended.program);
        }
        let record = self.recorder.as_ref().and_then(|recorder| recorder.now());
        let from = From { record, ..self.caller };
        if calls.finish_later(&mut ended, &from, self.now_ns) {
            self.wait(Step::Behind);
        } else {
            self.drop_packet(DropReason::CallsFull);
        }
    }

    /// Lets a packet that has waited in a queue wait again while others of its flow wait for answers. Returns
    /// false if none does.
    pub(crate) fn begin_later(&mut self, ready: &Ready<'_>) -> bool {
        let from = From { record: self.recorded(), ..self.caller };
        let Some(calls) = self.calls.as_deref_mut().filter(|c| c.is_busy(from.flow)) else { return false };
        if calls.begin_later(ready, &from, self.now_ns) {
            self.wait(Step::Behind);
        } else {
            self.drop_packet(DropReason::CallsFull);
        }
        true
    }

    /// Notes that a packet waits for the compartment.
    fn wait(&mut self, step: Step) {
        self.exit.counts.waiting = self.exit.counts.waiting.wrapping_add(1);
        if let Some(recorder) = &mut self.recorder {
            recorder.wait(step);
        }
    }

    fn has_queue(&self, port: u16) -> bool {
        self.queues.as_ref().is_some_and(|queues| queues.get(port).is_some())
    }

    /// Lets a packet wait for the port with this number, which has a queue.
    #[inline(never)]
    fn queue(&mut self, port: u16, packet: &Arriving<'_>) {
        let Some(queue) = self.queues.as_mut().and_then(|q| q.get_mut(port)) else { return };
        match queue.push(packet, self.now_ns) {
            Pushed::Waits => self.exit.counts.waiting = self.exit.counts.waiting.wrapping_add(1),
            // One that waits took the place of another.
            Pushed::Displaces(lost) => {
                self.exit.counts.drop_for(DropReason::Queue);
                if let (Some(recorder), Some(lost)) = (&mut self.recorder, lost) {
                    recorder.displaced(lost);
                }
            }
            Pushed::Lost => return self.drop_packet(DropReason::Queue),
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.wait(Step::Queued { port });
        }
    }

    /// Returns the record of the packet, if there is one.
    fn recorded(&self) -> Option<RecordId> {
        self.recorder.as_ref().and_then(|recorder| recorder.now())
    }

    pub(crate) fn drop_packet(&mut self, reason: DropReason) {
        self.exit.counts.drop_for(reason);
        self.step(Step::Dropped(reason));
    }

    fn step(&mut self, step: Step) {
        if let Some(recorder) = &mut self.recorder {
            recorder.step(|| step);
        }
    }
}

impl<I: PacketIo> Outcome for Leaving<'_, I> {
    fn end(&mut self, packet: &Packet, result: &RunResult) {
        self.send(packet, result);
    }

    fn hold(&mut self, ready: Ready<'_>) -> bool {
        let Ready { entry, bytes, block, meta, runs } = ready;
        if !self.has_queue(entry.port) {
            return false;
        }
        let (record, priority) = (self.recorded(), entry.priority);
        let flow = self.caller.flow;
        let arriving = Arriving { entry: Some(entry), priority, bytes, block, meta, runs, record, flow };
        self.queue(entry.port, &arriving);
        true
    }

    fn call(&mut self, ready: Ready<'_>) -> bool {
        let record = self.recorded();
        let from = From { record, ..self.caller };
        let Some(calls) = self.calls.as_deref_mut() else { return false };
        if !calls.call(&ready, &from, self.now_ns) {
            self.drop_packet(DropReason::CallsFull);
            return true;
        }
        self.wait(Step::Called);
        true
    }

    fn lose(&mut self, reason: Loss) {
        self.drop_packet(match reason {
            Loss::NoGroup => DropReason::NoGroup,
            Loss::NoSession => DropReason::NoSession,
            Loss::Budget => DropReason::Runs,
            Loss::TooLong => DropReason::TooLong,
            Loss::Call => DropReason::Unanswered,
        });
    }

    fn note(&mut self, event: Event) {
        let counts = &mut self.exit.counts;
        *match event {
            Event::Replicated => &mut counts.replicated,
            Event::Copied => &mut counts.copies,
            Event::Resubmitted => &mut counts.resubmitted,
            Event::Recirculated => &mut counts.recirculated,
        } += 1;
        self.step(Step::Traffic(event));
    }

    #[inline]
    fn ran(&mut self, program: &mut Program) {
        if let Some(recorder) = &mut self.recorder {
            recorder.ran(program);
        }
    }
}
