use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::handover::HandOver;
use crate::sync::{AtomicBool, const_fn, fence};

/// Keeps something outside (a descriptor) at a level that several threads change, without any waiting for another.
///
/// ```text
///   who changes the level                  who was setting
///   C1  level = new                        S1  set(old), shown = old
///   C2  fence(SeqCst)                      S2  fence(SeqCst)
///   C3  shown == new? then done            S3  level == shown? then done, else once more
/// ```
///
/// At least one of C3 and S3 sees what the other stored, so what is shown last is the last level.
#[derive(Debug)]
pub struct Signal {
    /// What is shown, for those who only look.
    shown: AtomicBool,
    turn: HandOver<bool>,
}

impl Signal {
    const_fn! {
        /// One that shows `false`.
        pub fn new() -> Self {
            Self { shown: AtomicBool::new(false), turn: HandOver::new(false) }
        }
    }

    /// What is shown.
    pub fn shown(&self) -> bool {
        self.shown.load(Relaxed)
    }

    /// The level may have changed: shows it, by `set`, unless that is done or another thread is about to.
    pub fn show(&self, level: impl Fn() -> bool, mut set: impl FnMut(bool)) {
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

impl Default for Signal {
    fn default() -> Self {
        Self::new()
    }
}
