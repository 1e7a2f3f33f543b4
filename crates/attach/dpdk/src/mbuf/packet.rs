//! The packet itself: reading its front, and replacing it.

use super::layout::{RawMbuf, flags};
use super::offload::Requests;
use crate::dpdk::{self, Dpdk};
use crate::shim;
use p4shield_mediator::{Packet, RewriteRefused};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// Headroom that a rewrite leaves if it can: what a switch needs to put a tunnel's headers in
/// front. Open vSwitch does not survive a packet without it.
const KEEP_HEADROOM: usize = 96;
/// Bytes at the front that have to be in one piece to be classified and judged, if the packet has as many.
const FRONT: usize = 192;
/// Headroom of a packet that DPDK copies (`RTE_PKTMBUF_HEADROOM`).
const COPY_HEADROOM: usize = 128;
/// "All of it", for `rte_pktmbuf_copy`.
const ALL: u32 = u32::MAX;

/// A packet that a receive burst brought, and that is ours until it goes back to the application or
/// to its pool.
///
/// A handle: dropping it does not free the packet.
#[derive(Debug)]
#[repr(transparent)]
pub struct Mbuf(NonNull<RawMbuf>);

// SAFETY: an mbuf has no ties to a thread; DPDK hands them from core to core. We have the only handle.
unsafe impl Send for Mbuf {}

impl Mbuf {
    /// Takes a packet over. None if the pointer is null.
    ///
    /// # Safety
    /// It points to the first segment of a packet that the caller owns and gives away.
    #[must_use]
    pub unsafe fn from_raw(mbuf: *mut RawMbuf) -> Option<Self> {
        NonNull::new(mbuf).map(Self)
    }

    /// Takes a share in a packet that stays another owner's, too: its segments are freed once both have freed
    /// them. A packet that is shared is copied before it is changed. None if the pointer is null.
    ///
    /// # Safety
    /// It points to the first segment of a packet that the caller owns.
    pub(crate) unsafe fn share(mbuf: *mut RawMbuf) -> Option<Self> {
        let mut segment: *const RawMbuf = mbuf;
        // SAFETY: as the caller promises; a chain's next pointers lead to valid segments, or are null.
        while let Some(raw) = unsafe { segment.as_ref() } {
            raw.refcnt.fetch_add(1, Ordering::AcqRel);
            segment = raw.next;
        }
        NonNull::new(mbuf).map(Self)
    }

    /// Gives the packet away.
    #[must_use]
    pub fn into_raw(self) -> *mut RawMbuf {
        self.0.as_ptr()
    }

    /// Frees a packet.
    pub fn free(self) {
        // Where there is a packet there is DPDK.
        if let Ok(dpdk) = dpdk::dpdk() {
            free(dpdk, self.0.as_ptr());
        }
    }

