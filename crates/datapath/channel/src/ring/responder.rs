//! The P4 VM's end of a channel: fetches requests and answers them.
//!
//! [`crate::Requester`] is the other end. The runtime's worker runs the programs between fetch and response.

use super::layout::{self, Layout};
use super::wakeup::Wakeup;
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

/// How many packets in advance a header is prefetched from the mediator's core.
const AHEAD: u32 = 6;

/// The P4 VM's end of a channel.
///
/// Requests are fetched in batches into private memory and answered in their order; the answers are
/// published together. At most [`BATCH`] requests are open at a time.
#[derive(Debug)]
pub struct Responder<M = SharedMemory> {
    memory: M,
    layout: Layout,
    /// Requests fetched and not answered yet, by index modulo [`BATCH`].
    open: [OpenRequest; BATCH],
    /// Requests published: the mediator's index as last read and checked. This and the next three
    /// indexes are free-running.
    requested: u32,
    /// Requests fetched.
    fetched: u32,
    /// Answers written.
    answered: u32,
    /// Answers published to the mediator.
    published: u32,
    wakeup: Wakeup,
    /// Value of the futex when sleep at it was announced.
    futex: u32,
    fault: Option<ChannelFault>,
    /// Packet memory from which headers are read; none: they are in the frames.
    packets: Option<PacketMemory>,
}

/// Private copy of the fields of a fetched request that its answer needs.
#[derive(Clone, Copy, Debug, Default)]
struct OpenRequest {
    /// Low half of the request's id, which the answer repeats.
    id: u32,
    packet_len: u32,
    copy_len: u16,
}

/// Response to a request: the verdict, and the new header if the program changed the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response<'a> {
    /// The packet is dropped.
    Drop,
    /// The packet passes unchanged.
    Pass,
    /// The packet passes with a new header.
    Rewritten {
        /// Replaces the bytes that were in the request; up to headroom plus header bytes.
        header: &'a [u8],
        /// Length of the packet afterwards: from `header.len()` to that plus the bytes that were not
        /// in the request.
        packet_len: u32,
    },
}

/// The header of one request in shared memory, which can be copied out once.
#[derive(Debug)]
pub struct HeaderSource<'a, M = SharedMemory> {
    memory: &'a M,
    /// The packet memory that contains it; none: `memory` does.
    packets: Option<&'a PacketMemory>,
    at: usize,
    len: usize,
}

