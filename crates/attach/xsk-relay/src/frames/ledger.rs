//! The owner of every frame, and the transitions between owners.

use std::fmt;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::geometry::{FrameAddress, UmemGeometry};
use super::record::{FrameOwner, FrameRecord, FrameState};
use super::rings::{RingHistory, RingId, RingView};
use crate::sync::AtomicU64;

/// A transition that the ledger refused. The frame keeps its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameFault {
    /// The application wrote an address outside every frame to a ring.
    #[error("the application used address {0:#x}, which is outside every frame")]
    ApplicationAddress(u64),
    /// The application filled or sent a frame that it does not own.
    #[error("the application used frame {frame}, which {owner:?} owns")]
    NotOwnedByApplication {
        /// Number of the frame.
        frame: u32,
        /// Its owner.
        owner: FrameOwner,
    },
    /// The kernel wrote an address outside every frame to a ring.
    #[error("the kernel used address {0:#x}, which is outside every frame")]
    KernelAddress(u64),
    /// The kernel received into or completed a frame that it does not own, or one of another queue.
    #[error("the kernel used frame {frame}, which {owner:?} owns")]
    NotOwnedByKernel {
        /// Number of the frame.
        frame: u32,
        /// Its owner.
        owner: FrameOwner,
    },
    /// A verdict was applied to a frame that is not held for one.
    #[error("a verdict was applied to frame {frame}, which {owner:?} owns")]
    NotHeld {
        /// Number of the frame.
        frame: u32,
        /// Its owner.
        owner: FrameOwner,
    },
}

/// The number of frames of each owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerCounts {
    /// [`FrameOwner::Application`].
    pub application: u32,
    /// [`FrameOwner::Fill`].
    pub fill: u32,
    /// [`FrameOwner::KernelReceive`].
    pub kernel_receive: u32,
    /// [`FrameOwner::P4Vm`].
    pub p4vm: u32,
    /// [`FrameOwner::ReceiveRing`].
    pub receive_ring: u32,
    /// [`FrameOwner::KernelTransmit`].
    pub kernel_transmit: u32,
    /// [`FrameOwner::Completion`].
    pub completion: u32,
}

impl OwnerCounts {
    /// Returns the number of all frames.
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.application
            + self.fill
            + self.kernel_receive
            + self.p4vm
            + self.receive_ring
            + self.kernel_transmit
            + self.completion
    }
}

/// Writes the owners that have frames, for logs.
impl fmt::Display for OwnerCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owners = [
            ("application", self.application),
            ("fill ring", self.fill),
            ("kernel to receive", self.kernel_receive),
            ("P4 VM", self.p4vm),
            ("receive ring", self.receive_ring),
            ("kernel to send", self.kernel_transmit),
            ("completion ring", self.completion),
        ];
        write_counts(f, owners.map(|(owner, frames)| (owner, u64::from(frames))))
    }
}

/// Writes the counts above zero with their names; `none` if there are none.
pub(crate) fn write_counts<const N: usize>(
    f: &mut fmt::Formatter<'_>,
    counts: [(&str, u64); N],
) -> fmt::Result {
    let mut separator = "";
    for (name, n) in counts.into_iter().filter(|(_, n)| *n > 0) {
        write!(f, "{separator}{name} {n}")?;
        separator = ", ";
    }
    if separator.is_empty() { f.write_str("none") } else { Ok(()) }
}

/// The owners of the frames of one UMEM; see [the module](super).
///
/// Several threads, one for each ring, may race to take the same frame from the application; one of them
/// wins. A frame that the kernel owns, or that waits for a verdict, belongs to one ring and is changed
/// by that ring's thread alone.
#[derive(Debug)]
pub struct Ledger {
    geometry: UmemGeometry,
    records: Box<[AtomicU64]>,
}

impl Ledger {
    /// Creates a ledger in which the application owns every frame.
    #[must_use]
    pub fn new(geometry: UmemGeometry) -> Self {
        let records =
            (0..geometry.frame_count()).map(|_| AtomicU64::new(FrameRecord::APPLICATION.pack())).collect();
        Self { geometry, records }
    }

    /// Returns the geometry of the UMEM.
    #[must_use]
    pub const fn geometry(&self) -> &UmemGeometry {
        &self.geometry
    }

    /// Application → fill ring `ring_id`. Returns the frame number.
    ///
    /// # Errors
    /// [`FrameFault::ApplicationAddress`], [`FrameFault::NotOwnedByApplication`].
    pub fn fill(
        &self,
        address: u64,
        ring_id: RingId,
        history: &RingHistory,
        view: &RingView,
    ) -> Result<u32, FrameFault> {
        let at = self.geometry.locate(address).ok_or(FrameFault::ApplicationAddress(address))?;
        let record = self.claimable(at.frame, view)?;
        // The position in the ring is known only after the claim succeeds, so the claim stores position 0.
        let state = FrameRecord { kind: FrameState::Fill, ring_id, start: at.start, value: 0 };
        self.claim(at.frame, record, state, view)?;
        let value = history.record(at.frame);
        self.set(at.frame, FrameRecord { value, ..state });
        Ok(at.frame)
    }

