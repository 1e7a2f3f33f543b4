//! The mediator's end of a channel: pushes requests and takes answers.
//!
//! [`crate::Responder`] is the other end. The mediator's `verdict` module applies the answers.

use super::layout::{self, Layout};
use super::wakeup::Wakeup;
use crate::doorbell::Doorbell;
use crate::error::{ChannelError, ChannelFault, PushRefused};
use crate::memory::{LINE, Memory};
use crate::shm::SharedMemory;
use crate::wait::Sleeper;
use p4shield_abi::Verdict;
use p4shield_abi::channel::{
    ASLEEP_AT_DOORBELL, ASLEEP_AT_FUTEX, Answer, BATCH, Geometry, P4VM_FUTEX, REQUEST_HEAD, REWRITTEN,
    Request, RewrittenHeader, SENT, VERDICT_HEAD, VERDICT_TAIL,
};
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Answers in a cache line: how many are taken before the next line is fetched from the P4 VM's core.
const ANSWERS_PER_LINE: u32 = 64 / size_of::<Answer>() as u32;
/// Most answers that are prefetched.
const MAX_PREFETCHED: u32 = BATCH as u32;
/// Answers between two prefetches of rewritten headers, each of which covers twice as many.
const AHEAD: u32 = 8;

/// Private copy of a request's fields. Answers are checked against it, never against the shared request.
#[derive(Clone, Copy, Debug, Default)]
struct PendingRequest {
    id: u64,
    packet_len: u32,
    copy_len: u16,
}

/// An answer to a pending request, copied out of the shared memory and checked.
#[derive(Debug)]
pub struct CheckedAnswer<'a> {
    /// Id of the request.
    pub id: u64,
    /// Verdict about the packet.
    pub verdict: Verdict,
    /// Change to the packet before it passes; none for a dropped packet.
    pub rewrite: Option<HeaderRewrite<'a>>,
}

/// A change to the front of a packet, within bounds.
#[derive(Debug)]
pub struct HeaderRewrite<'a> {
    /// Bytes at the packet's front that the header replaces: those that were in the request.
    pub replaced: usize,
    /// The new header.
    pub header: &'a [u8],
    /// Length of the packet afterwards: at least the header's, at most that and the bytes that were
    /// not in the request.
    pub packet_len: u32,
}

/// The mediator's end of a channel.
///
/// Requests are [`push`](Self::push)ed one by one and [`publish`](Self::publish)ed together; answers are
/// [`take`](Self::take)n in the order of the requests. No method waits, allocates or makes a system call.
#[derive(Debug)]
pub struct Requester<M = SharedMemory> {
    memory: M,
    layout: Layout,
    pending: Box<[PendingRequest]>,
    scratch: Box<[u8]>,
    /// The newest request, if it is the first of its cache line and not written yet.
    half: Option<[u64; 4]>,
    /// Requests written. This and the next three indexes are free-running.
    pushed: u32,
    /// Requests published to the P4 VM.
    published: u32,
    /// Answers published: the P4 VM's index as last read and checked.
    answered: u32,
    /// Answers taken.
    taken: u32,
    /// True if the last answer rewrote its header: the next one probably does, too.
    rewrites: bool,
    wakeup: Wakeup,
    /// Increments of the P4 VM's futex. Free-running.
    futex: u32,
    /// Increments of [`SENT`]. Free-running.
    sent: u32,
    fault: Option<ChannelFault>,
    /// Addresses of the packet memory from which the P4 VM reads headers; none: headers are copied.
    packets: Option<Range<usize>>,
}

impl<M: Memory> Requester<M> {
    /// Sets up the mediator's end over a new region; each region serves one pair of ends, once.
    ///
    /// # Errors
    /// If the geometry is out of range, or the region is too small or has another geometry.
    pub fn new(memory: M, geometry: Geometry) -> Result<Self, ChannelError> {
        let layout = Layout::of(&memory, geometry)?;
        Ok(Self {
            pending: vec![PendingRequest::default(); layout.slots as usize].into_boxed_slice(),
            scratch: vec![0; layout.frame_bytes()].into_boxed_slice(),
            memory,
            layout,
            half: None,
            pushed: 0,
            published: 0,
            answered: 0,
            taken: 0,
            rewrites: false,
            wakeup: Wakeup::of_mediator(),
            futex: 0,
            sent: 0,
            fault: None,
            packets: None,
        })
    }