impl<M: Memory> HeaderSource<'_, M> {
    /// Returns its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies it to the front of `to`, as far as it fits, and returns the length of the copy.
    /// Consumes the source, because a second copy might differ from the first.
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
    /// Sets up the P4 VM's end over a new region; each region serves one pair of ends, once.
    ///
    /// # Errors
    /// If the geometry is out of range, or the region is too small or has another geometry.
    pub fn new(memory: M, geometry: Geometry) -> Result<Self, ChannelError> {
        let layout = Layout::of(&memory, geometry)?;
        Ok(Self {
            memory,
            layout,
            open: [OpenRequest::default(); BATCH],
            requested: 0,
            fetched: 0,
            answered: 0,
            published: 0,
            wakeup: Wakeup::of_p4vm(),
            futex: 0,
            fault: None,
            packets: None,
        })
    }

    /// Reads headers from the switch's packet memory, where the mediator locates them
    /// ([`super::Requester::with_packet_memory`]). Rewritten headers still go into the frames.
    #[must_use]
    pub fn with_packet_memory(mut self, packets: PacketMemory) -> Self {
        self.packets = Some(packets);
        self
    }

    /// Starts at an index, as if that many packets had passed.
    #[cfg(test)]
    pub(super) fn started_at(mut self, index: u32) -> Self {
        (self.requested, self.fetched, self.answered, self.published) = (index, index, index, index);
        self
    }

    /// Returns how many fetched requests are not answered.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.fetched.wrapping_sub(self.answered) as usize
    }

    /// Returns how the peer broke the protocol, if it did.
    #[must_use]
    pub fn fault(&self) -> Option<ChannelFault> {
        self.fault
    }

    /// Returns the shared region.
    #[must_use]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Fetches up to a whole batch into `batch`, whose previous requests are overwritten.
    ///
    /// # Errors
    /// If the mediator broke the protocol, now or earlier.
    #[inline]
    pub fn fetch(&mut self, batch: &mut RequestBatch) -> Result<usize, ChannelFault> {
        batch.len = 0;
        self.fetch_with(BATCH, |request, header| batch.add(request, header))
    }

    /// Fetches up to `max` requests and passes each to `each`, together with its header. At most
    /// [`BATCH`] are open.
    ///
    /// `copy_len` of the request is the header's length: the mediator's value, limited to the
    /// channel's header bytes and to the packet's length. All other fields are as the mediator wrote
    /// them.
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
            self.open[self.fetched as usize % BATCH] = OpenRequest {
                id: request.id as u32,
                packet_len: request.packet_len,
                copy_len: request.copy_len,
            };
            self.fetched = self.fetched.wrapping_add(1);
            each(&request, HeaderSource { memory: &self.memory, packets: self.packets.as_ref(), at, len });
        }
        Ok(count as usize)
    }

    /// Returns the offset of a request's header, of which `len` bytes are read.
    #[inline]
    fn header_at(&mut self, slot: usize, len: u16) -> Result<usize, ChannelFault> {
        let frame = self.layout.frame(slot);
        let Some(packets) = &self.packets else { return Ok(frame + self.layout.headroom) };
        let offset = self.memory.load_u64(frame, Relaxed);
        packets.locate(offset, len.into()).ok_or_else(|| {
            let fault = ChannelFault::Outside { offset, len };
            self.fault = Some(fault);
            fault
        })
    }

    /// Prefetches a request and the first cache lines of its header.
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

    /// Returns how many requests can be fetched, at most `max`. Reads the shared index only if fewer
    /// are known.
    #[inline]
    fn ready(&mut self, max: u32) -> Result<u32, ChannelFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.requested.wrapping_sub(self.fetched) < max {
            let index = self.memory.load_u32(REQUEST_HEAD, Acquire);
            // Answers that are written but not published are still owed: the mediator does not own
            // their slots yet.
            let open = self.layout.slots - self.requested.wrapping_sub(self.published);
            if index.wrapping_sub(self.requested) > open {
                let fault = ChannelFault::Index { index, base: self.requested, open };
                self.fault = Some(fault);
                return Err(fault);
            }
            self.requested = index;
        }
        Ok(self.requested.wrapping_sub(self.fetched).min(max))
    }

    /// Answers the oldest open request.
    ///
    /// # Errors
    /// If there is none, or a rewrite does not fit the frame or the packet. The request then stays open.
    #[inline]
    pub fn respond(&mut self, response: Response<'_>) -> Result<(), ResponseRefused> {
        if self.fetched == self.answered {
            return Err(ResponseRefused::NoOpenRequest);
        }
        let open = self.open[self.answered as usize % BATCH];
        let slot = self.layout.slot(self.answered);
        let (verdict, flags) = match response {
            Response::Drop => (Verdict::Drop, 0),
            Response::Pass => (Verdict::Pass, 0),
            Response::Rewritten { header, packet_len } => {
                self.rewrite(slot, &open, header, packet_len)?;
                (Verdict::Pass, REWRITTEN)
            }
        };
        let answer = layout::answer_word(open.id, verdict, flags);
        layout::write_answer(&self.memory, self.layout.answer(slot), answer);
        self.answered = self.answered.wrapping_add(1);
        Ok(())
    }

    /// Writes a new header into the frame, in place of the old one if it fits there, else further to
    /// the front, and records where it starts.
    fn rewrite(
        &self,
        slot: usize,
        open: &OpenRequest,
        header: &[u8],
        packet_len: u32,
    ) -> Result<(), ResponseRefused> {
        let (len, frame) = (header.len(), self.layout.frame_bytes());
        // `frame_bytes` is below 2^16, so is what fits into it.
        let copy_len = len.min(frame) as u16;
        let (min, max) =
            (u32::from(copy_len), layout::longest_rewrite(open.packet_len, open.copy_len, copy_len));
        if len > frame || !(min..=max).contains(&packet_len) {
            return Err(ResponseRefused::Rewrite { len, packet_len, frame: frame as u32, min, max });
        }
        let start = self.layout.headroom.min(frame - len);
        self.memory.copy_in(self.layout.frame(slot) + start, header);
        let rewritten = RewrittenHeader { packet_len, start: start as u16, copy_len };
        layout::write_rewrite(&self.memory, self.layout.rewrite(slot), &rewritten);
        Ok(())
    }

    /// Publishes the written answers. Returns true if the mediator sleeps; the caller then rings its
    /// doorbell.
    #[inline]
    #[must_use = "a mediator that sleeps has to be woken"]
    pub fn publish(&mut self) -> bool {
        if self.published == self.answered || self.fault.is_some() {
            return false;
        }
        self.published = self.answered;
        self.memory.store_u32(VERDICT_HEAD, self.published, Release);
        M::fence(SeqCst);
        self.wakeup.is_due(&self.memory, self.published)
    }
}

