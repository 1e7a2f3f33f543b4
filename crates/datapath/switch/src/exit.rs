//! The way out: a run's packet is sent by its port, or dropped for a counted reason.

use crate::counts::{Counts, DropReason};
use crate::io::PacketIo;
use crate::queue::{Arriving, Pushed, Queue};
use crate::record::{Recorder, Step};
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
    /// Numbers of the ports, by place; [`crate::places::VACANT`] for a place without a port.
    pub(crate) numbers: Vec<u16>,
    /// Places of the ports, by number.
    pub(crate) indexes: Box<[Option<usize>]>,
    /// The places of both ports, if there are two.
    pub(crate) pair: Option<[usize; 2]>,
    pub(crate) counts: Counts,
    /// The queues, by place of the port.
    pub(crate) queues: Vec<Option<Queue>>,
    /// True if there is a queue.
    pub(crate) has_queues: bool,
}

/// The way out for packets that arrived at one port.
pub(crate) struct Leaving<'a, I> {
    pub(crate) exit: &'a mut Exit<I>,
    /// Place of the port.
    pub(crate) from: usize,
    pub(crate) architecture: Architecture,
    /// True if packets have waited before egress, or may do so.
    pub(crate) waits_before: bool,
    /// Nanoseconds since the start.
    pub(crate) now_ns: u64,
    /// Records what becomes of the packet.
    pub(crate) recorder: Option<&'a mut Recorder>,
}

impl<I: PacketIo> Exit<I> {
    /// Sends a packet by the port in this place, or drops it if the port is down or has no room. Returns the
    /// reason if it was dropped.
    #[inline]
    pub(crate) fn send(&mut self, to: usize, bytes: &[u8]) -> Option<DropReason> {
        if self.io.send(to, bytes) {
            let counts = &mut self.counts.ports[to];
            counts.sent += 1;
            counts.sent_bytes += bytes.len() as u64;
            None
        } else {
            Some(self.lose(to))
        }
    }

    /// Counts a packet that its port did not take.
    #[cold]
    fn lose(&mut self, to: usize) -> DropReason {
        let reason = if self.io.is_up(to) { DropReason::NoRoom } else { DropReason::PortDown };
        self.counts.dropped[reason as usize] += 1;
        reason
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
        if self.exit.has_queues && !self.waits_before && self.exit.queues[to].is_some() {
            let from = Arriving { entry: None, priority, bytes, block: &[], meta: &Meta::default() };
            self.queue(to, &from);
        } else {
            let lost = self.exit.send(to, bytes);
            if let Some(recorder) = &mut self.recorder {
                let port = self.exit.numbers[to];
                recorder.step(|| match lost {
                    None => Step::Sent { port, bytes: bytes.to_vec() },
                    Some(reason) => Step::Dropped(reason),
                });
            }
        }
    }

    /// Lets a packet wait for the port in this place, which has a queue.
    #[inline(never)]
    fn queue(&mut self, to: usize, packet: &Arriving<'_>) {
        let Some(queue) = &mut self.exit.queues[to] else { return };
        match queue.push(packet, self.now_ns) {
            Pushed::Waits => self.exit.counts.waiting += 1,
            // One that waits took the place of another.
            Pushed::Displaces => self.exit.counts.dropped[DropReason::Queue as usize] += 1,
            Pushed::Lost => return self.drop_packet(DropReason::Queue),
        }
        let port = self.exit.numbers[to];
        self.step(Step::Queued { port });
    }

    fn drop_packet(&mut self, reason: DropReason) {
        self.exit.counts.dropped[reason as usize] += 1;
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
        let index = self.exit.indexes.get(usize::from(ready.entry.port)).copied().flatten();
        let Some(to) = index.filter(|to| self.exit.queues[*to].is_some()) else { return false };
        let Ready { entry, bytes, block, meta } = ready;
        self.queue(to, &Arriving { entry: Some(entry), priority: entry.priority, bytes, block, meta });
        true
    }

    fn lose(&mut self, reason: Loss) {
        self.drop_packet(match reason {
            Loss::NoGroup => DropReason::NoGroup,
            Loss::NoSession => DropReason::NoSession,
            Loss::Budget => DropReason::Runs,
            Loss::TooLong => DropReason::TooLong,
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
