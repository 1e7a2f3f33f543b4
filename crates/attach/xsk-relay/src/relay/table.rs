//! The frames of one UMEM, and the counts of refused transitions.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use p4shield_afxdp::ring::{Entry, Producer};

use crate::frames::{FrameFault, Ledger, RingRegistry, UmemGeometry};

/// The frames of one UMEM, shared by all pumps that move them.
#[derive(Debug)]
pub struct FrameTable {
    /// The owner of each frame.
    pub ledger: Ledger,
    /// The rings of all sockets on this UMEM.
    pub registry: RingRegistry,
    /// The refused transitions.
    pub faults: FaultCounters,
}

impl FrameTable {
    /// Creates a table in which the application owns every frame.
    #[must_use]
    pub fn new(geometry: UmemGeometry) -> Self {
        Self {
            ledger: Ledger::new(geometry),
            registry: RingRegistry::default(),
            faults: FaultCounters::default(),
        }
    }

    /// Pushes the entry that a transition of a frame gives to `ring`, which has room. Counts a refused
    /// transition. Returns whether it pushed.
    #[inline]
    pub(super) fn push<T: Entry>(&self, ring: &mut Producer<T>, entry: Result<T, FrameFault>) -> bool {
        match entry {
            Ok(entry) => {
                let pushed = ring.push(entry);
                debug_assert!(pushed, "there was room");
                true
            }
            Err(fault) => {
                self.faults.count(fault);
                false
            }
        }
    }
}

/// Counts refused transitions by the party that caused them.
#[derive(Debug, Default)]
pub struct FaultCounters {
    /// Caused by the application.
    pub application: AtomicU64,
    /// Caused by the kernel.
    pub kernel: AtomicU64,
    /// Caused by a verdict.
    pub verdict: AtomicU64,
}

impl FaultCounters {
    pub(crate) fn count(&self, fault: FrameFault) {
        let counter = match fault {
            FrameFault::ApplicationAddress(_) | FrameFault::NotOwnedByApplication { .. } => &self.application,
            FrameFault::KernelAddress(_) | FrameFault::NotOwnedByKernel { .. } => &self.kernel,
            FrameFault::NotHeld { .. } => &self.verdict,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// Returns the sum of all counts.
    #[must_use]
    pub fn total(&self) -> u64 {
        [&self.application, &self.kernel, &self.verdict].iter().map(|c| c.load(Relaxed)).sum()
    }
}
