//! One channel, served: batches in, verdicts out.

use super::vm::Judging;
use super::{Tenant, Vms};
use p4shield_abi::channel::{BATCH, Geometry, Request};
use p4shield_abi::{Direction, Verdict};
use p4shield_bpf::Packet;
use p4shield_channel::{Responder, Response, ResponseRefused};

/// What happens to packets of a direction that has no program.
pub type NoProgram = Verdict;

/// A channel with everything that serving it needs, allocated once.
pub struct Served {
    pub(super) channel: u32,
    pub(super) judge: Responder,
    pub(super) answered: u64,
    /// Looks in a row that found nothing, as far as [`super::ends`] counts them.
    pub(super) quiet: u8,
    header_bytes: u32,
    /// What [`Responder::sent_count`] said when answers were published last, until it says something else.
    unsent: Option<u32>,
    /// What was fetched, in private memory where programs work on it: requests and headers, the first `fetched` of each.
    requests: [Request; BATCH],
    packets: Box<[Packet]>,
    fetched: usize,
}

impl Served {
    /// Serves `judge` under the host's number `channel`.
    #[must_use]
    pub fn new(channel: u32, judge: Responder, geometry: &Geometry) -> Self {
        let packet = || Packet::new(geometry.headroom as usize, geometry.header_bytes as usize);
        Self {
            channel,
            judge,
            answered: 0,
            quiet: 0,
            header_bytes: geometry.header_bytes,
            unsent: None,
            requests: [Request::default(); BATCH],
            packets: std::iter::repeat_with(packet).take(BATCH).collect(),
            fetched: 0,
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
        let (requests, packets, fetched) = (&mut self.requests, &mut self.packets, &mut self.fetched);
        *fetched = 0;
        let result = self.judge.fetch_with(BATCH, |request, frame| {
            requests[*fetched] = *request;
            packets[*fetched].fill(request.packet_len, |room| frame.copy_to(room));
            *fetched += 1;
        });
        matches!(result, Ok(1..))
    }

    /// Packets that were fetched.
    pub(super) fn fetched(&self) -> u64 {
        self.fetched as u64
    }

    /// Whether nothing was fetched.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.fetched == 0
    }

    /// Judges what was fetched. True if the mediator sleeps and has to be woken.
    #[inline]
    pub(super) fn judge(&mut self, tenant: &mut Tenant) -> bool {
        let fetched = self.requests.iter().zip(&mut self.packets).take(self.fetched);
        for (request, packet) in fetched {
            let judge = &mut self.judge;
            tenant.judge(packet, request, self.header_bytes, |reply| judge.respond(reply));
        }
        self.answered += self.fetched as u64;
        self.unsent = Some(self.judge.sent_count());
        self.judge.publish()
    }

    /// Whether packets have been sent since answers were published, if it was not said yet.
    pub(super) fn is_sent(&mut self) -> bool {
        self.unsent.take_if(|said| *said != self.judge.sent_count()).is_some()
    }
}

/// Judges one packet; see [`Tenant::judge`].
#[inline]
pub(super) fn judge(
    packet: &mut Packet,
    (vms, no_program): (&mut Vms, NoProgram),
    header_bytes: u32,
    request: &Request,
    mut answer: impl FnMut(Response<'_>) -> Result<(), ResponseRefused>,
) {
    let vm = vms.get_mut(usize::from(request.vm)).and_then(Option::as_deref_mut);
    let (Some(vm), Some(direction)) = (vm, Direction::from_u8(request.direction)) else {
        // A packet of nobody: there is no program that could let it pass.
        drop_it(&mut answer);
        return;
    };
    let Judging { state, info, mut audit } = vm.judging(direction);
    state.came(request.packet_len);
    if let Some(audit) = &mut audit {
        audit.came(direction, packet.bytes(), request.packet_len);
    }
    let Some(loaded) = state.program() else {
        match no_program {
            Verdict::Pass if answer(Response::Pass).is_ok() => {
                state.passed(request.packet_len);
                if let Some(audit) = audit {
                    audit.passed();
                }
            }
            _ => {
                drop_it(&mut answer);
                state.dropped(request.packet_len);
                state.failed();
            }
        }
        return;
    };
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
        if answer(Response::Pass).is_ok() {
            state.passed(request.packet_len);
            if let Some(audit) = audit {
                audit.passed();
            }
        }
    } else if answer(Response::Rewritten { header: packet.bytes(), packet_len: packet.total() }).is_ok() {
        state.passed(packet.total());
        if let Some(audit) = audit {
            // An auditor sees no more of it than header bytes were agreed on, however far it has grown.
            let seen = &packet.bytes()[..packet.len().min(header_bytes as usize)];
            audit.passed_as(direction, seen, packet.total());
        }
    } else {
        // What the program made of the packet does not fit.
        drop_it(&mut answer);
        state.dropped(request.packet_len);
        state.failed();
    }
}

#[inline]
fn drop_it(answer: &mut impl FnMut(Response<'_>) -> Result<(), ResponseRefused>) {
    // Cannot be refused: the packet was asked about and not answered yet.
    let refused = answer(Response::Drop);
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