    /// Submits the location of headers instead of copies: the P4 VM has mapped the packet memory that
    /// is at these addresses here ([`super::Responder::with_packet_memory`]). All packets have to lie
    /// in it; of a packet outside it, the P4 VM receives no byte.
    #[must_use]
    pub fn with_packet_memory(mut self, packets: Range<usize>) -> Self {
        self.packets = Some(packets);
        self
    }

    /// Starts at an index, as if that many packets had passed.
    #[cfg(test)]
    pub(super) fn started_at(mut self, index: u32) -> Self {
        (self.pushed, self.published, self.answered, self.taken) = (index, index, index, index);
        self
    }

    /// Returns how many requests can be pushed now.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.fault.is_some() { 0 } else { (self.layout.slots - self.outstanding_u32()) as usize }
    }

    /// Returns how many pushed requests have no taken answer.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding_u32() as usize
    }

    /// Returns how many pushed requests are not published.
    #[must_use]
    #[inline]
    pub fn unpublished(&self) -> usize {
        self.pushed.wrapping_sub(self.published) as usize
    }

    fn outstanding_u32(&self) -> u32 {
        self.pushed.wrapping_sub(self.taken)
    }

    /// Returns the most header bytes of a packet that are submitted.
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        self.layout.header_bytes
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

    /// Writes a request, and up to [`Self::header_bytes`] of `header`, the packet's front, or their
    /// location, into the next slot. Sets `copy_len` of the request.
    ///
    /// Inlined, so that the caller assembles the request in registers and not in memory that is read
    /// again at once.
    ///
    /// # Errors
    /// If every slot is in use, or the channel is faulted. Nothing is written then.
    #[inline(always)]
    pub fn push(&mut self, request: &Request, header: &[u8]) -> Result<(), PushRefused> {
        if let Some(fault) = self.fault {
            return Err(PushRefused::Faulted(fault));
        }
        if self.outstanding_u32() == self.layout.slots {
            return Err(PushRefused::Full);
        }
        let slot = self.layout.slot(self.pushed);
        let header = &header[..header.len().min(self.layout.header_bytes)];
        let len = if self.packets.is_none() {
            self.write_header(slot, header);
            header.len()
        } else {
            self.write_location(slot, header)
        };
        // MAX_HEADER_BYTES is below 2^16.
        let copy_len = len as u16;
        self.write_request(slot, layout::request_words(&Request { copy_len, ..*request }));
        self.pending[slot] = PendingRequest { id: request.id, packet_len: request.packet_len, copy_len };
        self.pushed = self.pushed.wrapping_add(1);
        Ok(())
    }

    /// Writes the offset of a header in the packet memory. Returns how many bytes the P4 VM may read
    /// there: none if the header lies outside it.
    #[inline]
    fn write_location(&self, slot: usize, header: &[u8]) -> usize {
        let at = header.as_ptr().addr();
        let offset = self.packets.as_ref().and_then(|packets| {
            let end = at.checked_add(header.len())?;
            (packets.start <= at && end <= packets.end).then(|| at - packets.start)
        });
        self.memory
            .stream_words::<8>(self.layout.frame(slot), [offset.unwrap_or(0) as u64, 0, 0, 0, 0, 0, 0, 0]);
        if offset.is_some() { header.len() } else { 0 }
    }

    /// Copies a header into its frame.
    #[inline(always)]
    fn write_header(&self, slot: usize, header: &[u8]) {
        let at = self.layout.frame(slot) + self.layout.headroom;
        if at.is_multiple_of(LINE) {
            self.memory.stream_in(at, header);
        } else {
            self.memory.copy_in(at, header);
        }
    }

    /// Writes a request. Two requests fill a cache line, which is written when both are there, or by
    /// [`Self::publish`].
    #[inline(always)]
    fn write_request(&mut self, slot: usize, words: [u64; 4]) {
        if slot.is_multiple_of(2) {
            self.half = Some(words);
        } else if let Some(first) = self.half.take() {
            let line = std::array::from_fn(|i| if i < 4 { first[i] } else { words[i - 4] });
            self.memory.stream_words::<8>(self.layout.request(slot - 1), line);
        } else {
            self.memory.store_words(self.layout.request(slot), words);
        }
    }

    /// Publishes the pushed requests. Returns true if the P4 VM sleeps; the caller then calls [`Self::wake`].
    #[inline]
    #[must_use = "a P4 VM that sleeps has to be woken"]
    pub fn publish(&mut self) -> bool {
        if self.published == self.pushed || self.fault.is_some() {
            return false;
        }
        if let Some(words) = self.half.take() {
            let slot = self.layout.slot(self.pushed.wrapping_sub(1));
            self.memory.store_words(self.layout.request(slot), words);
        }
        self.published = self.pushed;
        M::stream_fence();
        self.memory.store_u32(REQUEST_HEAD, self.published, Release);
        self.must_wake()
    }

    /// Whether the P4 VM sleeps although it owes answers; the caller then calls [`Self::wake`].
    ///
    /// The caller repeats it while answers are outstanding. No fence separates the store of the index
    /// from the load of the P4 VM's flag, because it would stall the processor until its store buffer
    /// is empty. So [`Self::publish`] can miss a P4 VM that falls asleep at the same moment, and the
    /// next call finds it.
    #[inline]
    #[must_use = "a P4 VM that sleeps has to be woken"]
    pub fn must_wake(&mut self) -> bool {
        self.published != self.taken
            && self.fault.is_none()
            && self.wakeup.is_due(&self.memory, self.published)
    }

    /// Whether the P4 VM sleeps and owes no answer. It may be woken early ([`Self::wake`]) for a
    /// request that is about to come over this channel or another one; it polls and, if there is none
    /// yet, sleeps again.
    #[inline]
    pub fn is_asleep(&mut self) -> bool {
        self.published == self.taken && self.fault.is_none() && self.wakeup.peer_sleeps(&self.memory)
    }

    /// Increments the P4 VM's futex if the P4 VM was seen asleep there, which comes before the system
    /// call that wakes it. Returns false if its doorbell wakes it.
    ///
    /// A P4 VM that has fallen asleep again meanwhile read the futex before it announced its sleep,
    /// and finds it changed.
    pub fn bump_futex(&mut self) -> bool {
        let at_futex = self.wakeup.flag() == ASLEEP_AT_FUTEX;
        if at_futex {
            self.futex = self.futex.wrapping_add(1);
            self.memory.store_u32(P4VM_FUTEX, self.futex, Release);
        }
        at_futex
    }

    /// Notifies the P4 VM that packets it passed have been sent. A P4 VM that shares its core with
    /// their receiver then gives up the core.
    #[inline]
    pub fn notify_sent(&mut self) {
        self.sent = self.sent.wrapping_add(1);
        self.memory.store_u32(SENT, self.sent, Relaxed);
    }

    /// Prefetches the cache lines that the next [`Self::take`] reads, which the P4 VM's core wrote last.
    #[inline]
    pub fn prefetch(&self) {
        self.memory.prefetch(VERDICT_HEAD);
        for n in (0..self.outstanding_u32().min(MAX_PREFETCHED)).step_by(ANSWERS_PER_LINE as usize) {
            self.prefetch_answer(self.taken.wrapping_add(n));
        }
    }

    #[inline]
    fn prefetch_answer(&self, index: u32) {
        self.memory.prefetch(self.layout.answer(self.layout.slot(index)));
    }

    /// Prefetches the rewritten headers of the next answers, in their usual place. Not inlined, because it
    /// would be in every user's loop.
    #[inline(never)]
    fn prefetch_rewrites(&self, ready: u32) {
        for n in 0..ready.min(2 * AHEAD) {
            let slot = self.layout.slot(self.taken.wrapping_add(n));
            self.memory.prefetch(self.layout.rewrite(slot));
            self.memory.prefetch(self.layout.frame(slot) + self.layout.headroom);
        }
    }

    /// Takes up to `max` answers, in the order of the requests, and frees their slots.
    ///
    /// # Errors
    /// If the P4 VM broke the protocol, now or earlier. Answers before the invalid one were passed to `each`.
    #[inline]
    pub fn take(
        &mut self,
        max: usize,
        mut each: impl FnMut(CheckedAnswer<'_>),
    ) -> Result<usize, ChannelFault> {
        let ready = self.ready(u32::try_from(max).unwrap_or(u32::MAX))?;
        for n in (0..ready).step_by(ANSWERS_PER_LINE as usize) {
            self.prefetch_answer(self.taken.wrapping_add(n));
        }
        for n in 0..ready {
            if self.rewrites && n.is_multiple_of(AHEAD) {
                self.prefetch_rewrites(ready - n);
            }
            if let Err(fault) = self.take_one(&mut each) {
                self.fault = Some(fault);
                return Err(fault);
            }
        }
        if ready != 0 {
            self.memory.store_u32(VERDICT_TAIL, self.taken, Release);
        }
        Ok(ready as usize)
    }

    /// Returns how many answers can be taken, at most `max`. Reads the shared index only if fewer are known.
    #[inline]
    fn ready(&mut self, max: u32) -> Result<u32, ChannelFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let open = self.published.wrapping_sub(self.answered);
        if self.answered.wrapping_sub(self.taken) < max && open != 0 {
            let index = self.memory.load_u32(VERDICT_HEAD, Acquire);
            if index.wrapping_sub(self.answered) > open {
                let fault = ChannelFault::Index { index, base: self.answered, open };
                self.fault = Some(fault);
                return Err(fault);
            }
            self.answered = index;
        }
        Ok(self.answered.wrapping_sub(self.taken).min(max))
    }

    #[inline(always)]
    fn take_one(&mut self, each: &mut impl FnMut(CheckedAnswer<'_>)) -> Result<(), ChannelFault> {
        let slot = self.layout.slot(self.taken);
        let word = layout::read_answer(&self.memory, self.layout.answer(slot));
        let id = self.pending[slot].id;
        // Most packets pass unchanged.
        if word == layout::answer_word(id as u32, Verdict::Pass, 0) {
            self.rewrites = false;
            each(CheckedAnswer { id, verdict: Verdict::Pass, rewrite: None });
        } else {
            self.take_checked(slot, word, each)?;
        }
        self.taken = self.taken.wrapping_add(1);
        Ok(())
    }

    #[inline(never)]
    fn take_checked(
        &mut self,
        slot: usize,
        word: u64,
        each: &mut impl FnMut(CheckedAnswer<'_>),
    ) -> Result<(), ChannelFault> {
        let (answer, pending) = (layout::parse_answer(word), self.pending[slot]);
        if answer.id != pending.id as u32 {
            return Err(ChannelFault::Id { expected: pending.id as u32, got: answer.id });
        }
        if answer.flags & !REWRITTEN != 0 {
            return Err(ChannelFault::Flags(answer.flags));
        }
        let verdict = Verdict::from_u64(u64::from(answer.verdict));
        let rewrite = if answer.flags & REWRITTEN != 0 && verdict == Verdict::Pass {
            self.rewrites = true;
            Some(self.check_rewrite(slot, &pending)?)
        } else {
            None
        };
        each(CheckedAnswer { id: pending.id, verdict, rewrite });
        Ok(())
    }

    /// Checks a rewrite against its request and copies its header out.
    fn check_rewrite(
        &mut self,
        slot: usize,
        pending: &PendingRequest,
    ) -> Result<HeaderRewrite<'_>, ChannelFault> {
        let RewrittenHeader { packet_len, start, copy_len } =
            layout::read_rewrite(&self.memory, self.layout.rewrite(slot));
        let frame = self.layout.frame_bytes();
        let (at, len) = (usize::from(start), usize::from(copy_len));
        if at + len > frame {
            return Err(ChannelFault::Bounds { start, len: copy_len, frame: frame as u32 });
        }
        let min = u32::from(copy_len);
        let max = layout::longest_rewrite(pending.packet_len, pending.copy_len, copy_len);
        if !(min..=max).contains(&packet_len) {
            return Err(ChannelFault::Length { packet_len, min, max });
        }
        let header = &mut self.scratch[..len];
        self.memory.copy_out(self.layout.frame(slot) + at, header);
        Ok(HeaderRewrite { replaced: usize::from(pending.copy_len), header, packet_len })
    }
}

impl Requester {
    /// Wakes the P4 VM at its futex or by `doorbell`. One system call, two if no thread sleeps at the
    /// futex; never waits. Returns false if the P4 VM has closed its doorbell.
    pub fn wake(&mut self, doorbell: &Doorbell) -> bool {
        (self.bump_futex() && self.memory.wake_at(P4VM_FUTEX)) || doorbell.ring()
    }
}

impl<M: Memory> Sleeper for Requester<M> {
    fn announce(&mut self) -> bool {
        if self.fault.is_some() {
            return true;
        }
        if self.answered != self.taken {
            return false;
        }
        self.wakeup.announce(&self.memory, ASLEEP_AT_DOORBELL, self.taken, self.published != self.taken)
    }

    fn retract(&mut self) {
        self.wakeup.retract(&self.memory);
    }
}
