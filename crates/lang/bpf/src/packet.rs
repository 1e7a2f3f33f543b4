//! Packet buffers: the private copy of a packet's header that a program works on.

use p4shield_abi::channel::{MAX_HEADER_BYTES, MAX_HEADROOM};

/// Bytes of an Ethernet header: like Linux's XDP, resizing leaves at least this much. See
/// [`Packet::with_minimum`] for another bound.
const MIN_LEN: usize = 14;

/// A reusable buffer: headroom, then the header copy.
///
/// Only the P4 VM accesses the buffer, so its contents never change during a run. Its size and
/// address stay the same after [`Packet::new`].
#[derive(Debug)]
pub struct Packet {
    buffer: Box<[u8]>,
    headroom: usize,
    minimum: usize,
    start: usize,
    len: usize,
    total: u32,
    /// Copy of the header that `packet_keep` saved. It has the size of the buffer, so any header fits.
    kept: Box<[u8]>,
    kept_len: usize,
}

impl Packet {
    /// Creates a buffer for headers of up to `capacity` bytes, with `headroom` bytes for growth. Both are
    /// clamped to the limits of a channel ([`MAX_HEADER_BYTES`], [`MAX_HEADROOM`]).
    #[must_use]
    pub fn new(headroom: usize, capacity: usize) -> Self {
        let headroom = headroom.min(MAX_HEADROOM as usize);
        let capacity = capacity.min(MAX_HEADER_BYTES as usize);
        let buffer = vec![0; headroom + capacity].into_boxed_slice();
        let kept = buffer.clone();
        Self { buffer, headroom, minimum: MIN_LEN, start: headroom, len: 0, total: 0, kept, kept_len: 0 }
    }

    /// Like [`Packet::new`], with another minimum length. For frames that no switch forwards, such as
    /// those of tests.
    #[must_use]
    pub fn with_minimum(headroom: usize, capacity: usize, minimum: usize) -> Self {
        Self { minimum, ..Self::new(headroom, capacity) }
    }

    /// Stores the header of the next packet, whose length on the wire is `total`. Bytes beyond the buffer
    /// are left out. `total` is raised to the length of the header if it is smaller.
    ///
    /// The headroom keeps bytes of earlier packets of the same tenant. A program that grows the packet
    /// has to write the bytes that it adds.
    #[inline]
    pub fn reset(&mut self, header: &[u8], total: u32) {
        self.fill(total, |room| {
            let len = header.len().min(room.len());
            room[..len].copy_from_slice(&header[..len]);
            len
        });
    }

    /// Like [`Packet::reset`], but `copy` writes the header to the buffer and returns its length.
    #[inline]
    pub fn fill(&mut self, total: u32, copy: impl FnOnce(&mut [u8]) -> usize) {
        let room = &mut self.buffer[self.headroom..];
        let len = copy(room).min(room.len());
        self.start = self.headroom;
        self.len = len;
        self.total = total.max(len as u32);
        self.kept_len = 0;
    }

    /// Loads a packet as a run left it: one that is longer than the room for those that arrive takes
    /// headroom.
    pub fn restore(&mut self, left: &[u8]) {
        let len = left.len().min(self.buffer.len());
        self.start = self.headroom.min(self.buffer.len() - len);
        self.buffer[self.start..self.start + len].copy_from_slice(&left[..len]);
        (self.len, self.total, self.kept_len) = (len, len as u32, 0);
    }