    /// Returns whether the bytes that mediator and programs read are contiguous.
    #[inline]
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_whole_behind(0)
    }

    /// As [`Self::is_whole`], behind `outer` bytes of other headers.
    #[inline]
    #[must_use]
    pub fn is_whole_behind(&self, outer: usize) -> bool {
        usize::from(self.raw().data_len) >= (outer + FRONT).min(self.raw().pkt_len as usize)
    }

    /// Makes the front of a packet contiguous by copying it: otherwise a sender that scatters headers over
    /// segments would evade the program.
    ///
    /// # Errors
    /// There is no memory for the copy.
    #[cold]
    pub fn make_whole(&mut self) -> Result<(), RewriteRefused> {
        self.replace_by_copy()?;
        if self.is_whole() { Ok(()) } else { Err(RewriteRefused) }
    }

    #[inline]
    pub(super) fn as_ptr(&self) -> *mut RawMbuf {
        self.0.as_ptr()
    }

    #[inline]
    pub(super) fn raw(&self) -> &RawMbuf {
        // SAFETY: `from_raw`'s caller gave us a valid mbuf, and other owners change only the
        // reference counts of shared segments, which are atomic.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(super) fn raw_mut(&mut self) -> &mut RawMbuf {
        // SAFETY: as in `raw`; we have the only handle.
        unsafe { self.0.as_mut() }
    }

    /// Returns the first segment's bytes for a change. Only for an exclusive segment.
    pub(super) fn front_mut(&mut self) -> &mut [u8] {
        let raw = self.raw_mut();
        // SAFETY: data_off + data_len lie within the buffer, which is ours alone (`has_own_buffer`).
        unsafe { std::slice::from_raw_parts_mut(raw.buf_addr.add(raw.data_off.into()), raw.data_len.into()) }
    }

    /// Makes the parts that a rewrite changes exclusive: the first segment's bytes, and with `cut` the other
    /// segments' lengths.
    pub(super) fn own(&mut self, cut: bool) -> Result<(), RewriteRefused> {
        let mut exclusive = has_own_buffer(self.raw());
        let mut segment = self.raw();
        while exclusive && cut && !segment.next.is_null() {
            // SAFETY: a chain's next pointers lead to valid segments.
            segment = unsafe { &*segment.next };
            exclusive = segment.refcnt.load(Ordering::Acquire) == 1;
        }
        if exclusive { Ok(()) } else { self.replace_by_copy() }
    }

    /// Puts a copy in the place of the packet, and frees that.
    #[cold]
    pub(super) fn replace_by_copy(&mut self) -> Result<(), RewriteRefused> {
        let dpdk = dpdk::dpdk().map_err(|_| RewriteRefused)?;
        let pool = self.raw().pool;
        // A pool for clones has no room for bytes; copying into it would never end.
        // SAFETY: an mbuf's pool is a packet pool and outlives it.
        if usize::from(unsafe { shim::p4s_pool_data_room(pool) }) < COPY_HEADROOM + FRONT {
            return Err(RewriteRefused);
        }
        // SAFETY: packet and pool are valid. The copy is ours; it has the flags and the metadata of
        // the original.
        let copy = NonNull::new(unsafe { (dpdk.rte_pktmbuf_copy)(self.0.as_ptr(), pool, 0, ALL) });
        free(dpdk, std::mem::replace(&mut self.0, copy.ok_or(RewriteRefused)?).as_ptr());
        Ok(())
    }

    /// Makes the place for the first `old_len` bytes `new_len` bytes long. The rest of the first
    /// segment moves if there is more room behind it than before it.
    pub(super) fn resize_head(&mut self, old_len: usize, new_len: usize) -> Result<(), RewriteRefused> {
        let raw = self.raw_mut();
        let (start, len, room) =
            (usize::from(raw.data_off), usize::from(raw.data_len), usize::from(raw.buf_len));
        let new_data_len = len - old_len + new_len;
        if new_data_len > room {
            return Err(RewriteRefused);
        }
        let in_place = (start + old_len).checked_sub(new_len);
        // As much headroom as there was or as a switch needs, whichever is less, if the tail has it.
        let wanted = start.min(KEEP_HEADROOM).min(room - new_data_len);
        let new_start = match in_place {
            Some(in_place) if in_place >= wanted => in_place,
            _ => wanted,
        };
        if Some(new_start) != in_place {
            // SAFETY: both ranges lie within the buffer, which is ours alone: source by the mbuf's
            // own lengths, destination since new_start + new_data_len <= room.
            unsafe {
                raw.buf_addr
                    .add(start + old_len)
                    .copy_to(raw.buf_addr.add(new_start + new_len), len - old_len);
            }
        }
        let longer = u16::try_from(new_data_len).map_err(|_| RewriteRefused)?;
        raw.data_off = u16::try_from(new_start).map_err(|_| RewriteRefused)?;
        raw.pkt_len = raw.pkt_len - u32::from(raw.data_len) + u32::from(longer);
        raw.data_len = longer;
        Ok(())
    }

    /// Cuts the packet to `total` bytes and frees the segments that are left empty.
    fn cut(&mut self, total: usize) -> Result<(), RewriteRefused> {
        let dpdk = dpdk::dpdk().map_err(|_| RewriteRefused)?;
        let (mut left, mut segments) = (total, 1_u16);
        let mut segment = self.raw_mut();
        while left > usize::from(segment.data_len) && !segment.next.is_null() {
            left -= usize::from(segment.data_len);
            segments += 1;
            // SAFETY: a chain's next pointers lead to valid segments, which are ours alone (`own`).
            segment = unsafe { &mut *segment.next };
        }
        // At most the segment's length, a u16: `total` is at most the packet's.
        segment.data_len = segment.data_len.min(u16::try_from(left).unwrap_or(u16::MAX));
        let rest = std::mem::replace(&mut segment.next, std::ptr::null_mut());
        if !rest.is_null() {
            free(dpdk, rest);
        }
        let raw = self.raw_mut();
        raw.nb_segs = segments;
        raw.pkt_len = u32::try_from(total).map_err(|_| RewriteRefused)?;
        Ok(())
    }

    /// [`Packet::replace_head`], of the packet as it is.
    pub(super) fn replace_front(
        &mut self,
        old_len: usize,
        new: &[u8],
        new_total_len: usize,
    ) -> Result<(), RewriteRefused> {
        let longest = self.len().checked_sub(old_len).map(|rest| rest + new.len());
        let fits = old_len <= self.bytes().len() && new.len() <= new_total_len;
        if !fits || longest.is_none_or(|longest| new_total_len > longest) {
            return Err(RewriteRefused);
        }
        let requests = Requests::of(self.raw().ol_flags, self.bytes())?;
        let cut = longest != Some(new_total_len);
        self.own(cut)?;
        if old_len > self.bytes().len() {
            return Err(RewriteRefused); // A copy has segments of another size.
        }
        self.resize_head(old_len, new.len())?;
        self.front_mut()[..new.len()].copy_from_slice(new);
        if cut {
            self.cut(new_total_len)?;
        }
        let (mut ol_flags, mut tx_offload) = (self.raw().ol_flags, self.raw().tx_offload);
        requests.settle(self.front_mut(), &mut ol_flags, &mut tx_offload)?;
        let raw = self.raw_mut();
        (raw.ol_flags, raw.tx_offload, raw.packet_type) = (ol_flags, tx_offload, 0);
        Ok(())
    }
}

