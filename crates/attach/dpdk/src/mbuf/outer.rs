//! Packets that came through a tunnel: a program judges the one inside, and the whole goes on.
//!
//! While a lane holds such a packet, its outer headers are *hidden*: the data begins behind them,
//! and they stay where they are in the buffer. The number of hidden bytes is in the mbuf itself, in
//! a dynamic field and flag that DPDK registers (`rte_mbuf_dyn.h`), since a packet's handle has no
//! room for it. A rewrite of what is inside restores the headers, updates them and hides them
//! again.

use super::layout::{DYN_NAME_BYTES, DynField, DynFlag, RawMbuf, flags};
use super::packet::Mbuf;
use crate::dpdk::{self, Dpdk};
use p4shield_frame::Sum;
use p4shield_frame::tunnel::{InnerChange, Outer};
use p4shield_mediator::{Packet, RewriteRefused};
use std::ffi::{CStr, c_char};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// The name of field and flag in DPDK's lists.
const NAME: &CStr = c"p4shield_outer";
/// The dynamic field and flag of mbufs that DPDK registered.
#[derive(Clone, Copy, Debug)]
struct Marks {
    /// Outer headers are hidden, and `field` is valid.
    flag: u64,
    /// Offset in an mbuf of the number of hidden bytes, a `u16`.
    field: usize,
}

static MARKS: OnceLock<Option<Marks>> = OnceLock::new();

impl Marks {
    /// Registers them, once DPDK runs. None if no bytes or flags are left.
    fn register(dpdk: &Dpdk) -> Option<Self> {
        let name = dynamic_name(NAME);
        let field = DynField { name, size: size_of::<u16>(), align: align_of::<u16>(), flags: 0 };
        let flag = DynFlag { name, flags: 0 };
        // SAFETY: both are what the functions take, terminated names and all.
        let (field, flag) = unsafe {
            (
                (dpdk.rte_mbuf_dynfield_register)(&raw const field),
                (dpdk.rte_mbuf_dynflag_register)(&raw const flag),
            )
        };
        Some(Self {
            field: usize::try_from(field).ok()?,
            flag: 1_u64.checked_shl(u32::try_from(flag).ok()?)?,
        })
    }
}

/// Returns a name as DPDK takes it.
pub(super) fn dynamic_name(name: &CStr) -> [c_char; DYN_NAME_BYTES] {
    let mut bytes = [0; DYN_NAME_BYTES];
    for (to, from) in bytes.iter_mut().zip(name.to_bytes()) {
        *to = from.cast_signed();
    }
    bytes
}

/// Registers the field and flag that hiding needs. False if DPDK has none left.
pub(crate) fn prepare(dpdk: &Dpdk) -> bool {
    MARKS.get_or_init(|| Marks::register(dpdk)).is_some()
}

impl Mbuf {
    /// Returns the bytes of outer headers that are hidden; 0 if none are.
    #[must_use]
    pub fn hidden(&self) -> usize {
        let Some(marks) = MARKS.get().copied().flatten() else { return 0 };
        if self.raw().ol_flags & marks.flag == 0 {
            return 0;
        }
        // SAFETY: DPDK registered an aligned u16 at this offset of every mbuf.
        unsafe { usize::from(field(self.as_ptr(), marks).read()) }
    }

    /// Hides the first `outer` bytes, which are in the first segment.
    ///
    /// # Errors
    /// They are not, the mbuf is shared and there is no memory for a copy, or DPDK registered no field.
    pub fn hide(&mut self, outer: usize) -> Result<(), RewriteRefused> {
        let dpdk = dpdk::dpdk().map_err(|_| RewriteRefused)?;
        let marks = MARKS.get_or_init(|| Marks::register(dpdk)).ok_or(RewriteRefused)?;
        if self.raw().refcnt.load(Ordering::Acquire) != 1 {
            self.replace_by_copy()?;
        }
        let hidden = u16::try_from(outer).map_err(|_| RewriteRefused)?;
        let raw = self.raw_mut();
        let data_len = raw.data_len.checked_sub(hidden).ok_or(RewriteRefused)?;
        (raw.data_len, raw.data_off) = (data_len, raw.data_off + hidden);
        raw.pkt_len -= u32::from(hidden);
        raw.ol_flags |= marks.flag;
        // SAFETY: as in `hidden`, and the mbuf is ours alone.
        unsafe { field(self.as_ptr(), marks).write(hidden) };
        Ok(())
    }

    /// Restores hidden headers.
    pub fn show(&mut self) {
        let hidden = self.hidden() as u16;
        let Some(marks) = MARKS.get().copied().flatten().filter(|_| hidden != 0) else { return };
        let raw = self.raw_mut();
        // What `hide` subtracted.
        raw.data_off -= hidden;
        raw.data_len += hidden;
        raw.pkt_len += u32::from(hidden);
        raw.ol_flags &= !marks.flag;
    }

    /// Replaces the head of the packet inside, and updates the headers around it.
    pub(super) fn replace_inside(
        &mut self,
        old_len: usize,
        new: &[u8],
        new_total_len: usize,
    ) -> Result<(), RewriteRefused> {
        // A device that completes a checksum would do it for the outer headers, and needs the inner
        // ones unchanged.
        let undone = self.raw().ol_flags & flags::RX_L4_CKSUM_MASK == flags::RX_L4_CKSUM_MASK;
        if undone || self.raw().ol_flags & flags::TX_ANY != 0 {
            return Err(RewriteRefused);
        }
        let (inner_len, hidden) = (self.len(), self.hidden());
        let kept = new_total_len.checked_sub(new.len()).ok_or(RewriteRefused)?;
        let old_head = self.bytes().get(..old_len).ok_or(RewriteRefused)?;
        let change = InnerChange {
            old_head,
            new_head: new,
            old_len: inner_len,
            new_len: new_total_len,
            cut: self.sum_behind(old_len + kept),
        };
        let mut outer = Outer::new(self.hidden_bytes(), hidden).map_err(|_| RewriteRefused)?;
        outer.update(&change).map_err(|_| RewriteRefused)?;
        self.show();
        self.replace_front(hidden + old_len, new, new_total_len)?;
        self.replace_front(0, outer.bytes(), hidden + new_total_len)?;
        self.hide(hidden)
    }

    /// Returns the headers that are hidden.
    pub(crate) fn hidden_bytes(&self) -> &[u8] {
        let (raw, hidden) = (self.raw(), self.hidden());
        // SAFETY: `hide` left them there, before the data.
        unsafe { std::slice::from_raw_parts(raw.buf_addr.add(usize::from(raw.data_off) - hidden), hidden) }
    }

    /// Sums the bytes from here on, the first of them at an even offset.
    fn sum_behind(&self, from: usize) -> Sum {
        let (mut sum, mut at, mut segment) = (Sum::default(), 0, Some(self.raw()));
        while let Some(raw) = segment {
            let len = usize::from(raw.data_len);
            let skip = from.saturating_sub(at).min(len);
            // SAFETY: data_off + data_len lie within the buffer of each segment.
            let bytes = unsafe {
                std::slice::from_raw_parts(raw.buf_addr.add(usize::from(raw.data_off) + skip), len - skip)
            };
            sum = sum + Sum::of(bytes).at((at + skip).abs_diff(from));
            at += len;
            // SAFETY: a chain's next pointers lead to valid segments, or are null.
            segment = unsafe { raw.next.as_ref() };
        }
        sum
    }
}

/// Returns the dynamic field of an mbuf.
fn field(mbuf: *mut RawMbuf, marks: Marks) -> *mut u16 {
    mbuf.cast::<u8>().wrapping_add(marks.field).cast()
}
