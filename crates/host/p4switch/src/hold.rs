//! Packet threads receive nothing while their program or its functions change. So no packet waits for an
//! answer meanwhile, which would mean nothing to another program.

use crate::desk::Desk;
use crate::order::{Threads, Work};
use std::sync::PoisonError;
use std::time::Duration;

/// Longest time in which a thread receives nothing, also if the desk has ended.
const LONGEST: Duration = Duration::from_secs(1);

/// Threads that receive nothing. They go on when it is dropped.
pub(crate) struct Held<'a>(&'a Threads);

impl Desk {
    /// Holds the threads; `None` if the switch was started without a compartment for functions.
    pub(crate) fn hold(&self) -> Option<Held<'_>> {
        self.apart.lock().unwrap_or_else(PoisonError::into_inner).is_some().then(|| {
            let held = Held(&self.threads);
            held.each(LONGEST);
            held
        })
    }
}

impl Held<'_> {
    fn each(&self, time: Duration) {
        for thread in 0..self.0.count() {
            // One that does not answer in time loses the packets that wait.
            let _ = self.0.execute_on(thread, Work::Hold(time));
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.each(Duration::ZERO);
    }
}
