//! The frames of one UMEM, and the counts of refused transitions.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use p4shield_afxdp::ring::{Entry, Producer};

use crate::frames::{FrameFault, Ledger, RingRegistry, UmemGeometry, write_counts};

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

/// Writes the counts above zero, for logs.
impl fmt::Display for FaultCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let causes =
            [("application", &self.application), ("kernel", &self.kernel), ("verdict", &self.verdict)];
        write_counts(f, causes.map(|(cause, n)| (cause, n.load(Relaxed))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::OwnerCounts;

    #[test]
    fn counts_in_logs_are_words_and_numbers() {
        let counts = OwnerCounts { application: 3, kernel_transmit: 7, ..OwnerCounts::default() };
        assert_eq!(counts.to_string(), "application 3, kernel to send 7");
        let faults = FaultCounters::default();
        assert_eq!(faults.to_string(), "none");
        faults.kernel.store(2, Relaxed);
        assert_eq!(faults.to_string(), "kernel 2");
    }
}
