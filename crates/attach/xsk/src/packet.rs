//! A packet in the application's UMEM, as lanes see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use p4shield_mediator::{Packet, RewriteRefused};
use p4shield_xsk_relay::frames::UmemGeometry;
use p4shield_xsk_relay::relay::{FrameTable, RelayedPacket};

use crate::umem::RegisteredUmem;

/// The application's UMEM, and the owners of its frames.
#[derive(Debug)]
pub(crate) struct ApplicationMemory {
    base: *mut u8,
    /// The owners of the frames.
    pub(crate) frames: Arc<FrameTable>,
    /// The P4 VM that may read the memory. Dropping it makes the application's buffer private again.
    pub(crate) umem: Arc<RegisteredUmem>,
    /// Whether a lane reports the count of refused transitions.
    counted: Arc<AtomicBool>,
}

// SAFETY: the pointer is to the application's memory, which belongs to no thread. Its bytes are reached
// through relayed packets, each of which is the only owner of its frame.
unsafe impl Send for ApplicationMemory {}
// SAFETY: as above.
unsafe impl Sync for ApplicationMemory {}

impl ApplicationMemory {
    /// Describes a UMEM that the kernel has accepted (`XDP_UMEM_REG`).
    ///
    /// # Safety
    /// `base` is the start of `geometry.len()` readable and writable bytes, until the last
    /// [`UmemPacket`] is dropped. An application that unmaps them while its socket is open would crash
    /// without this library, too.
    pub(crate) unsafe fn new(base: *mut u8, geometry: UmemGeometry, umem: Arc<RegisteredUmem>) -> Self {
        Self { base, frames: Arc::new(FrameTable::new(geometry)), umem, counted: Arc::default() }
    }

    /// Returns a reader of the count of refused transitions, for one lane at a time: sockets may share a
    /// UMEM.
    pub(crate) fn claim_refused_count(&self) -> Option<impl Fn() -> u64 + Send + use<>> {
        let (frames, claim) = (Arc::clone(&self.frames), RefusedCountClaim::new(&self.counted)?);
        Some(move || {
            let _ = &claim;
            frames.faults.total()
        })
    }

    fn geometry(&self) -> &UmemGeometry {
        self.frames.ledger.geometry()
    }
}

/// The right to report the count, which another lane may claim after a drop.
struct RefusedCountClaim(Arc<AtomicBool>);

impl RefusedCountClaim {
    fn new(counted: &Arc<AtomicBool>) -> Option<Self> {
        (!counted.swap(true, Relaxed)).then(|| Self(Arc::clone(counted)))
    }
}

impl Drop for RefusedCountClaim {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// A relayed packet, and the memory that its bytes are in.
#[derive(Debug)]
pub(crate) struct UmemPacket {
    packet: RelayedPacket,
    /// Outlives the packet: the owner of a lane keeps the memory's `Arc` beside it and drains the lane
    /// first.
    memory: *const ApplicationMemory,
}

// SAFETY: `ApplicationMemory` may be used from any thread and outlives the packet.
unsafe impl Send for UmemPacket {}

impl UmemPacket {
    /// Describes a packet in `memory`.
    ///
    /// # Safety
    /// `memory` outlives the packet, and `packet` is in it.
    pub(crate) unsafe fn new(packet: RelayedPacket, memory: &Arc<ApplicationMemory>) -> Self {
        Self { packet, memory: Arc::as_ptr(memory) }
    }

    /// Returns the relayed packet.
    pub(crate) fn into_relayed(self) -> RelayedPacket {
        self.packet
    }

    fn memory(&self) -> &ApplicationMemory {
        // SAFETY: the caller of `new` promised that it outlives the packet.
        unsafe { &*self.memory }
    }

    /// Replaces the first `old` bytes by `new` and keeps as many of the remaining bytes as make `total`.
    /// The replaced bytes must lie in the first buffer.
    fn replace(&mut self, old: usize, new: &[u8], total: usize) -> Result<(), RewriteRefused> {
        let bytes = self.packet.bytes();
        let (first, room) = ((bytes.end - bytes.start) as usize, self.packet.frame_range().clone());
        // Transmit metadata refers to offsets from the packet's first byte.
        if self.packet.has_tx_metadata() && new.len() != old {
            return Err(RewriteRefused);
        }
        // The bytes of further buffers can be neither moved nor truncated.
        let kept_whole =
            (self.packet.len() as usize).checked_sub(old).map(|rest| rest + new.len()) == Some(total);
        if old > first || (self.packet.is_multi_buffer() && !kept_whole) {
            return Err(RewriteRefused);
        }
        let behind = self.packet.len() as usize - first;
        let rest =
            total.checked_sub(behind + new.len()).filter(|&n| n <= first - old).ok_or(RewriteRefused)?;
        let rest_at = bytes.start + old as u64;
        // If there is headroom, `new` grows into it and no payload moves; otherwise the payload moves
        // back.
        let start = rest_at.saturating_sub(new.len() as u64).max(room.start);
        let end = start + (new.len() + rest) as u64;
        let memory = self.memory();
        let (base, geometry) = (memory.base, *memory.geometry());
        if !self.packet.set_bytes(&geometry, start..end) {
            return Err(RewriteRefused);
        }
        // SAFETY: both ranges lie within the packet's frame (`set_bytes` and the ledger checked them),
        // of which it is the only owner.
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
        // SAFETY: the ledger checked that the range is within the memory. While the packet is held,
        // neither the kernel nor an honest application writes to its frame. An application that does
        // write changes only the verdicts of its own packets.
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
