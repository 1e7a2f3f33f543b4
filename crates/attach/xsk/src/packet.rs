//! A packet in the application's memory, as lanes see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use p4shield_mediator::{Packet, RewriteRefused};
use p4shield_xsk_relay::frames::UmemGeometry;
use p4shield_xsk_relay::relay::{FrameTable, RelayedPacket};

use crate::umem::Umem;

/// The application's packet memory, and who owns which frame of it.
#[derive(Debug)]
pub(crate) struct Memory {
    base: *mut u8,
    /// The owners.
    pub(crate) frames: Arc<FrameTable>,
    /// Who else may read it. With the last socket the application has its buffer back as it was.
    pub(crate) umem: Arc<Umem>,
    /// Whether a lane has what is refused counted.
    counted: Arc<AtomicBool>,
}

// SAFETY: the pointer is the application's memory, which belongs to no thread; bytes are reached through parcels, each of
// which is the one owner of its frame.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Memory that the kernel has accepted as `XDP_UMEM_REG`.
    ///
    /// # Safety
    /// `base` is the start of `geometry.len()` bytes that can be read and written until no [`UmemPacket`] is left; the
    /// application that unmaps them while its socket is open would crash without us, too.
    pub(crate) unsafe fn new(base: *mut u8, geometry: UmemGeometry, umem: Arc<Umem>) -> Self {
        Self { base, frames: Arc::new(FrameTable::new(geometry)), umem, counted: Arc::default() }
    }

    /// What counts the steps of frames that are refused from now on, for one lane at a time: sockets may share their memory.
    pub(crate) fn refused(&self) -> Option<impl Fn() -> u64 + Send + use<>> {
        let (frames, ring_id) = (Arc::clone(&self.frames), Counting::begin(&self.counted)?);
        Some(move || {
            let _ = &ring_id;
            frames.faults.total()
        })
    }

    fn geometry(&self) -> &UmemGeometry {
        self.frames.ledger.geometry()
    }
}

/// The one lane that counts; when it is gone another one may.
struct Counting(Arc<AtomicBool>);

impl Counting {
    fn begin(counted: &Arc<AtomicBool>) -> Option<Self> {
        (!counted.swap(true, Relaxed)).then(|| Self(Arc::clone(counted)))
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// A packet in the application's memory: a packet, and how to reach its bytes.
#[derive(Debug)]
pub(crate) struct UmemPacket {
    packet: RelayedPacket,
    /// Outlives the packet: whoever has a lane has the memory's `Arc` beside it, and drains the lane first.
    memory: *const Memory,
}

// SAFETY: `Memory` may be used from any thread, and lives as long as the packet.
unsafe impl Send for UmemPacket {}

impl UmemPacket {
    /// A packet of this memory.
    ///
    /// # Safety
    /// `memory` outlives the packet, and `packet` is of this memory.
    pub(crate) unsafe fn new(packet: RelayedPacket, memory: &Arc<Memory>) -> Self {
        Self { packet, memory: Arc::as_ptr(memory) }
    }

    /// The packet again.
    pub(crate) fn into_relayed(self) -> RelayedPacket {
        self.packet
    }

    fn memory(&self) -> &Memory {
        // SAFETY: it outlives the packet, says `new`.
        unsafe { &*self.memory }
    }

    /// Replaces the first `old` bytes by `new`, keeps as much of the rest as makes `total`, all in one buffer.
    fn replace(&mut self, old: usize, new: &[u8], total: usize) -> Result<(), RewriteRefused> {
        let bytes = self.packet.bytes();
        let (first, room) = ((bytes.end - bytes.start) as usize, self.packet.frame_range().clone());
        // What the interface is told about a packet counts from its first byte.
        if self.packet.has_tx_metadata() && new.len() != old {
            return Err(RewriteRefused);
        }
        // What stands in further buffers is neither moved nor cut.
        let kept_whole =
            (self.packet.len() as usize).checked_sub(old).map(|rest| rest + new.len()) == Some(total);
        if old > first || (self.packet.is_multi_buffer() && !kept_whole) {
            return Err(RewriteRefused);
        }
        let behind = self.packet.len() as usize - first;
        let rest =
            total.checked_sub(behind + new.len()).filter(|&n| n <= first - old).ok_or(RewriteRefused)?;
        let rest_at = bytes.start + old as u64;
        // In front of the rest if there is room, which moves no payload; else the rest moves back.
        let start = rest_at.saturating_sub(new.len() as u64).max(room.start);
        let end = start + (new.len() + rest) as u64;
        let memory = self.memory();
        let (base, geometry) = (memory.base, *memory.geometry());
        if !self.packet.set_bytes(&geometry, start..end) {
            return Err(RewriteRefused);
        }
        // SAFETY: both ranges lie within the packet's room (`set_bytes` and the ledger say so), whose one owner it is.
        unsafe {
            let to = base.add(start as usize);
            std::ptr::copy(base.add(rest_at as usize), to.add(new.len()), rest);
            std::ptr::copy_nonoverlapping(new.as_ptr(), to, new.len());
        }
        Ok(())
    }
}

impl Packet for UmemPacket {
    #[inline]
    fn bytes(&self) -> &[u8] {
        let bytes = self.packet.bytes();
        // SAFETY: within the memory, says the ledger. While the packet is with us neither the kernel nor the application
        // has its frame; an application that writes to it all the same gets other verdicts for its own packet.
        unsafe {
            std::slice::from_raw_parts(
                self.memory().base.add(bytes.start as usize),
                (bytes.end - bytes.start) as usize,
            )
        }
    }

    #[inline]
    fn len(&self) -> usize {
        self.packet.len() as usize
    }

    fn replace_head(
        &mut self,
        old_len: usize,
        new: &[u8],
        new_total_len: usize,
    ) -> Result<(), RewriteRefused> {
        self.replace(old_len, new, new_total_len)
    }
}

#[cfg(test)]
mod tests;
