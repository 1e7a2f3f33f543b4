//! The gate between a reload and a supervisor whose P4 VM may hang: either the supervisor begins in time, or
//! the reload goes on without it.

use std::sync::atomic::{AtomicU8, Ordering};

const WAITING: u8 = 0;
const BEGUN: u8 = 1;
const GIVEN_UP: u8 = 2;

/// The first to pass decides.
#[derive(Debug, Default)]
pub(crate) struct Gate(AtomicU8);

impl Gate {
    /// The supervisor begins. Returns false if the reload has given it up.
    pub(crate) fn begin(&self) -> bool {
        self.pass(BEGUN)
    }

    /// The reload gives the supervisor up. Returns false if it has begun.
    pub(crate) fn give_up(&self) -> bool {
        self.pass(GIVEN_UP)
    }

    fn pass(&self, state: u8) -> bool {
        self.0.compare_exchange(WAITING, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}
