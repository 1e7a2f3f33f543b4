use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::handover::Handover;
use crate::sync::{AtomicBool, const_fn, fence};

/// Keeps an external object, such as an eventfd, at a level that several threads change. No thread waits
/// for another.
///
/// ```text
///   a thread that changes the level        a thread that sets the object
///   C1  level = new                        S1  set(old), shown = old
///   C2  fence(SeqCst)                      S2  fence(SeqCst)
///   C3  shown == new? then done            S3  level == shown? then done, else once more
/// ```
///
/// At least one of C3 and S3 sees what the other thread stored, so the object ends up at the last level.
#[derive(Debug)]
pub struct LevelSignal {
    /// The level that the object has, for threads that only read it.
    shown: AtomicBool,
    turn: Handover<bool>,
}

impl LevelSignal {
    const_fn! {
        /// Creates a signal at level `false`.
        pub fn new() -> Self {
            Self { shown: AtomicBool::new(false), turn: Handover::new(false) }
        }
    }

    /// Returns the level that the object has.
    pub fn shown(&self) -> bool {
        self.shown.load(Relaxed)
    }

    /// Calls `set` with the current level, unless the object has it or another thread is about to set
    /// it. To be called after each change of the level.
    pub fn update(&self, level: impl Fn() -> bool, mut set: impl FnMut(bool)) {
        fence(SeqCst);
        if self.shown() == level() {
            return;
        }
        self.turn.run(|shown| {
            while level() != *shown {
                *shown = !*shown;
                set(*shown);
                self.shown.store(*shown, Relaxed);
                fence(SeqCst);
            }
        });
    }
}

impl Default for LevelSignal {
    fn default() -> Self {
        Self::new()
    }
}