    /// Kernel receive → P4 VM: the kernel received a packet into a frame from fill ring `ring_id`.
    ///
    /// # Errors
    /// [`FrameFault::KernelAddress`], [`FrameFault::NotOwnedByKernel`].
    pub fn received(&self, address: u64, len: u32, ring_id: RingId) -> Result<u32, FrameFault> {
        let at = self.geometry.locate(address).ok_or(FrameFault::KernelAddress(address))?;
        let state = self.get(at.frame);
        if state.kind != FrameState::Fill || state.ring_id != ring_id {
            return Err(FrameFault::NotOwnedByKernel { frame: at.frame, owner: self.recorded_owner(state) });
        }
        if self.geometry.packet_start(address, len).is_none() {
            return Err(FrameFault::KernelAddress(address));
        }
        self.set(at.frame, FrameRecord { kind: FrameState::HeldReceive, ..state });
        Ok(at.frame)
    }

    /// P4 VM → the application's receive ring `ring_id`: the packet passed.
    ///
    /// # Errors
    /// [`FrameFault::NotHeld`].
    pub fn deliver(&self, frame: u32, ring_id: RingId, history: &RingHistory) -> Result<(), FrameFault> {
        let state = self.held(frame, FrameState::HeldReceive)?;
        let value = history.record(frame);
        self.set(frame, FrameRecord { kind: FrameState::ReceiveRing, ring_id, value, ..state });
        Ok(())
    }

    /// P4 VM → fill ring: the received packet was dropped. Returns the address to push to the fill ring.
    ///
    /// # Errors
    /// [`FrameFault::NotHeld`].
    pub fn recycle(&self, frame: u32, history: &RingHistory) -> Result<u64, FrameFault> {
        let state = self.held(frame, FrameState::HeldReceive)?;
        let value = history.record(frame);
        self.set(frame, FrameRecord { kind: FrameState::Fill, value, ..state });
        Ok(self.geometry.frame_start(FrameAddress { frame, start: state.start, offset: 0 }))
    }

    /// Application → P4 VM: the application sends a packet on the queue whose completion ring is `ring_id`.
    ///
    /// # Errors
    /// [`FrameFault::ApplicationAddress`], [`FrameFault::NotOwnedByApplication`].
    pub fn send(&self, address: u64, len: u32, ring_id: RingId, view: &RingView) -> Result<u32, FrameFault> {
        let at = self.geometry.locate(address).ok_or(FrameFault::ApplicationAddress(address))?;
        if self.geometry.packet_start(address, len).is_none() {
            return Err(FrameFault::ApplicationAddress(address));
        }
        let record = self.claimable(at.frame, view)?;
        let state = FrameRecord {
            kind: FrameState::HeldTransmit,
            ring_id,
            start: at.start,
            value: u32::from(at.offset),
        };
        self.claim(at.frame, record, state, view)?;
        Ok(at.frame)
    }

    /// P4 VM → kernel transmit: the packet passed.
    ///
    /// # Errors
    /// [`FrameFault::NotHeld`].
    pub fn transmit(&self, frame: u32) -> Result<(), FrameFault> {
        let state = self.held(frame, FrameState::HeldTransmit)?;
        self.set(frame, FrameRecord { kind: FrameState::KernelTransmit, ..state });
        Ok(())
    }

    /// Kernel transmit → completion ring `ring_id`. Returns the address that the application sent.
    ///
    /// # Errors
    /// [`FrameFault::KernelAddress`], [`FrameFault::NotOwnedByKernel`].
    pub fn completed(&self, address: u64, ring_id: RingId, history: &RingHistory) -> Result<u64, FrameFault> {
        let at = self.geometry.locate(address).ok_or(FrameFault::KernelAddress(address))?;
        let state = self.get(at.frame);
        if state.kind != FrameState::KernelTransmit || state.ring_id != ring_id {
            return Err(FrameFault::NotOwnedByKernel { frame: at.frame, owner: self.recorded_owner(state) });
        }
        Ok(self.complete(at.frame, state, history))
    }

    /// P4 VM → completion ring: the packet was dropped. Returns the address that the application sent.
    ///
    /// # Errors
    /// [`FrameFault::NotHeld`].
    pub fn complete_dropped(&self, frame: u32, history: &RingHistory) -> Result<u64, FrameFault> {
        let state = self.held(frame, FrameState::HeldTransmit)?;
        Ok(self.complete(frame, state, history))
    }

    /// Records a completion entry for a refused packet, whose frame keeps its owner.
    pub fn record_refused(history: &RingHistory) {
        history.record_foreign();
    }

