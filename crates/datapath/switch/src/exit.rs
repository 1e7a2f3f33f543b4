//! The way out: a run's packet is sent by its port, or dropped for a counted reason.

use crate::counts::{Counts, DropReason};
use crate::io::PacketIo;
use p4shield_abi::Verdict;
use p4shield_abi::schema::Architecture;
use p4shield_bpf::{Packet, RunResult};
use p4shield_traffic::{Event, Loss, Outcome};

/// `ubpf_action.REDIRECT` of `ubpf_model`.
const REDIRECT: u32 = 3;

/// The ports of a switch, and what passed them.
pub(crate) struct Exit<I> {
    pub(crate) io: I,
    /// Numbers of the ports, by index.
    pub(crate) numbers: Vec<u16>,
    /// Indexes of the ports, by number.
    pub(crate) indexes: Box<[Option<usize>]>,
    pub(crate) counts: Counts,
}

/// The way out for packets that arrived at one port.
pub(crate) struct Leaving<'a, I> {
    pub(crate) exit: &'a mut Exit<I>,
    /// Index of the port.
    pub(crate) from: usize,
    pub(crate) architecture: Architecture,
}

impl<I: PacketIo> Leaving<'_, I> {
    /// Sends or drops a packet, as the program decided.
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
        let Exit { io, numbers, indexes, counts } = &mut *self.exit;
        let to = match numbers.len() {
            _ if is_named => usize::try_from(result.output_port).ok().and_then(|p| *indexes.get(p)?),
            2 => Some(1 - self.from),
            _ => Some(self.from),
        };
        let Some(to) = to else { return self.drop_packet(DropReason::NoPort) };
        let bytes = &packet.bytes()[..packet.len().min(result.total as usize)];
        if io.send(to, bytes) {
            let counts = &mut counts.ports[to];
            counts.sent += 1;
            counts.sent_bytes += bytes.len() as u64;
        } else {
            self.drop_packet(DropReason::NoRoom);
        }
    }

    fn drop_packet(&mut self, reason: DropReason) {
        self.exit.counts.dropped[reason as usize] += 1;
    }
}

impl<I: PacketIo> Outcome for Leaving<'_, I> {
    fn end(&mut self, packet: &Packet, result: &RunResult) {
        self.send(packet, result);
    }

    fn lose(&mut self, reason: Loss) {
        self.drop_packet(match reason {
            Loss::NoGroup => DropReason::NoGroup,
            Loss::NoSession => DropReason::NoSession,
            Loss::Budget => DropReason::Runs,
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
    }
}
