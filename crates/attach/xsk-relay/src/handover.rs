//! Work that several threads want done and one at a time does.
//!
//! A ring is moved by whichever thread of the application makes a system call for it, or by the drain thread. Two must
//! not do it at once, and none may wait for another (the other may have been preempted). So a thread that finds the
//! work in hands leaves a note and goes on; who has it finds the note before letting go, and does another round,
//! which sees everything that was written before the note was left.
//!
//! ```text
//!   enter:  idle ──► busy                 note:  busy ──► busy + again
//!   leave:  busy ──► idle                        busy + again ──► busy, one more round
//! ```
//!
//! Model-checked with loom (`tests/loom.rs`): no two threads are inside at once, and no note is lost.

use std::fmt;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::sync::{AtomicU32, UnsafeCell, const_fn, yield_now};

const IDLE: u32 = 0;
const BUSY: u32 = 1;
const AGAIN: u32 = 2;

/// A value that one thread at a time works with, and nobody waits for.
pub struct HandOver<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the one thread that moved `state` from idle to busy, and passes to the next through
// Release and Acquire of `state`; so sharing the cell only ever moves `T` between threads.
unsafe impl<T: Send> Sync for HandOver<T> {}
// SAFETY: it owns its value, nothing else.
unsafe impl<T: Send> Send for HandOver<T> {}

impl<T> HandOver<T> {
    const_fn! {
        /// A value that nobody works with yet.
        pub fn new(value: T) -> Self {
            Self { state: AtomicU32::new(IDLE), value: UnsafeCell::new(value) }
        }
    }

    /// Does `round` until nobody left a note, or leaves one. `false` if another thread is at it: it will do a round
    /// that sees all that this thread wrote before.
    pub fn run(&self, mut round: impl FnMut(&mut T)) -> bool {
        if !self.enter_or_note() {
            return false;
        }
        let inside = Inside { owner: self };
        loop {
            inside.work(&mut round);
            match self.state.compare_exchange(BUSY, IDLE, Release, Relaxed) {
                Ok(_) => {
                    std::mem::forget(inside);
                    return true;
                }
                // Acquire: what the note's writer wrote before is to be seen in the next round.
                Err(_) => self.state.swap(BUSY, AcqRel),
            };
        }
    }

    /// Works with the value alone, and waits for whoever is at it. For making and closing, not for packets.
    pub fn wait<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        loop {
            let state = self.state.load(Relaxed);
            // A note may stand without anyone inside; the next `run` takes it for its own.
            if state & BUSY == 0 && self.state.compare_exchange(state, BUSY, Acquire, Relaxed).is_ok() {
                break;
            }
            yield_now();
        }
        let mut work = Some(work);
        let mut result = None;
        let inside = Inside { owner: self };
        inside.work(&mut |value: &mut T| result = work.take().map(|w| w(value)));
        drop(inside);
        result.expect("the work was done once")
    }

    fn enter_or_note(&self) -> bool {
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

/// Says that this thread is inside, and lets go also if the work panics.
struct Inside<'h, T> {
    owner: &'h HandOver<T>,
}

impl<T> Inside<'_, T> {
    fn work(&self, work: &mut impl FnMut(&mut T)) {
        // SAFETY: an `Inside` exists only in the thread that moved `state` from idle to busy, once at a time, and the
        // reference ends with this call.
        self.owner.value.with_mut(|value| work(unsafe { &mut *value }));
    }
}

impl<T> Drop for Inside<'_, T> {
    fn drop(&mut self) {
        // A note that came in between is kept without its round: `run` is called again soon enough by whoever polls.
        self.owner.state.fetch_and(!BUSY, Release);
    }
}

impl<T> fmt::Debug for HandOver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandOver").field("state", &self.state).finish_non_exhaustive()
    }
}
