use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

use crate::sync::{AtomicU32, const_fn, fence};

/// It sleeps.
const ASLEEP: u32 = 1;
/// It sleeps for long: until somebody wakes it, or nearly so.
const LONG: u32 = 2;
/// Something may be left to it.
const NUDGED: u32 = 4;
/// Something is left to it at once.
const URGED: u32 = 8;

/// A thread that looks after what others leave to it, and sleeps else.
///
/// ```text
///   who leaves something                   the thread
///   L1  leave it                           T1  take all notes back
///   L2  note += nudged                     T2  look at everything
///   L3  it slept? then ring its bell       T3  note += asleep
///                                          T4  nudged meanwhile? then it is no long sleep
/// ```
///
/// L2 and L3 are one step, and so are T3 and T4: whichever comes first is seen by the other. A note that stands is not
/// written again, so that those who leave something all the time share a line that nobody writes.
#[derive(Debug)]
pub struct Standby {
    state: AtomicU32,
}

/// How a thread that stands by may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// As it wanted.
    AsPlanned,
    /// Not for long: something may have been left to it since it looked.
    Short,
    /// Not at all.
    Not,
}

impl Standby {
    const_fn! {
        /// One that is awake.
        pub fn new() -> Self {
            Self { state: AtomicU32::new(0) }
        }
    }

    /// Something may have been left to the thread, which it is to look at soon. True if its bell has to be rung: it sleeps for
    /// long.
    #[must_use]
    #[inline]
    pub fn nudge(&self) -> bool {
        // Whoever finds a note has what was left seen by the look that the note stands for.
        fence(SeqCst);
        if self.state.load(Relaxed) & NUDGED != 0 {
            return false;
        }
        self.state.fetch_or(NUDGED, AcqRel) & (NUDGED | LONG) == LONG
    }

    /// Something has been left to the thread, which it is to look at now. True if its bell has to be rung.
    #[must_use]
    pub fn urge(&self) -> bool {
        self.state.fetch_or(URGED, AcqRel) & (URGED | ASLEEP) == ASLEEP
    }

    /// The thread is awake, and about to look at everything.
    pub fn awake(&self) {
        self.state.fetch_and(!(ASLEEP | LONG | NUDGED | URGED), AcqRel);
        fence(SeqCst);
    }

    /// The thread has looked, and is about to sleep, perhaps for `long`.
    #[must_use]
    pub fn asleep(&self, long: bool) -> Sleep {
        let notes = self.state.fetch_or(if long { ASLEEP | LONG } else { ASLEEP }, AcqRel);
        match (notes & URGED != 0, notes & NUDGED != 0) {
            (true, _) => Sleep::Not,
            (_, true) => Sleep::Short,
            _ => Sleep::AsPlanned,
        }
    }
}

impl Default for Standby {
    fn default() -> Self {
        Self::new()
    }
}