impl<M: Memory> Responder<M> {
    /// Announces sleep at the futex, like [`Sleeper::announce`]: until [`P4VM_FUTEX`] differs from
    /// [`Self::futex_value`].
    pub fn announce_at_futex(&mut self) -> bool {
        // Read before the mediator can see the announcement, so that every later increment is a change.
        self.futex = self.memory.load_u32(P4VM_FUTEX, Acquire);
        self.announce_with(ASLEEP_AT_FUTEX)
    }

    /// Returns a counter that changes when packets have been sent ([`super::Requester::notify_sent`]).
    #[must_use]
    pub fn sent_count(&self) -> u32 {
        self.memory.load_u32(SENT, Relaxed)
    }

    /// Returns the value of the futex when sleep at it was announced.
    #[must_use]
    pub fn futex_value(&self) -> u32 {
        self.futex
    }

    fn announce_with(&mut self, flag: u32) -> bool {
        if self.fault.is_some() {
            return true;
        }
        if self.requested != self.fetched {
            return false;
        }
        self.wakeup.announce(&self.memory, flag, self.fetched, false)
    }
}

impl Responder {
    /// Returns the futex to sleep at after [`Self::announce_at_futex`].
    #[must_use]
    pub fn futex(&self) -> FutexWait<'_> {
        self.memory.futex(P4VM_FUTEX, self.futex)
    }
}

impl<M: Memory> Sleeper for Responder<M> {
    fn announce(&mut self) -> bool {
        self.announce_with(ASLEEP_AT_DOORBELL)
    }

    fn retract(&mut self) {
        self.wakeup.retract(&self.memory);
    }
}

/// Private, reusable memory for one batch of requests and their header copies.
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
    /// Headroom, the header copy, and room up to the channel's header bytes. Headroom and the room
    /// behind contain bytes of earlier packets of this tenant.
    pub frame: &'a mut [u8],
    /// Offset of the header copy in `frame`.
    pub start: usize,
    /// Length of the header copy.
    pub len: usize,
}

impl RequestBatch {
    /// A batch for channels of a geometry.
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

    /// Returns the number of requests in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Iterates over the requests in the order in which they have to be answered.
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

    fn add<M: Memory>(&mut self, request: &Request, header: HeaderSource<'_, M>) {
        let start = self.len * self.frame;
        header.copy_to(&mut self.frames[start + self.headroom..start + self.frame]);
        self.requests[self.len] = *request;
        self.len += 1;
    }
}
