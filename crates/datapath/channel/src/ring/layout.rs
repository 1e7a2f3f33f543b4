//! Offsets in a channel's region, and the encoding of its records as words.
//!
//! [`p4shield_abi::channel`] defines the layout.

use crate::error::ChannelError;
use crate::memory::Memory;
use crate::shm::SharedMemory;
use p4shield_abi::Verdict;
use p4shield_abi::channel::{Answer, ChannelHeader, Geometry, Request, RewrittenHeader};
use std::sync::atomic::Ordering::Relaxed;

/// Offsets that follow from a channel's geometry.
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
    /// Checks geometry, size and header of a region. Every offset that it returns is then in range.
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

    /// Returns the bytes of a frame that are used: headroom and header.
    pub(super) const fn frame_bytes(&self) -> usize {
        self.headroom + self.header_bytes
    }

    /// Returns the slot of the request with a free-running index.
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

/// Creates the region of a channel: a sealed memfd with its header, ready for both ends.
///
/// # Errors
/// If the geometry is out of range, or memory is short.
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

/// Encodes a header as words, in the order of its fields.
pub(crate) const fn header_words(h: &ChannelHeader) -> [u64; 5] {
    [
        h.magic,
        h.version as u64 | (h.slots as u64) << 32,
        h.header_bytes as u64 | (h.headroom as u64) << 32,
        h.frame_stride as u64 | (h.reserved as u64) << 32,
        h.size,
    ]
}

/// Compares a region's header with the configuration, to report a peer with another geometry. A
/// hostile peer may change the header at any time; nothing is read from it afterwards.
fn check_header<M: Memory>(memory: &M, expected: &ChannelHeader) -> Result<(), ChannelError> {
    const NAMES: [&str; 5] =
        ["magic", "version or slots", "header bytes or headroom", "frame stride", "size"];
    for (i, (word, what)) in header_words(expected).into_iter().zip(NAMES).enumerate() {
        if memory.load_u64(i * size_of::<u64>(), Relaxed) != word {
            return Err(ChannelError::Header { what });
        }
    }
    Ok(())
}

/// Encodes a request as words.
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

/// Encodes an answer as a word.
#[inline]
pub(super) const fn answer_word(id: u32, verdict: Verdict, flags: u8) -> u64 {
    id as u64 | (verdict as u64) << 32 | (flags as u64) << 40
}

/// Writes an answer: one word.
#[inline]
pub(super) fn write_answer<M: Memory>(memory: &M, at: usize, answer: u64) {
    memory.store_u64(at, answer, Relaxed);
}

/// Copies an answer out: one word, read once.
#[inline]
pub(super) fn read_answer<M: Memory>(memory: &M, at: usize) -> u64 {
    memory.load_u64(at, Relaxed)
}

/// Decodes an answer.
pub(super) const fn parse_answer(word: u64) -> Answer {
    Answer { id: word as u32, verdict: (word >> 32) as u8, flags: (word >> 40) as u8, reserved: [0; 2] }
}

/// Writes the record of a rewritten header: one word.
pub(super) fn write_rewrite<M: Memory>(memory: &M, at: usize, r: &RewrittenHeader) {
    let word = u64::from(r.packet_len) | u64::from(r.start) << 32 | u64::from(r.copy_len) << 48;
    memory.store_u64(at, word, Relaxed);
}

/// Copies the record of a rewritten header out: one word, read once.
pub(super) fn read_rewrite<M: Memory>(memory: &M, at: usize) -> RewrittenHeader {
    let word = memory.load_u64(at, Relaxed);
    RewrittenHeader { packet_len: word as u32, start: (word >> 32) as u16, copy_len: (word >> 48) as u16 }
}

/// Returns the longest that a packet can be after its first `old` bytes were replaced by `new` bytes:
/// the rest was not in the request, so it can shrink but not grow.
pub(super) const fn longest_rewrite(packet_len: u32, old: u16, new: u16) -> u32 {
    packet_len.saturating_sub(old as u32).saturating_add(new as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_the_header_is_in_its_words() {
        let header = ChannelHeader {
            magic: 0x0102_0304_0506_0708,
            version: 0x1112_1314,
            slots: 0x2122_2324,
            header_bytes: 0x3132_3334,
            headroom: 0x4142_4344,
            frame_stride: 0x5152_5354,
            reserved: 0x6162_6364,
            size: 0x7172_7374_7576_7778,
        };
        let words = [
            0x0102_0304_0506_0708,
            0x2122_2324_1112_1314,
            0x4142_4344_3132_3334,
            0x6162_6364_5152_5354,
            0x7172_7374_7576_7778,
        ];
        assert_eq!(header_words(&header), words);
    }
}
