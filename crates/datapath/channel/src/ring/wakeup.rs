//! Sleep and wake-up of both ends: how an end announces its sleep, and whether it has to wake the peer.
//!
//! The peer announces its sleep in a flag ([`crate::Sleeper`] has the protocol). A hostile peer that
//! leaves the flag set could make a busy end issue a system call for every batch. Therefore, after a
//! wake-up, the next one waits until the peer has used up all that was published at the first; until
//! then the peer is either waking up or lying.
//!
//! This loses no wake-up. A peer that sleeps again after a wake-up has found nothing more to do. If
//! it missed the newest index, the two fences guarantee that this end sees its flag, and its
//! progress, published before its fence, covers at least what there was at the first wake-up: so the
//! peer is woken again.

use crate::memory::Memory;
use p4shield_abi::channel::{MEDIATOR_SLEEPS, P4VM_SLEEPS, REQUEST_HEAD, VERDICT_HEAD, VERDICT_TAIL};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Offsets of the words that one end uses for sleep and wake-up.
#[derive(Debug)]
struct Words {
    /// Flag by which this end announces its sleep.
    ours: usize,
    /// Flag by which the peer announces its sleep.
    theirs: usize,
    /// Index of the peer that gives this end work.
    work: usize,
    /// Index that shows how far the peer has used up what this end published.
    progress: usize,
}

const MEDIATOR: Words =
    Words { ours: MEDIATOR_SLEEPS, theirs: P4VM_SLEEPS, work: VERDICT_HEAD, progress: VERDICT_HEAD };
const P4VM: Words =
    Words { ours: P4VM_SLEEPS, theirs: MEDIATOR_SLEEPS, work: REQUEST_HEAD, progress: VERDICT_TAIL };

/// State of sleep and wake-up at one end.
#[derive(Debug)]
pub(super) struct Wakeup {
    words: &'static Words,
    /// This end's index at the last wake-up, until the peer was seen awake since.
    woken_at: Option<u32>,
    /// The flag that the peer had set when it was last seen asleep.
    flag: u32,
}

impl Wakeup {
    pub(super) const fn of_mediator() -> Self {
        Self { words: &MEDIATOR, woken_at: None, flag: 0 }
    }

    pub(super) const fn of_p4vm() -> Self {
        Self { words: &P4VM, woken_at: None, flag: 0 }
    }

    /// Whether the peer sleeps and has to be woken for what was published up to `published`. The
    /// caller then wakes it.
    ///
    /// Correct at once if a fence separates the store of the index from this call. Without one it is
    /// correct eventually: the peer's flag may be read before the peer sees the index, so the caller
    /// repeats the call as long as the peer owes it answers, and [`Self::announce`] checks behind a
    /// fence before this end sleeps.
    #[inline]
    pub(super) fn is_due<M: Memory>(&mut self, memory: &M, published: u32) -> bool {
        let flag = memory.load_u32(self.words.theirs, Relaxed);
        if flag == 0 {
            self.woken_at = None;
            return false;
        }
        self.flag = flag;
        let due = self.has_caught_up(memory);
        if due {
            self.woken_at = Some(published);
        }
        due
    }

    /// Whether the peer sleeps, with or without work.
    #[inline]
    pub(super) fn peer_sleeps<M: Memory>(&mut self, memory: &M) -> bool {
        let flag = memory.load_u32(self.words.theirs, Relaxed);
        if flag != 0 {
            self.flag = flag;
        }
        flag != 0
    }

    /// Returns the flag that the peer had set when it was last seen asleep; any value that it wrote.
    pub(super) const fn flag(&self) -> u32 {
        self.flag
    }

    /// Whether a peer that claims to sleep has used up what there was at the last wake-up.
    fn has_caught_up<M: Memory>(&self, memory: &M) -> bool {
        self.woken_at.is_none_or(|woken_at| {
            let done = memory.load_u32(self.words.progress, Relaxed);
            // Within half the number space `done` has reached `woken_at`. Garbage harms only the peer
            // that wrote it.
            done.wrapping_sub(woken_at) as i32 >= 0
        })
    }

    /// Announces this end's sleep with `flag`, which says how to wake it. Returns false, and
    /// announces nothing, if the peer has published more than `seen`, or if the peer itself has to be
    /// woken because it sleeps and has not seen all that was published (`owed`).
    pub(super) fn announce<M: Memory>(&self, memory: &M, flag: u32, seen: u32, owed: bool) -> bool {
        memory.store_u32(self.words.ours, flag, Relaxed);
        M::fence(SeqCst);
        let idle = memory.load_u32(self.words.work, Relaxed) == seen;
        let must_wake =
            owed && memory.load_u32(self.words.theirs, Relaxed) != 0 && self.has_caught_up(memory);
        if idle && !must_wake {
            return true;
        }
        self.retract(memory);
        false
    }

    /// Retracts the announcement.
    pub(super) fn retract<M: Memory>(&self, memory: &M) {
        memory.store_u32(self.words.ours, 0, Relaxed);
    }
}
