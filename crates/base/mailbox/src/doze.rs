//! A flag by which a thread sleeps without missing what another one queues for it.
//!
//! The thread sets it and then looks into its queues; another one queues something and then looks at the
//! flag. A fence between both steps of each lets at least one of them see what the other did. So it works for
//! any queue.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// The flag of a thread.
#[derive(Debug, Default)]
pub struct Doze(AtomicBool);

impl Doze {
    /// Announces that the thread is about to sleep. It sleeps only if it finds its queues empty afterwards.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Ends the announcement. Returns true if there was one: a thread that has queued something before this
    /// call then rings the sleeping one's bell.
    #[must_use]
    pub fn end(&self) -> bool {
        fence(Ordering::SeqCst);
        // Most of the time nothing is written to the line, which the threads share.
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}
