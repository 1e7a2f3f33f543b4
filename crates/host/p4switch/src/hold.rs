//! Packet threads receive nothing while the first one changes the program that they share. So none of their
//! packets waits for an answer meanwhile, which would mean nothing to another program.

use crate::desk::Desk;
use crate::order::{Threads, Work};
use std::sync::PoisonError;
use std::time::Duration;

/// Longest time in which a thread receives nothing, also if the desk has ended.
const LONGEST: Duration = Duration::from_secs(1);

/// Threads beside the first that receive nothing. They go on when it is dropped.
pub(crate) struct Held<'a>(&'a Threads);

impl Desk {
    /// Holds the threads beside the first; `None` if there is none, or the program has no compartment.
    pub(crate) fn hold(&self) -> Option<Held<'_>> {
        let calls = self.functions.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        (calls && self.threads.count() > 1).then(|| {
            let held = Held(&self.threads);
            held.each(LONGEST);
            held
        })
    }
}

impl Held<'_> {
    fn each(&self, time: Duration) {
        for thread in 1..self.0.count() {
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
