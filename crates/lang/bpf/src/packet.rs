//! The private copy of a packet's header that a program works on.

use p4shield_abi::channel::{MAX_HEADER_BYTES, MAX_HEADROOM};

/// Bytes of an Ethernet header: resizing leaves no less unless the buffer was made with
/// [`Packet::with_minimum`] (as in Linux's XDP).
const MIN_LEN: usize = 14;

/// A reusable buffer: head room, then the header copy.
///
/// The buffer belongs to the P4 VM alone, so what a program reads from it cannot change under its feet. It never
/// grows or moves after [`Packet::new`].
#[derive(Debug)]
pub struct Packet {
    buffer: Box<[u8]>,
    headroom: usize,
    minimum: usize,
    start: usize,
    len: usize,
    total: u32,
    /// The header copy as it was at some moment of the run: as long as the buffer, so that any fits.
    kept: Box<[u8]>,
    kept_len: usize,
}

impl Packet {
    /// A buffer for headers of up to `capacity` bytes behind `headroom` bytes into which a program may grow them.
    /// Both are clamped to what a channel allows ([`MAX_HEADER_BYTES`], [`MAX_HEADROOM`]).
    #[must_use]
    pub fn new(headroom: usize, capacity: usize) -> Self {
        let headroom = headroom.min(MAX_HEADROOM as usize);
        let capacity = capacity.min(MAX_HEADER_BYTES as usize);
        let buffer = vec![0; headroom + capacity].into_boxed_slice();
        let kept = buffer.clone();
        Self { buffer, headroom, minimum: MIN_LEN, start: headroom, len: 0, total: 0, kept, kept_len: 0 }
    }

    /// As [`Packet::new`], with another bound for resizing than an Ethernet header: for frames that no switch will
    /// see, such as those of a test.
    #[must_use]
    pub fn with_minimum(headroom: usize, capacity: usize, minimum: usize) -> Self {
        Self { minimum, ..Self::new(headroom, capacity) }
    }

    /// Puts in the header of the next packet, of which `total` bytes exist on the wire. What does not fit into the
    /// buffer is left out; `total` is at least the bytes of the header.
    ///
    /// The head room keeps what an earlier packet of the same tenant left in it; a program that grows the packet
    /// has to write what it adds.
    #[inline]
    pub fn reset(&mut self, header: &[u8], total: u32) {
        self.fill(total, |room| {
            let len = header.len().min(room.len());
            room[..len].copy_from_slice(&header[..len]);
            len
        });
    }

    /// As [`Packet::reset`], with the header that `copy` writes to the front of the room that there is; it returns how
    /// many bytes those are.
    #[inline]
    pub fn fill(&mut self, total: u32, copy: impl FnOnce(&mut [u8]) -> usize) {
        let room = &mut self.buffer[self.headroom..];
        let len = copy(room).min(room.len());
        self.start = self.headroom;
        self.len = len;
        self.total = total.max(len as u32);
        self.kept_len = 0;
    }

    /// The header copy as it is now.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.start + self.len]
    }

    /// `len` bytes of the header copy from `at` on, if they are within it.
    pub(crate) fn range(&self, at: u32, len: u32) -> Option<&[u8]> {
        self.bytes().get(at as usize..)?.get(..len as usize)
    }

    /// Keeps the header copy as it is now, for [`Packet::put`].
    pub(crate) fn keep(&mut self) {
        let bytes = &self.buffer[self.start..self.start + self.len];
        self.kept[..self.len].copy_from_slice(bytes);
        self.kept_len = self.len;
    }

    /// Puts `len` bytes of what was kept, from `from` on, into the header copy at `to`; `false` and no change if either
    /// range is not within.
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

    /// Where the header copy starts, counted from the start of the head room.
    #[must_use]
    pub const fn start(&self) -> usize {
        self.start
    }

    /// Bytes of the header copy.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the header copy has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the whole packet on the wire.
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.total
    }

    /// First address of the buffer, for the engine: valid for reads and writes of [`Packet::buffer_len`] bytes.
    pub(crate) fn buffer_ptr(&mut self) -> *mut u8 {
        self.buffer.as_mut_ptr()
    }

    /// Bytes of the buffer.
    pub(crate) const fn buffer_len(&self) -> usize {
        self.buffer.len()
    }

    /// Moves the start by `delta` bytes; `false` and no change if there is no room, or too little would be left.
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

    /// Cuts `-delta` bytes off the end of the whole packet, and of the header copy where it reaches that far; no less
    /// than the minimum stays. `false` and no change if `delta` is positive.
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
    fn heads_grow_into_the_head_room_only() {
        let mut p = packet();
        assert!(p.adjust_head(-16));
        assert_eq!((p.start(), p.len(), p.total()), (0, 56, 1516));
        assert!(!p.adjust_head(-1), "no room left");
        assert!(!p.adjust_head(i32::MIN));
        assert!(p.adjust_head(42));
        assert!(!p.adjust_head(1), "an Ethernet header has to stay");
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
        assert_eq!((p.len(), p.total()), (14, 14), "an Ethernet header stays");
    }

    #[test]
    fn kept_bytes_come_back_within_bounds() {
        let mut p = Packet::new(16, 64);
        p.reset(&(0..40).collect::<Vec<u8>>(), 40);
        assert!(!p.put(0, 0, 1), "nothing is kept");
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
        assert!(!p.put(0, 0, 1), "what was kept of an earlier packet is gone");
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
