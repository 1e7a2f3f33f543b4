//! Step 1 of a packet's way through the P4 VM: one channel is served, a batch at a time.
//!
//! [`ServedChannel::fetch`] copies a batch of requests and headers into private memory.
//! [`ServedChannel::judge_batch`] gives each packet to [`TenantPrograms::judge_packet`], which is step 2
//! (`tenant_programs`), and publishes the verdicts in the channel.

use super::tenant_programs::TenantPrograms;
use p4shield_abi::channel::{BATCH, Geometry, Request};
use p4shield_bpf::Packet;
use p4shield_channel::Responder;

/// A channel with everything that serving it needs, allocated once.
pub struct ServedChannel {
    pub(super) channel: u32,
    pub(super) responder: Responder,
    pub(super) answered: u64,
    /// Number of fetches in a row that found nothing; [`super::channels`] counts them.
    pub(super) quiet: u8,
    header_bytes: u32,
    /// [`Responder::sent_count`] at the last publication, until it changes.
    sent_before: Option<u32>,
    /// The fetched batch in private memory, where programs work on it: the first `fetched` of each.
    requests: [Request; BATCH],
    packets: Box<[Packet]>,
    fetched: usize,
}

impl ServedChannel {
    /// Prepares to serve the P4 VM's end of the channel that the host numbered `channel`.
    #[must_use]
    pub fn new(channel: u32, responder: Responder, geometry: &Geometry) -> Self {
        let packet = || Packet::new(geometry.headroom as usize, geometry.header_bytes as usize);
        Self {
            channel,
            responder,
            answered: 0,
            quiet: 0,
            header_bytes: geometry.header_bytes,
            sent_before: None,
            requests: [Request::default(); BATCH],
            packets: std::iter::repeat_with(packet).take(BATCH).collect(),
            fetched: 0,
        }
    }

    pub(super) const fn header_bytes(&self) -> u32 {
        self.header_bytes
    }

    /// Copies up to one batch of packets into private memory, for [`Self::judge_batch`]. Returns false if
    /// there is none, also if the mediator broke the protocol: the fault stays in the channel, where `status`
    /// shows it, and the channel is never touched again.
    #[inline]
    pub(super) fn fetch(&mut self) -> bool {
        let (requests, packets, fetched) = (&mut self.requests, &mut self.packets, &mut self.fetched);
        *fetched = 0;
        let result = self.responder.fetch_with(BATCH, |request, frame| {
            requests[*fetched] = *request;
            packets[*fetched].fill(request.packet_len, |room| frame.copy_to(room));
            *fetched += 1;
        });
        matches!(result, Ok(1..))
    }

    /// Returns the number of fetched packets.
    pub(super) fn fetched(&self) -> u64 {
        self.fetched as u64
    }

    /// Returns whether no packet was fetched.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.fetched == 0
    }

    /// Judges the fetched packets, for which the steady clock reads `now_ns`, and publishes the verdicts.
    /// Returns whether the mediator sleeps and must be woken.
    #[inline]
    pub(super) fn judge_batch(&mut self, programs: &mut TenantPrograms, now_ns: u64) -> bool {
        let fetched = self.requests.iter_mut().zip(&mut self.packets).take(self.fetched);
        for (request, packet) in fetched {
            // The mediator's time is the cloud's: meters and rate limits would follow it.
            request.timestamp_ns = now_ns;
            let responder = &mut self.responder;
            let respond = |response: p4shield_channel::Response<'_>| responder.respond(response);
            programs.judge_packet(packet, request, self.header_bytes, respond);
        }
        self.answered += self.fetched as u64;
        self.sent_before = Some(self.responder.sent_count());
        self.responder.publish()
    }

    /// Returns once whether the attachment has sent packets since the last publication.
    pub(super) fn take_sent(&mut self) -> bool {
        self.sent_before.take_if(|before| *before != self.responder.sent_count()).is_some()
    }
}