    /// Returns to the application every frame of a ring whose socket is closed, since the kernel no
    /// longer writes to these frames. Returns their number.
    pub fn reclaim(&self, ring_id: RingId) -> u32 {
        let mut taken = 0;
        for record in &self.records {
            let now = record.load(Acquire);
            let state = FrameRecord::unpack(now);
            if state.kind != FrameState::Application && state.ring_id == ring_id {
                let _ = record.compare_exchange(now, FrameRecord::APPLICATION.pack(), AcqRel, Relaxed);
                taken += 1;
            }
        }
        taken
    }

    /// Returns the owner of a frame.
    ///
    /// # Panics
    /// If `frame` is not below the number of frames.
    #[must_use]
    pub fn owner(&self, frame: u32, view: &RingView) -> FrameOwner {
        let state = self.get(frame);
        let in_ring = || view.contains(state.ring_id, state.value, frame);
        match state.kind {
            FrameState::Fill if !in_ring() => FrameOwner::KernelReceive,
            FrameState::ReceiveRing | FrameState::Completion if !in_ring() => FrameOwner::Application,
            _ => self.recorded_owner(state),
        }
    }

    /// Counts the frames of each owner over the whole ledger.
    #[must_use]
    pub fn owner_counts(&self, view: &RingView) -> OwnerCounts {
        let mut owner_counts = OwnerCounts::default();
        for frame in 0..self.geometry.frame_count() {
            *match self.owner(frame, view) {
                FrameOwner::Application => &mut owner_counts.application,
                FrameOwner::Fill => &mut owner_counts.fill,
                FrameOwner::KernelReceive => &mut owner_counts.kernel_receive,
                FrameOwner::P4Vm => &mut owner_counts.p4vm,
                FrameOwner::ReceiveRing => &mut owner_counts.receive_ring,
                FrameOwner::KernelTransmit => &mut owner_counts.kernel_transmit,
                FrameOwner::Completion => &mut owner_counts.completion,
            } += 1;
        }
        owner_counts
    }

    fn complete(&self, frame: u32, state: FrameRecord, history: &RingHistory) -> u64 {
        let address = self.geometry.address(state.address(frame));
        let value = history.record(frame);
        self.set(frame, FrameRecord { kind: FrameState::Completion, value, ..state });
        address
    }

    /// Returns the record of a frame that the application may use: one that it owns, or one in its
    /// receive or completion ring. As with the kernel, the application may use an entry before it
    /// advances the consumer index.
    fn claimable(&self, frame: u32, view: &RingView) -> Result<u64, FrameFault> {
        let record = self.records[frame as usize].load(Acquire);
        let state = FrameRecord::unpack(record);
        let usable = match state.kind {
            FrameState::Application | FrameState::ReceiveRing | FrameState::Completion => true,
            FrameState::Fill
            | FrameState::HeldReceive
            | FrameState::HeldTransmit
            | FrameState::KernelTransmit => false,
        };
        if usable {
            Ok(record)
        } else {
            Err(FrameFault::NotOwnedByApplication { frame, owner: self.owner(frame, view) })
        }
    }

    /// Takes a frame from the application, unless another thread took it first.
    fn claim(&self, frame: u32, record: u64, to: FrameRecord, view: &RingView) -> Result<(), FrameFault> {
        let claimed = self.records[frame as usize].compare_exchange(record, to.pack(), AcqRel, Relaxed);
        claimed
            .map(drop)
            .map_err(|_| FrameFault::NotOwnedByApplication { frame, owner: self.owner(frame, view) })
    }

    /// Returns the record of a frame that waits for a verdict.
    fn held(&self, frame: u32, kind: FrameState) -> Result<FrameRecord, FrameFault> {
        let state = self.get(frame);
        if state.kind == kind {
            Ok(state)
        } else {
            Err(FrameFault::NotHeld { frame, owner: self.recorded_owner(state) })
        }
    }

    fn get(&self, frame: u32) -> FrameRecord {
        FrameRecord::unpack(self.records[frame as usize].load(Acquire))
    }

    fn set(&self, frame: u32, state: FrameRecord) {
        self.records[frame as usize].store(state.pack(), Release);
    }

    /// Returns the owner that the record names, without checking the ring's consumer index.
    const fn recorded_owner(&self, state: FrameRecord) -> FrameOwner {
        match state.kind {
            FrameState::Application => FrameOwner::Application,
            FrameState::Fill => FrameOwner::Fill,
            FrameState::HeldReceive | FrameState::HeldTransmit => FrameOwner::P4Vm,
            FrameState::ReceiveRing => FrameOwner::ReceiveRing,
            FrameState::KernelTransmit => FrameOwner::KernelTransmit,
            FrameState::Completion => FrameOwner::Completion,
        }
    }
}