impl Packet for Mbuf {
    #[inline]
    fn bytes(&self) -> &[u8] {
        let raw = self.raw();
        // SAFETY: data_off + data_len lie within the buffer, as the driver that received it promises.
        unsafe { std::slice::from_raw_parts(raw.buf_addr.add(raw.data_off.into()), raw.data_len.into()) }
    }

    #[inline]
    fn len(&self) -> usize {
        self.raw().pkt_len as usize
    }

    fn replace_head(
        &mut self,
        old_len: usize,
        new: &[u8],
        new_total_len: usize,
    ) -> Result<(), RewriteRefused> {
        if self.hidden() == 0 {
            self.replace_front(old_len, new, new_total_len)
        } else {
            self.replace_inside(old_len, new, new_total_len)
        }
    }
}

/// Returns whether a segment and its buffer have no other owner.
fn has_own_buffer(raw: &RawMbuf) -> bool {
    if raw.ol_flags & flags::INDIRECT != 0 || raw.refcnt.load(Ordering::Acquire) != 1 {
        return false;
    }
    if raw.ol_flags & flags::EXTERNAL == 0 {
        return true;
    }
    // SAFETY: shinfo of an mbuf with an external buffer is null or valid as long as the mbuf is.
    unsafe { raw.shinfo.as_ref() }.is_some_and(|shared| shared.refcnt.load(Ordering::Acquire) == 1)
}

/// Frees a packet, or the rest of one.
fn free(dpdk: &Dpdk, mut packet: *mut RawMbuf) {
    // SAFETY: the packet is ours and has no further user; one pointer is passed.
    unsafe { (dpdk.rte_pktmbuf_free_bulk)(&raw mut packet, 1) };
}
