//! Sleeping and waking of both ends: who announces what where, and whether the peer has to be woken.
//!
//! The peer announces its sleep in a flag ([`crate::Sleeper`] has the protocol). A flag is also a lever: a hostile
//! peer that leaves it set would have a busy end make a system call for every batch. So a bell that was rung is not
//! rung again before the peer has used up all that was published when it was rung; until then it is either on its
//! way or lying.
//!
//! No wake-up is lost by that. A peer that sleeps again after a ring did so after it saw nothing more to do. Had it
//! missed our newest index, then (fence against fence) we see its flag, and its progress, which it published before
//! its fence, is at least all of what was there at the ring: so the bell is rung again.

use crate::memory::Memory;
use p4shield_abi::channel::{MEDIATOR_SLEEPS, P4VM_SLEEPS, REQUEST_HEAD, VERDICT_HEAD, VERDICT_TAIL};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Offsets of what an end writes and reads about sleep.
#[derive(Debug)]
struct Side {
    /// Where this end announces its sleep.
    ours: usize,
    /// Where the peer announces its sleep.
    theirs: usize,
    /// The peer's index that gives this end something to do.
    work: usize,
    /// How far the peer got with what this end published.
    progress: usize,
}

const MEDIATOR: Side =
    Side { ours: MEDIATOR_SLEEPS, theirs: P4VM_SLEEPS, work: VERDICT_HEAD, progress: VERDICT_HEAD };
const P4VM: Side =
    Side { ours: P4VM_SLEEPS, theirs: MEDIATOR_SLEEPS, work: REQUEST_HEAD, progress: VERDICT_TAIL };

/// One end's bell.
#[derive(Debug)]
pub(super) struct Bell {
    side: &'static Side,
    /// Our index when the bell was last rung, until the peer has been seen awake since.
    rung_at: Option<u32>,
    /// Where the peer slept when it was last seen asleep.
    place: u32,
}

impl Bell {
    pub(super) const fn of_mediator() -> Self {
        Self { side: &MEDIATOR, rung_at: None, place: 0 }
    }

    pub(super) const fn of_p4vm() -> Self {
        Self { side: &P4VM, rung_at: None, place: 0 }
    }

    /// Whether the peer sleeps and has to be woken for what was published up to `published`. The caller rings then.
    ///
    /// Right at once if there is a fence between the store of the index and this; without one, right in the end: the
    /// peer's flag may have been read before our index was seen, so the caller has to ask again as long as the peer
    /// owes it something, and [`Self::announce`] asks behind a fence before this end sleeps.
    #[inline]
    pub(super) fn due<M: Memory>(&mut self, memory: &M, published: u32) -> bool {
        let place = memory.load_u32(self.side.theirs, Relaxed);
        if place == 0 {
            self.rung_at = None;
            return false;
        }
        self.place = place;
        let due = self.heeded(memory);
        if due {
            self.rung_at = Some(published);
        }
        due
    }

    /// Whether the peer sleeps, and perhaps has nothing to wake for.
    #[inline]
    pub(super) fn sees_sleep<M: Memory>(&mut self, memory: &M) -> bool {
        let place = memory.load_u32(self.side.theirs, Relaxed);
        if place != 0 {
            self.place = place;
        }
        place != 0
    }

    /// Where the peer slept when it was last seen asleep: whatever it wrote.
    pub(super) const fn place(&self) -> u32 {
        self.place
    }

    /// Whether a peer that says it sleeps has come to the end of what there was when it was rung.
    fn heeded<M: Memory>(&self, memory: &M) -> bool {
        self.rung_at.is_none_or(|rung_at| {
            let done = memory.load_u32(self.side.progress, Relaxed);
            // Half the number space apart: `done` has reached `rung_at`. Garbage errs either way, at its writer's cost.
            done.wrapping_sub(rung_at) as i32 >= 0
        })
    }

    /// Announces this end's sleep, and where it is to be woken. False, and nothing is announced, if the peer has published more
    /// than `seen`, or has to be woken itself (`owed`: it has not used up all that was published) for what it did not see.
    pub(super) fn announce<M: Memory>(&self, memory: &M, place: u32, seen: u32, owed: bool) -> bool {
        memory.store_u32(self.side.ours, place, Relaxed);
        M::fence(SeqCst);
        let idle = memory.load_u32(self.side.work, Relaxed) == seen;
        let unheard = owed && memory.load_u32(self.side.theirs, Relaxed) != 0 && self.heeded(memory);
        if idle && !unheard {
            return true;
        }
        self.retract(memory);
        false
    }

    /// Takes the announcement back.
    pub(super) fn retract<M: Memory>(&self, memory: &M) {
        memory.store_u32(self.side.ours, 0, Relaxed);
    }
}