    /// The header copy in its present state.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.start + self.len]
    }

    /// Returns `len` bytes of the header copy from offset `at`, if they are within it.
    pub(crate) fn range(&self, at: u32, len: u32) -> Option<&[u8]> {
        self.bytes().get(at as usize..)?.get(..len as usize)
    }

    /// Saves the header copy for [`Packet::put`].
    pub(crate) fn keep(&mut self) {
        let bytes = &self.buffer[self.start..self.start + self.len];
        self.kept[..self.len].copy_from_slice(bytes);
        self.kept_len = self.len;
    }

    /// Copies `len` bytes of the saved header from offset `from` to offset `to` of the header copy.
    /// Returns `false` and changes nothing if either range is out of bounds.
    pub(crate) fn put(&mut self, to: u32, from: u32, len: u32) -> bool {
        let (to, from, len) = (to as usize, from as usize, len as usize);
        let source = self.kept[..self.kept_len].get(from..).and_then(|k| k.get(..len));
        let bytes = &mut self.buffer[self.start..self.start + self.len];
        match (source, bytes.get_mut(to..).and_then(|b| b.get_mut(..len))) {
            (Some(source), Some(target)) => {
                target.copy_from_slice(source);
                true
            }
            _ => false,
        }
    }

    /// Offset of the header copy from the start of the headroom.
    #[must_use]
    pub const fn start(&self) -> usize {
        self.start
    }

    /// Length of the header copy in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the header copy is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Length of the whole packet on the wire in bytes.
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.total
    }

    /// Address of the buffer, valid for reads and writes of [`Packet::buffer_len`] bytes.
    pub(crate) fn buffer_ptr(&mut self) -> *mut u8 {
        self.buffer.as_mut_ptr()
    }

    /// Length of the buffer in bytes.
    pub(crate) const fn buffer_len(&self) -> usize {
        self.buffer.len()
    }

    /// Moves the start by `delta` bytes. Returns `false` and changes nothing if the buffer has no room
    /// or the rest is shorter than the minimum.
    pub(crate) fn adjust_head(&mut self, delta: i32) -> bool {
        let Some(start) = self.start.checked_add_signed(delta as isize) else { return false };
        let end = self.start + self.len;
        let Some(total) = i64::from(self.total).checked_sub(delta.into()) else { return false };
        let Ok(total) = u32::try_from(total) else { return false };
        if start + self.minimum > end {
            return false;
        }
        (self.start, self.len, self.total) = (start, end - start, total);
        true
    }

    /// Cuts `-delta` bytes off the end of the whole packet, and of the header copy if it reaches that
    /// far. The minimum remains. Returns `false` and changes nothing if `delta` is positive.
    pub(crate) fn adjust_tail(&mut self, delta: i32) -> bool {
        let Ok(cut) = u32::try_from(-i64::from(delta)) else { return false };
        let least = self.total.min(self.minimum as u32);
        self.total = self.total.saturating_sub(cut).max(least);
        self.len = self.len.min(self.total as usize);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet() -> Packet {
        let mut p = Packet::new(16, 64);
        p.reset(&[7; 40], 1500);
        p
    }

    #[test]
    fn heads_grow_only_into_the_head_room() {
        let mut p = packet();
        assert!(p.adjust_head(-16));
        assert_eq!((p.start(), p.len(), p.total()), (0, 56, 1516));
        assert!(!p.adjust_head(-1), "no room left");
        assert!(!p.adjust_head(i32::MIN));
        assert!(p.adjust_head(42));
        assert!(!p.adjust_head(1), "an Ethernet header has to remain");
        assert!(!p.adjust_head(i32::MAX));
        assert_eq!((p.start(), p.len(), p.total()), (42, 14, 1474));
    }

    #[test]
    fn tails_are_cut_from_the_whole_packet() {
        let mut p = packet();
        assert!(p.adjust_tail(-1460));
        assert_eq!((p.len(), p.total()), (40, 40));
        assert!(p.adjust_tail(-20));
        assert_eq!((p.len(), p.total()), (20, 20));
        for delta in [1, i32::MAX] {
            assert!(!p.adjust_tail(delta), "{delta}");
        }
        assert!(p.adjust_tail(i32::MIN));
        assert_eq!((p.len(), p.total()), (14, 14), "an Ethernet header remains");
    }

    #[test]
    fn saved_bytes_are_restored_within_bounds() {
        let mut p = Packet::new(16, 64);
        p.reset(&(0..40).collect::<Vec<u8>>(), 40);
        assert!(!p.put(0, 0, 1), "nothing is saved");
        p.keep();
        assert!(p.adjust_head(-8));
        assert!(p.put(0, 20, 4));
        assert_eq!(p.bytes()[..4], [20, 21, 22, 23]);
        assert_eq!(p.range(0, 2), Some(&[20, 21][..]));
        assert!(p.put(44, 36, 4) && p.put(48, 40, 0));
        for (to, from, len) in
            [(45, 36, 4), (44, 37, 4), (0, 41, 0), (49, 0, 0), (u32::MAX, 0, 2), (0, 2, u32::MAX)]
        {
            assert!(!p.put(to, from, len), "{to} {from} {len}");
        }
        assert_eq!(p.range(47, 2), None);
        assert_eq!(p.range(u32::MAX, u32::MAX), None);
        p.reset(&[1; 20], 20);
        assert!(!p.put(0, 0, 1), "the saved bytes of an earlier packet are gone");
    }

    #[test]
    fn headers_are_clamped_to_the_buffer() {
        let mut p = Packet::new(usize::MAX, 8);
        p.reset(&[1; 20], 4);
        assert_eq!(p.bytes(), [1; 8]);
        assert_eq!(p.total(), 8);
        assert_eq!(p.start(), MAX_HEADROOM as usize);
    }
}
