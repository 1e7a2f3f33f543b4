//! The mediator's end: asks and takes answers.

use super::bell::Bell;
use super::layout::{self, Layout};
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

/// Answers in a cache line, and so how many it takes before the next line is fetched from the P4 VM's core.
const ANSWERS_A_LINE: u32 = 64 / size_of::<Answer>() as u32;
/// Answers that are brought here ahead of time, at most.
const AHEAD: u32 = BATCH as u32;

/// What was asked, kept in private: answers are held against this and never against the shared request.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    id: u64,
    packet_len: u32,
    copy_len: u16,
}

/// An answer that was asked for, copied out and checked.
#[derive(Debug)]
pub struct CheckedAnswer<'a> {
    /// Identity of the request.
    pub id: u64,
    /// What is to happen to the packet.
    pub verdict: Verdict,
    /// What is to be changed in it before it passes; none for a dropped packet.
    pub rewrite: Option<HeaderRewrite<'a>>,
}

/// A change to a packet, within bounds.
#[derive(Debug)]
pub struct HeaderRewrite<'a> {
    /// How many bytes at the packet's front (those that were handed over) the header replaces.
    pub replaced: usize,
    /// The new header.
    pub header: &'a [u8],
    /// Bytes of the whole packet afterwards: from the header alone to the header and all that was not handed over.
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
    asked: Box<[Asked]>,
    scratch: Box<[u8]>,
    /// The newest request if it is the first of its cache line and was not written yet.
    half: Option<[u64; 4]>,
    /// Requests written. All four are free-running.
    pushed: u32,
    /// Requests the P4 VM was told of.
    published: u32,
    /// Answers known to be there: the P4 VM's index as last read and checked.
    answered: u32,
    /// Answers taken.
    taken: u32,
    bell: Bell,
    /// Times that the P4 VM's word was counted up. Free-running.
    rings: u32,
    /// Times that it was told that packets were sent. Free-running.
    sent: u32,
    fault: Option<ChannelFault>,
    /// Addresses of the packet memory that the P4 VM reads headers from; none: they are copied.
    packets: Option<Range<usize>>,
}

impl<M: Memory> Requester<M> {
    /// Sets up the mediator's end over a fresh region; each region serves one pair of ends, once.
    ///
    /// # Errors
    /// If the geometry is out of range, or the region is too small or says it has another.
    pub fn new(memory: M, geometry: Geometry) -> Result<Self, ChannelError> {
        let layout = Layout::of(&memory, geometry)?;
        Ok(Self {
            asked: vec![Asked::default(); layout.slots as usize].into_boxed_slice(),
            scratch: vec![0; layout.frame_bytes()].into_boxed_slice(),
            memory,
            layout,
            half: None,
            pushed: 0,
            published: 0,
            answered: 0,
            taken: 0,
            bell: Bell::of_mediator(),
            rings: 0,
            sent: 0,
            fault: None,
            packets: None,
        })
    }

    /// The same, telling where headers are instead of copying them: the P4 VM has mapped the packet memory that is at
    /// these addresses here ([`super::Responder::with_packet_memory`]). All packets must lie in it: of one that does not, no byte is
    /// handed over.
    #[must_use]
    pub fn with_packet_memory(mut self, packets: Range<usize>) -> Self {
        self.packets = Some(packets);
        self
    }

    /// As if so many packets had gone before.
    #[cfg(test)]
    pub(super) fn started_at(mut self, index: u32) -> Self {
        (self.pushed, self.published, self.answered, self.taken) = (index, index, index, index);
        self
    }

