//! The P4 VM's end: fetches requests and answers them.

use super::bell::Bell;
use super::layout::{self, Layout};
use super::requester::longest;
use crate::error::{ChannelError, ChannelFault, ResponseRefused};
use crate::futex::FutexWait;
use crate::memory::Memory;
use crate::shm::{PacketMemory, SharedMemory};
use crate::wait::Sleeper;
use p4shield_abi::Verdict;
use p4shield_abi::channel::{
    ASLEEP_AT_DOORBELL, ASLEEP_AT_FUTEX, BATCH, Geometry, P4VM_FUTEX, REQUEST_HEAD, REWRITTEN, Request,
    RewrittenHeader, SENT, VERDICT_HEAD,
};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

/// How many packets before it is copied a header is fetched from the mediator's core.
const AHEAD: u32 = 6;

/// The P4 VM's end of a channel.
///
/// Requests are fetched in batches, judged in private memory, answered in their order, and the answers published
/// together. Between a fetch and its answers at most [`BATCH`] requests are open.
#[derive(Debug)]
pub struct Responder<M = SharedMemory> {
    memory: M,
    layout: Layout,
    /// Requests fetched and not yet answered, by index modulo [`BATCH`].
    open: [Open; BATCH],
    /// Requests known to be there: the mediator's index as last read and checked. All four are free-running.
    asked: u32,
    /// Requests fetched.
    fetched: u32,
    /// Answers written.
    answered: u32,
    /// Answers the mediator was told of.
    published: u32,
    bell: Bell,
    /// What stood in the word when sleep at it was announced.
    seen: u32,
    fault: Option<ChannelFault>,
    /// What headers are read from; none: from the frames, where they are copied to.
    packets: Option<PacketMemory>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Open {
    /// What the answer repeats of the request's identity.
    id: u32,
    packet_len: u32,
    copy_len: u16,
}

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response<'a> {
    /// The packet goes no further.
    Drop,
    /// The packet goes on as it is.
    Pass,
    /// The packet goes on, changed.
    Rewritten {
        /// Replaces the bytes that were handed over; up to head room plus header bytes.
        header: &'a [u8],
        /// Bytes of the whole packet afterwards: from `header.len()` to that and all that was not handed over.
        packet_len: u32,
    },
}

/// Where the header of one request can be copied from, once.
#[derive(Debug)]
pub struct HeaderSource<'a, M = SharedMemory> {
    memory: &'a M,
    /// Where it is if not in `memory`.
    packets: Option<&'a PacketMemory>,
    at: usize,
    len: usize,
}

impl<M: Memory> HeaderSource<'_, M> {
    /// Bytes that were handed over.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none were.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies them to the front of `to` and returns how many: all, or as many as fit. Consumes the frame, since a
    /// second copy might differ from the first.
    #[inline]
    pub fn copy_to(self, to: &mut [u8]) -> usize {
        let len = self.len.min(to.len());
        match self.packets {
            None => self.memory.copy_out(self.at, &mut to[..len]),
            Some(packets) => packets.copy_out(self.at, &mut to[..len]),
        }
        len
    }
}

impl<M: Memory> Responder<M> {
    /// Sets up the P4 VM's end over a fresh region; each region serves one pair of ends, once.
    ///
    /// # Errors
    /// If the geometry is out of range, or the region is too small or says it has another.
    pub fn new(memory: M, geometry: Geometry) -> Result<Self, ChannelError> {
        let layout = Layout::of(&memory, geometry)?;
        Ok(Self {
            memory,
            layout,
            open: [Open::default(); BATCH],
            asked: 0,
            fetched: 0,
            answered: 0,
            published: 0,
            bell: Bell::of_p4vm(),
            seen: 0,
            fault: None,
            packets: None,
        })
    }

    /// The same, reading headers from the switch's packet memory, which the mediator points into
    /// ([`super::Requester::with_packet_memory`]). Rewrites are answered as ever.
    #[must_use]
    pub fn with_packet_memory(mut self, packets: PacketMemory) -> Self {
        self.packets = Some(packets);
        self
    }

    /// As if so many packets had gone before.
    #[cfg(test)]
    pub(super) fn started_at(mut self, index: u32) -> Self {
        (self.asked, self.fetched, self.answered, self.published) = (index, index, index, index);
        self
    }

