//! Whether the peer has to be woken, asked after each publication.
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
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

#[derive(Debug, Default)]
pub(super) struct Bell {
    /// Our index when the bell was last rung, until the peer has been seen awake since.
    rung_at: Option<u32>,
}

impl Bell {
    /// To be called after the release store of our index, `published`. `flag` is where the peer announces its
    /// sleep, `progress` where it publishes how far it got.
    pub(super) fn due<M: Memory>(
        &mut self,
        memory: &M,
        published: u32,
        flag: usize,
        progress: usize,
    ) -> bool {
        M::fence(SeqCst);
        if memory.load_u32(flag, Relaxed) == 0 {
            self.rung_at = None;
            return false;
        }
        if let Some(rung_at) = self.rung_at {
            let done = memory.load_u32(progress, Relaxed);
            // Half the number space apart: `done` has reached `rung_at`. Garbage errs either way, at its writer's cost.
            if (done.wrapping_sub(rung_at) as i32) < 0 {
                return false;
            }
        }
        self.rung_at = Some(published);
        true
    }
}
