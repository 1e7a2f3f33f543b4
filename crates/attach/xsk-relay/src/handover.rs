//! Mutual exclusion for a ring that several threads want to move, without waiting.
//!
//! A ring is moved by any thread of the application that makes a system call for it, or by the drain
//! thread. Two threads must not move it at once, and none may wait for another, which may have been
//! preempted. So a thread that finds the ring in use leaves a request and goes on. The thread inside
//! finds the request before it leaves and does another round, which sees everything that was written
//! before the request.
//!
//! ```text
//!   enter:  idle ──► busy                request:  busy ──► busy + again
//!   leave:  busy ──► idle                          busy + again ──► busy, one more round
//! ```
//!
//! Model-checked with loom (`tests/loom.rs`): no two threads are inside at once, and no request is lost.

use std::fmt;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::sync::{AtomicU32, UnsafeCell, const_fn, yield_now};

const IDLE: u32 = 0;
const BUSY: u32 = 1;
const AGAIN: u32 = 2;

/// A value that one thread at a time works with; a second thread leaves a request instead of waiting.
pub struct Handover<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that moved `state` from idle to busy reaches the value, and Release and
// Acquire of `state` order one thread's accesses before the next thread's. So sharing a `Handover` only
// moves `T` between threads.
unsafe impl<T: Send> Sync for Handover<T> {}
// SAFETY: it owns its value and nothing else.
unsafe impl<T: Send> Send for Handover<T> {}

impl<T> Handover<T> {
    const_fn! {
        /// Creates an idle hand-over.
        pub fn new(value: T) -> Self {
            Self { state: AtomicU32::new(IDLE), value: UnsafeCell::new(value) }
        }
    }

    /// Repeats `round` until there is no further request. If another thread is inside, leaves a request
    /// and returns false: that thread will do a round that sees everything this thread wrote before.
    pub fn run(&self, mut round: impl FnMut(&mut T)) -> bool {
        if !self.enter_or_request() {
            return false;
        }
        let guard = HandoverGuard { owner: self };
        loop {
            guard.work(&mut round);
            match self.state.compare_exchange(BUSY, IDLE, Release, Relaxed) {
                Ok(_) => {
                    std::mem::forget(guard);
                    return true;
                }
                // Acquire: the next round must see what the requesting thread wrote before its request.
                Err(_) => self.state.swap(BUSY, AcqRel),
            };
        }
    }

    /// Waits until no thread is inside, then runs `work`. For setup and teardown, not for packets.
    pub fn wait<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        loop {
            let state = self.state.load(Relaxed);
            // A request may be set while no thread is inside; the next `run` clears it.
            if state & BUSY == 0 && self.state.compare_exchange(state, BUSY, Acquire, Relaxed).is_ok() {
                break;
            }
            yield_now();
        }
        let mut work = Some(work);
        let mut result = None;
        let guard = HandoverGuard { owner: self };
        guard.work(&mut |value: &mut T| result = work.take().map(|w| w(value)));
        drop(guard);
        result.expect("the work was done once")
    }

    fn enter_or_request(&self) -> bool {
        let mut state = self.state.load(Relaxed);
        loop {
            let busy = state & BUSY != 0;
            let (next, success) = if busy { (BUSY | AGAIN, Release) } else { (BUSY, Acquire) };
            match self.state.compare_exchange(state, next, success, Relaxed) {
                Ok(_) => return !busy,
                Err(now) => state = now,
            }
        }
    }
}

/// Marks that this thread is inside; leaves also when the work panics.
struct HandoverGuard<'h, T> {
    owner: &'h Handover<T>,
}

impl<T> HandoverGuard<'_, T> {
    fn work(&self, work: &mut impl FnMut(&mut T)) {
        // SAFETY: only the thread that moved `state` from idle to busy has a guard, one at a time, and
        // the reference ends with this call.
        self.owner.value.with_mut(|value| work(unsafe { &mut *value }));
    }
}

impl<T> Drop for HandoverGuard<'_, T> {
    fn drop(&mut self) {
        // A request that came meanwhile stays set without its round: the next thread that polls calls
        // `run` again.
        self.owner.state.fetch_and(!BUSY, Release);
    }
}

impl<T> fmt::Debug for Handover<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").field("state", &self.state).finish_non_exhaustive()
    }
}