    /// Requests fetched and not yet answered.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.fetched.wrapping_sub(self.answered) as usize
    }

    /// How the peer broke the protocol, if it did.
    #[must_use]
    pub fn fault(&self) -> Option<ChannelFault> {
        self.fault
    }

    /// The region.
    #[must_use]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Fetches up to a whole batch into `batch`, in place of what was in it.
    ///
    /// # Errors
    /// If the mediator broke the protocol, now or earlier.
    #[inline]
    pub fn fetch(&mut self, batch: &mut RequestBatch) -> Result<usize, ChannelFault> {
        batch.len = 0;
        self.fetch_with(BATCH, |request, frame| batch.add(request, frame))
    }

    /// Fetches up to `max` requests and gives each to `each`, together with its header copy. As many are open
    /// at most as a batch has.
    ///
    /// `copy_len` of the request is the frame's length: what the mediator wrote, cut to the header bytes agreed on
    /// and to the packet's length. All other fields are as the mediator wrote them.
    ///
    /// # Errors
    /// If the mediator broke the protocol, now or earlier.
    #[inline]
    pub fn fetch_with(
        &mut self,
        max: usize,
        mut each: impl FnMut(&Request, HeaderSource<'_, M>),
    ) -> Result<usize, ChannelFault> {
        let room = max.min(BATCH - self.unanswered()) as u32;
        let count = self.ready(room)?;
        for n in 0..count.min(AHEAD) {
            self.prefetch_request(self.fetched.wrapping_add(n));
        }
        for n in 0..count {
            if n + AHEAD < count {
                self.prefetch_request(self.fetched.wrapping_add(AHEAD));
            }
            let slot = self.layout.slot(self.fetched);
            let mut request = layout::read_request(&self.memory, self.layout.request(slot));
            let len =
                (request.copy_len as usize).min(self.layout.header_bytes).min(request.packet_len as usize);
            request.copy_len = len as u16;
            let at = self.header_at(slot, request.copy_len)?;
            self.open[self.fetched as usize % BATCH] =
                Open { id: request.id as u32, packet_len: request.packet_len, copy_len: request.copy_len };
            self.fetched = self.fetched.wrapping_add(1);
            each(&request, HeaderSource { memory: &self.memory, packets: self.packets.as_ref(), at, len });
        }
        Ok(count as usize)
    }

    /// Where a request's header is, of which `len` bytes are to be read.
    #[inline]
    fn header_at(&mut self, slot: usize, len: u16) -> Result<usize, ChannelFault> {
        let frame = self.layout.frame(slot);
        let Some(packets) = &self.packets else { return Ok(frame + self.layout.headroom) };
        let offset = self.memory.load_u64(frame, Relaxed);
        packets.place(offset, len.into()).ok_or_else(|| {
            let fault = ChannelFault::Outside { offset, len };
            self.fault = Some(fault);
            fault
        })
    }

    /// Has a request and the first lines of its header copy brought here.
    #[inline]
    fn prefetch_request(&self, index: u32) {
        let slot = self.layout.slot(index);
        self.memory.prefetch(self.layout.request(slot));
        if self.packets.is_some() {
            return self.memory.prefetch(self.layout.frame(slot));
        }
        let header = self.layout.frame(slot) + self.layout.headroom;
        self.memory.prefetch(header);
        if self.layout.header_bytes > 64 {
            self.memory.prefetch(header + 64);
        }
    }

    /// Requests that can be fetched, `max` or fewer. The shared index is read only if not as many are known of.
    #[inline]
    fn ready(&mut self, max: u32) -> Result<u32, ChannelFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.asked.wrapping_sub(self.fetched) < max {
            let index = self.memory.load_u32(REQUEST_HEAD, Acquire);
            // Answers that are written and not published are still owed: their slots are not the mediator's.
            let open = self.layout.slots - self.asked.wrapping_sub(self.published);
            if index.wrapping_sub(self.asked) > open {
                let fault = ChannelFault::Index { index, base: self.asked, open };
                self.fault = Some(fault);
                return Err(fault);
            }
            self.asked = index;
        }
        Ok(self.asked.wrapping_sub(self.fetched).min(max))
    }

    /// Answers the oldest request that was fetched and not answered.
    ///
    /// # Errors
    /// If there is none, or a rewrite fits neither the frame nor the packet (then the request still waits for its
    /// answer).
    #[inline]
    pub fn respond(&mut self, reply: Response<'_>) -> Result<(), ResponseRefused> {
        if self.fetched == self.answered {
            return Err(ResponseRefused::NoOpenRequest);
        }
        let open = self.open[self.answered as usize % BATCH];
        let slot = self.layout.slot(self.answered);
        let (verdict, flags) = match reply {
            Response::Drop => (Verdict::Drop, 0),
            Response::Pass => (Verdict::Pass, 0),
            Response::Rewritten { header, packet_len } => {
                self.rewrite(slot, &open, header, packet_len)?;
                (Verdict::Pass, REWRITTEN)
            }
        };
        let answer = layout::word_of(open.id, verdict, flags);
        layout::write_answer(&self.memory, self.layout.answer(slot), answer);
        self.answered = self.answered.wrapping_add(1);
        Ok(())
    }

    /// Writes a new header into the frame, at the old one's place if it fits there, else further to the front, and says
    /// where it is.
    fn rewrite(
        &self,
        slot: usize,
        open: &Open,
        header: &[u8],
        packet_len: u32,
    ) -> Result<(), ResponseRefused> {
        let (len, frame) = (header.len(), self.layout.frame_bytes());
        // `frame_bytes` is below 2^16, so is what fits into it.
        let copy_len = len.min(frame) as u16;
        let (min, max) = (u32::from(copy_len), longest(open.packet_len, open.copy_len, copy_len));
        if len > frame || !(min..=max).contains(&packet_len) {
            return Err(ResponseRefused::Rewrite { len, packet_len, frame: frame as u32, min, max });
        }
        let start = self.layout.headroom.min(frame - len);
        self.memory.copy_in(self.layout.frame(slot) + start, header);
        let rewritten = RewrittenHeader { packet_len, start: start as u16, copy_len };
        layout::write_rewrite(&self.memory, self.layout.rewrite(slot), &rewritten);
        Ok(())
    }

    /// Hands over the answers that were written. True if the mediator sleeps: its doorbell is to be rung.
    #[inline]
    #[must_use = "a mediator that sleeps has to be woken"]
    pub fn publish(&mut self) -> bool {
        if self.published == self.answered || self.fault.is_some() {
            return false;
        }
        self.published = self.answered;
        self.memory.store_u32(VERDICT_HEAD, self.published, Release);
        M::fence(SeqCst);
        self.bell.due(&self.memory, self.published)
    }
}

