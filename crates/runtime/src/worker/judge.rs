//! One channel, served: batches in, verdicts out.

use super::{Tenant, Vms};
use p4shield_abi::channel::{Geometry, Request};
use p4shield_abi::{Direction, Verdict};
use p4shield_bpf::Packet;
use p4shield_channel::{Batch, Judge, Reply, ReplyRefused};

/// What happens to packets of a direction that has no program.
pub type NoProgram = Verdict;

/// A channel with everything that serving it needs, allocated once.
pub struct Served {
    pub(super) channel: u32,
    pub(super) judge: Judge,
    pub(super) answered: u64,
    /// Looks in a row that found nothing, as far as [`super::ends`] counts them.
    pub(super) quiet: u8,
    header_bytes: u32,
    batch: Batch,
    packet: Packet,
}

impl Served {
    /// Serves `judge` under the host's number `channel`.
    #[must_use]
    pub fn new(channel: u32, judge: Judge, geometry: &Geometry) -> Self {
        Self {
            channel,
            judge,
            answered: 0,
            quiet: 0,
            header_bytes: geometry.header_bytes,
            batch: Batch::new(geometry),
            packet: Packet::new(geometry.headroom as usize, geometry.header_bytes as usize),
        }
    }

    pub(super) const fn header_bytes(&self) -> u32 {
        self.header_bytes
    }

    /// Copies up to one batch of packets into private memory, to be judged by [`Self::judge`]. False if there is none,
    /// also when the mediator broke the protocol: the fault stays in the channel for status to show, and a faulted
    /// channel is never touched again.
    #[inline]
    pub(super) fn fetch(&mut self) -> bool {
        matches!(self.judge.fetch(&mut self.batch), Ok(1..))
    }

    /// Packets that were fetched.
    pub(super) fn fetched(&self) -> u64 {
        self.batch.len() as u64
    }

    /// Whether nothing was fetched.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Judges what was fetched. True if the mediator sleeps and has to be woken.
    #[inline]
    pub(super) fn judge(&mut self, tenant: &mut Tenant) -> bool {
        for entry in self.batch.iter_mut() {
            let header = &entry.frame[entry.start..entry.start + entry.len];
            let judge = &mut self.judge;
            tenant.judge(&mut self.packet, (entry.request, header), self.header_bytes, |r| judge.answer(r));
            self.answered += 1;
        }
        self.judge.publish()
    }
}

/// Judges one packet; see [`Tenant::judge`].
#[inline]
pub(super) fn judge(
    packet: &mut Packet,
    (vms, no_program): (&mut Vms, NoProgram),
    header_bytes: u32,
    (request, header): (&Request, &[u8]),
    mut answer: impl FnMut(Reply<'_>) -> Result<(), ReplyRefused>,
) {
    let vm = vms.get_mut(usize::from(request.vm)).and_then(Option::as_deref_mut);
    let (Some(vm), Some(direction)) = (vm, Direction::from_u8(request.direction)) else {
        // A packet of nobody: there is no program that could let it pass.
        drop_it(&mut answer);
        return;
    };
    let digest = vm.digest(header, request.packet_len);
    let (state, info) = vm.judging(direction);
    state.came(request.packet_len, digest);
    let Some(loaded) = state.program() else {
        match no_program {
            Verdict::Pass if answer(Reply::Pass).is_ok() => state.passed(request.packet_len, digest),
            _ => {
                drop_it(&mut answer);
                state.dropped(request.packet_len);
                state.failed();
            }
        }
        return;
    };
    packet.reset(header, request.packet_len);
    let outcome = loaded.run(packet, &meta(request), info);
    if outcome.stopped.is_some() {
        state.failed();
    } else if outcome.undecided {
        state.undecided();
    }
    if outcome.verdict != Verdict::Pass {
        drop_it(&mut answer);
        state.dropped(request.packet_len);
    } else if !outcome.rewritten {
        if answer(Reply::Pass).is_ok() {
            state.passed(request.packet_len, digest);
        }
    } else {
        let reply = Reply::Rewritten { header: packet.bytes(), packet_len: packet.total() };
        if answer(reply).is_ok() {
            // An auditor sees no more of it than header bytes were agreed on, however far it has grown.
            let seen = &packet.bytes()[..packet.len().min(header_bytes as usize)];
            let left = vm.digest(seen, packet.total());
            vm.judging(direction).0.passed(packet.total(), left);
        } else {
            // What the program made of the packet does not fit.
            drop_it(&mut answer);
            state.dropped(request.packet_len);
            state.failed();
        }
    }
}

#[inline]
fn drop_it(answer: &mut impl FnMut(Reply<'_>) -> Result<(), ReplyRefused>) {
    // Cannot be refused: the packet was asked about and not answered yet.
    let refused = answer(Reply::Drop);
    debug_assert_eq!(refused, Ok(()));
}

fn meta(request: &Request) -> p4shield_bpf::Meta {
    p4shield_bpf::Meta {
        input_port: request.input_port,
        direction: u32::from(request.direction),
        vm: u32::from(request.vm),
        timestamp_ns: request.timestamp_ns,
    }
}
