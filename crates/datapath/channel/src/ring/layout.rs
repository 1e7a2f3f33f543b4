//! Where things are in a channel's region, and the words that records are made of.

use crate::error::ChannelError;
use crate::memory::Memory;
use crate::shm::SharedMemory;
use p4shield_abi::Verdict;
use p4shield_abi::channel::{Answer, ChannelHeader, Geometry, Request, RewrittenHeader};
use std::sync::atomic::Ordering::Relaxed;

/// Offsets that follow from a geometry, computed once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) slots: u32,
    pub(super) headroom: usize,
    pub(super) header_bytes: usize,
    requests: usize,
    answers: usize,
    rewrites: usize,
    frames: usize,
    stride: usize,
}

impl Layout {
    /// Checks geometry, size and header of a region; after this no offset made here is out of range.
    pub(super) fn of<M: Memory>(memory: &M, geometry: Geometry) -> Result<Self, ChannelError> {
        if !geometry.is_valid() {
            return Err(ChannelError::Geometry(geometry));
        }
        if memory.len() < geometry.size() {
            return Err(ChannelError::TooSmall { needed: geometry.size(), actual: memory.len() });
        }
        check_header(memory, &geometry.header())?;
        Ok(Self {
            slots: geometry.slots,
            headroom: geometry.headroom as usize,
            header_bytes: geometry.header_bytes as usize,
            requests: geometry.requests(),
            answers: geometry.answers(),
            rewrites: geometry.rewrites(),
            frames: geometry.frames(),
            stride: geometry.frame_stride(),
        })
    }

    /// Bytes of a frame that count: head room and header.
    pub(super) const fn frame_bytes(&self) -> usize {
        self.headroom + self.header_bytes
    }

    /// Slot of the request with this free-running index.
    pub(super) const fn slot(&self, index: u32) -> usize {
        (index & (self.slots - 1)) as usize
    }

    pub(super) const fn request(&self, slot: usize) -> usize {
        self.requests + slot * size_of::<Request>()
    }

    pub(super) const fn answer(&self, slot: usize) -> usize {
        self.answers + slot * size_of::<Answer>()
    }

    pub(super) const fn rewrite(&self, slot: usize) -> usize {
        self.rewrites + slot * size_of::<RewrittenHeader>()
    }

    pub(super) const fn frame(&self, slot: usize) -> usize {
        self.frames + slot * self.stride
    }
}

/// Makes a region for a channel: a sealed memfd with its header, ready for both ends.
///
/// # Errors
/// If the geometry is out of range, or there is no memory.
pub fn create_channel(name: &str, geometry: Geometry) -> Result<SharedMemory, ChannelError> {
    if !geometry.is_valid() {
        return Err(ChannelError::Geometry(geometry));
    }
    let memory = SharedMemory::create_memfd(name, geometry.size())?;
    for (i, word) in header_words(&geometry.header()).into_iter().enumerate() {
        memory.store_u64(i * size_of::<u64>(), word, Relaxed);
    }
    Ok(memory)
}

/// The words of a header, in the order of its fields.
pub(crate) const fn header_words(h: &ChannelHeader) -> [u64; 5] {
    [
        h.magic,
        h.version as u64 | (h.slots as u64) << 32,
        h.header_bytes as u64 | (h.headroom as u64) << 32,
        h.frame_stride as u64 | (h.reserved as u64) << 32,
        h.size,
    ]
}

/// A peer who was told another geometry is a mistake of configuration that deserves a message. (A hostile one may
/// write what it likes here; nothing is taken from the header.)
fn check_header<M: Memory>(memory: &M, expected: &ChannelHeader) -> Result<(), ChannelError> {
    const NAMES: [&str; 5] =
        ["magic", "version or slots", "header bytes or head room", "frame stride", "size"];
    for (i, (word, what)) in header_words(expected).into_iter().zip(NAMES).enumerate() {
        if memory.load_u64(i * size_of::<u64>(), Relaxed) != word {
            return Err(ChannelError::Header { what });
        }
    }
    Ok(())
}

/// A request as words.
#[inline(always)]
pub(super) fn request_words(r: &Request) -> [u64; 4] {
    let lengths = u64::from(r.packet_len) | u64::from(r.input_port) << 32;
    let rest = u64::from(r.copy_len) | u64::from(r.vm) << 16 | u64::from(r.direction) << 32;
    [r.id, r.timestamp_ns, lengths, rest]
}

/// Copies a request out: four words, each read once.
#[inline]
pub(super) fn read_request<M: Memory>(memory: &M, at: usize) -> Request {
    let [id, timestamp_ns, lengths, rest] = memory.load_words(at);
    Request {
        id,
        timestamp_ns,
        packet_len: lengths as u32,
        input_port: (lengths >> 32) as u32,
        copy_len: rest as u16,
        vm: (rest >> 16) as u16,
        direction: (rest >> 32) as u8,
        reserved: [0; 3],
    }
}

/// An answer as a word.
#[inline]
pub(super) const fn word_of(id: u32, verdict: Verdict, flags: u8) -> u64 {
    id as u64 | (verdict as u64) << 32 | (flags as u64) << 40
}

/// Copies an answer in: one word.
#[inline]
pub(super) fn write_answer<M: Memory>(memory: &M, at: usize, answer: u64) {
    memory.store_u64(at, answer, Relaxed);
}

/// Copies an answer out: one word, read once.
#[inline]
pub(super) fn read_answer<M: Memory>(memory: &M, at: usize) -> u64 {
    memory.load_u64(at, Relaxed)
}

/// The fields of an answer.
pub(super) const fn answer_of(word: u64) -> Answer {
    Answer { id: word as u32, verdict: (word >> 32) as u8, flags: (word >> 40) as u8, reserved: [0; 2] }
}

/// Copies in what a rewrite says: one word.
pub(super) fn write_rewrite<M: Memory>(memory: &M, at: usize, r: &RewrittenHeader) {
    let word = u64::from(r.packet_len) | u64::from(r.start) << 32 | u64::from(r.copy_len) << 48;
    memory.store_u64(at, word, Relaxed);
}

/// Copies out what a rewrite says: one word, read once.
pub(super) fn read_rewrite<M: Memory>(memory: &M, at: usize) -> RewrittenHeader {
    let word = memory.load_u64(at, Relaxed);
    RewrittenHeader { packet_len: word as u32, start: (word >> 32) as u16, copy_len: (word >> 48) as u16 }
}