impl<M: Memory> Responder<M> {
    /// As [`Sleeper::announce`], for sleep until [`P4VM_FUTEX`] holds something else than [`Self::futex_value`].
    pub fn announce_at_futex(&mut self) -> bool {
        // Looked at before the mediator can find that we sleep: what it counts up from then on is seen as a change.
        self.seen = self.memory.load_u32(P4VM_FUTEX, Acquire);
        self.announce_at(ASLEEP_AT_FUTEX)
    }

    /// Changes whenever packets have been sent ([`super::Requester::notify_sent`]).
    #[must_use]
    pub fn sent_count(&self) -> u32 {
        self.memory.load_u32(SENT, Relaxed)
    }

    /// What stood in the word when sleep at it was announced.
    #[must_use]
    pub fn futex_value(&self) -> u32 {
        self.seen
    }

    fn announce_at(&mut self, place: u32) -> bool {
        if self.fault.is_some() {
            return true;
        }
        if self.asked != self.fetched {
            return false;
        }
        self.bell.announce(&self.memory, place, self.fetched, false)
    }
}

impl Responder {
    /// Where to sleep after [`Self::announce_at_futex`].
    #[must_use]
    pub fn futex(&self) -> FutexWait<'_> {
        self.memory.word(P4VM_FUTEX, self.seen)
    }
}

impl<M: Memory> Sleeper for Responder<M> {
    fn announce(&mut self) -> bool {
        self.announce_at(ASLEEP_AT_DOORBELL)
    }

    fn retract(&mut self) {
        self.bell.retract(&self.memory);
    }
}

/// Private memory for one batch of requests and their header copies, used again and again.
#[derive(Debug)]
pub struct RequestBatch {
    requests: [Request; BATCH],
    frames: Box<[u8]>,
    headroom: usize,
    frame: usize,
    len: usize,
}

/// One request of a [`RequestBatch`].
#[derive(Debug)]
pub struct BatchEntry<'a> {
    /// The request.
    pub request: &'a Request,
    /// Head room, the header copy, and room up to the header bytes agreed on. Head room and the room behind hold
    /// leftovers of earlier packets of this tenant.
    pub frame: &'a mut [u8],
    /// Where in `frame` the header copy starts.
    pub start: usize,
    /// Bytes of the header copy.
    pub len: usize,
}

impl RequestBatch {
    /// Room for a batch of a channel of this geometry.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Self {
        let headroom = geometry.headroom as usize;
        let frame = headroom + geometry.header_bytes as usize;
        Self {
            requests: [Request::default(); BATCH],
            frames: vec![0; BATCH * frame].into_boxed_slice(),
            headroom,
            frame,
            len: 0,
        }
    }

    /// Requests in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The requests, in the order in which they have to be answered.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = BatchEntry<'_>> {
        let start = self.headroom;
        let frames = self.frames.chunks_exact_mut(self.frame);
        self.requests[..self.len].iter().zip(frames).map(move |(request, frame)| BatchEntry {
            request,
            start,
            len: usize::from(request.copy_len).min(frame.len() - start),
            frame,
        })
    }

    fn add<M: Memory>(&mut self, request: &Request, frame: HeaderSource<'_, M>) {
        let place = self.len * self.frame;
        frame.copy_to(&mut self.frames[place + self.headroom..place + self.frame]);
        self.requests[self.len] = *request;
        self.len += 1;
    }
}
