//! The way to a compartment over a channel: a message is a packet of the compartment's P4 VM, and the answer
//! its rewritten header.

use crate::calls::{CallPort, Submitted};
use p4shield_abi::Verdict;
use p4shield_abi::call::{MAX_MESSAGE, MEMORY};
use p4shield_abi::channel::{Geometry, Request};
use p4shield_channel::{CheckedAnswer, Doorbell, PushRefused, Requester};

/// The channel of a packet thread.
#[derive(Debug)]
pub struct CallChannel {
    requester: Requester,
    doorbell: Doorbell,
    next: u64,
}

impl CallChannel {
    /// Room for every packet that waits, and for one that has given up.
    const SLOTS: usize = 2 * crate::MAX_CALLS;

    /// Returns the layout of a channel for messages of up to this many bytes. Short ones lie side by side: a
    /// cache holds more of them, and a core reads them ahead.
    #[must_use]
    pub const fn geometry(longest_message: usize) -> Geometry {
        let bytes = if longest_message < MAX_MESSAGE { longest_message } else { MAX_MESSAGE };
        Geometry {
            slots: Self::SLOTS as u32,
            header_bytes: if bytes > MEMORY { bytes as u32 } else { MEMORY as u32 },
            headroom: 0,
        }
    }

    /// Makes the way over a channel with such a layout.
    #[must_use]
    pub const fn new(requester: Requester, doorbell: Doorbell) -> Self {
        Self { requester, doorbell, next: 0 }
    }
}

impl CallPort for CallChannel {
    fn submit(&mut self, message: &[u8]) -> Submitted {
        self.next = self.next.wrapping_add(1);
        let request = Request { id: self.next, packet_len: message.len() as u32, ..Request::default() };
        match self.requester.push(&request, message) {
            Ok(()) => Submitted::Taken,
            Err(PushRefused::Full) => Submitted::Full,
            Err(_) => Submitted::Dead,
        }
    }

    fn publish(&mut self) {
        if self.requester.publish() || self.requester.must_wake() {
            let _ = self.requester.wake(&self.doorbell);
        }
    }

    fn take(&mut self, each: &mut dyn FnMut(Option<&[u8]>)) -> bool {
        let answer = |answer: CheckedAnswer<'_>| {
            let passes = answer.verdict == Verdict::Pass;
            each(answer.rewrite.filter(|_| passes).map(|rewrite| rewrite.header));
        };
        self.requester.take(Self::SLOTS, answer).is_ok()
    }
}