    /// Requests that can be pushed now.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.fault.is_some() { 0 } else { (self.layout.slots - self.outstanding_u32()) as usize }
    }

    /// Requests pushed whose answer was not taken.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding_u32() as usize
    }

    /// Requests pushed that the P4 VM was not told of.
    #[must_use]
    #[inline]
    pub fn unpublished(&self) -> usize {
        self.pushed.wrapping_sub(self.published) as usize
    }

    fn outstanding_u32(&self) -> u32 {
        self.pushed.wrapping_sub(self.taken)
    }

    /// Header bytes a packet that are handed over at most.
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        self.layout.header_bytes
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

    /// Writes a request and up to [`Self::header_bytes`] of `header`, the packet's front, into the next slot; or where the
    /// P4 VM finds them.
    /// `request.copy_len` is set here.
    ///
    /// # Errors
    /// If every slot is in use, or the channel is faulted. Nothing was written then.
    ///
    /// Part of its caller: a request is better made in registers than in memory that is read again at once.
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
            self.point(slot, header)
        };
        // MAX_HEADER_BYTES is below 2^16.
        let copy_len = len as u16;
        self.write_request(slot, layout::request_words(&Request { copy_len, ..*request }));
        self.asked[slot] = Asked { id: request.id, packet_len: request.packet_len, copy_len };
        self.pushed = self.pushed.wrapping_add(1);
        Ok(())
    }

    /// Writes where in the packet memory a header is. How many bytes the P4 VM finds there: none, if it is not in it.
    #[inline]
    fn point(&self, slot: usize, header: &[u8]) -> usize {
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

    /// Two requests are a cache line, which is written when there are both, or by [`Self::publish`].
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

    /// Hands over what was pushed. True if the P4 VM is seen to sleep: [`Self::wake`] is to be called.
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

    /// Whether the P4 VM sleeps though it owes answers: [`Self::wake`] is to be called.
    ///
    /// To be asked again and again while answers are outstanding. The index is stored and the P4 VM's flag read without
    /// a fence in between, which would have the processor wait until all that was pushed has left its store buffer;
    /// so [`Self::publish`] can miss a P4 VM that goes to sleep at the same moment, and what misses nothing is looking
    /// again.
    #[inline]
    #[must_use = "a P4 VM that sleeps has to be woken"]
    pub fn must_wake(&mut self) -> bool {
        self.published != self.taken && self.fault.is_none() && self.bell.due(&self.memory, self.published)
    }

    /// Whether the P4 VM sleeps, owing nothing. It may be woken all the same ([`Self::wake`]), to be awake in time for what is
    /// about to come over this channel or another; it looks and, if nothing is there yet, sleeps again.
    #[inline]
    pub fn is_asleep(&mut self) -> bool {
        self.published == self.taken && self.fault.is_none() && self.bell.sees_sleep(&self.memory)
    }

    /// Counts the P4 VM's word up if it was seen to sleep there, which is what is to be done first to wake it. False if it is to
    /// be woken by its doorbell.
    ///
    /// One that has gone to sleep again meanwhile looked at the word before it said so, and finds it changed.
    pub fn bump_futex(&mut self) -> bool {
        let there = self.bell.place() == ASLEEP_AT_FUTEX;
        if there {
            self.rings = self.rings.wrapping_add(1);
            self.memory.store_u32(P4VM_FUTEX, self.rings, Release);
        }
        there
    }

    /// Tells the P4 VM that packets it let pass have been sent: if it shares its core with whom they are for, it need not keep
    /// that awake any more, and is in the way from now on.
    #[inline]
    pub fn notify_sent(&mut self) {
        self.sent = self.sent.wrapping_add(1);
        self.memory.store_u32(SENT, self.sent, Relaxed);
    }

    /// Has what the next [`Self::take`] looks at brought here, while the caller does something else: the P4 VM's core
    /// wrote it last.
    #[inline]
    pub fn prefetch(&self) {
        self.memory.prefetch(VERDICT_HEAD);
        for n in (0..self.outstanding_u32().min(AHEAD)).step_by(ANSWERS_A_LINE as usize) {
            self.prefetch_answer(self.taken.wrapping_add(n));
        }
    }

    #[inline]
    fn prefetch_answer(&self, index: u32) {
        self.memory.prefetch(self.layout.answer(self.layout.slot(index)));
    }

    /// Takes up to `max` answers, in the order of the requests, and gives their slots back.
    ///
    /// # Errors
    /// If the P4 VM broke the protocol, now or earlier. Answers before the one at fault were given to `each`.
    #[inline]
    pub fn take(
        &mut self,
        max: usize,
        mut each: impl FnMut(CheckedAnswer<'_>),
    ) -> Result<usize, ChannelFault> {
        let ready = self.ready(u32::try_from(max).unwrap_or(u32::MAX))?;
        for n in (0..ready).step_by(ANSWERS_A_LINE as usize) {
            self.prefetch_answer(self.taken.wrapping_add(n));
        }
        for _ in 0..ready {
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

    /// Answers that can be taken, `max` or fewer. The shared index is read only if not as many are known of.
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
        let id = self.asked[slot].id;
        // Most packets pass as they are.
        if word == layout::word_of(id as u32, Verdict::Pass, 0) {
            each(CheckedAnswer { id, verdict: Verdict::Pass, rewrite: None });
        } else {
            self.take_other(slot, word, each)?;
        }
        self.taken = self.taken.wrapping_add(1);
        Ok(())
    }

    #[inline(never)]
    fn take_other(
        &mut self,
        slot: usize,
        word: u64,
        each: &mut impl FnMut(CheckedAnswer<'_>),
    ) -> Result<(), ChannelFault> {
        let (answer, asked) = (layout::answer_of(word), self.asked[slot]);
        if answer.id != asked.id as u32 {
            return Err(ChannelFault::Id { asked: asked.id as u32, got: answer.id });
        }
        if answer.flags & !REWRITTEN != 0 {
            return Err(ChannelFault::Flags(answer.flags));
        }
        let verdict = Verdict::from_u64(u64::from(answer.verdict));
        let rewrite = if answer.flags & REWRITTEN != 0 && verdict == Verdict::Pass {
            Some(self.rewrite(slot, &asked)?)
        } else {
            None
        };
        each(CheckedAnswer { id: asked.id, verdict, rewrite });
        Ok(())
    }

    /// Checks a rewrite against what was asked and copies its header out.
    fn rewrite(&mut self, slot: usize, asked: &Asked) -> Result<HeaderRewrite<'_>, ChannelFault> {
        let RewrittenHeader { packet_len, start, copy_len } =
            layout::read_rewrite(&self.memory, self.layout.rewrite(slot));
        let frame = self.layout.frame_bytes();
        let (at, len) = (usize::from(start), usize::from(copy_len));
        if at + len > frame {
            return Err(ChannelFault::Bounds { start, len: copy_len, frame: frame as u32 });
        }
        let min = u32::from(copy_len);
        let max = longest(asked.packet_len, asked.copy_len, copy_len);
        if !(min..=max).contains(&packet_len) {
            return Err(ChannelFault::Length { packet_len, min, max });
        }
        let header = &mut self.scratch[..len];
        self.memory.copy_out(self.layout.frame(slot) + at, header);
        Ok(HeaderRewrite { replaced: usize::from(asked.copy_len), header, packet_len })
    }
}

impl Requester {
    /// Wakes the P4 VM, at its word or by `doorbell`. One system call, two if nobody is found at the word; never waits. False if
    /// there is nobody any more.
    pub fn wake(&mut self, doorbell: &Doorbell) -> bool {
        (self.bump_futex() && self.memory.wake_at(P4VM_FUTEX)) || doorbell.ring()
    }
}

/// The longest a packet can be after its first `old` bytes were replaced by `new`: the rest was never handed over,
/// so it can be cut but not grow.
pub(super) const fn longest(packet_len: u32, old: u16, new: u16) -> u32 {
    packet_len.saturating_sub(old as u32).saturating_add(new as u32)
}

impl<M: Memory> Sleeper for Requester<M> {
    fn announce(&mut self) -> bool {
        if self.fault.is_some() {
            return true;
        }
        if self.answered != self.taken {
            return false;
        }
        self.bell.announce(&self.memory, ASLEEP_AT_DOORBELL, self.taken, self.published != self.taken)
    }

    fn retract(&mut self) {
        self.bell.retract(&self.memory);
    }
}
