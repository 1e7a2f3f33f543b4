//! A way to a compartment that is none: the packet thread answers its messages itself, and runs no function.
//! It tells the cost of the switch's own work for a call from that of the channel and of the other core.

use p4shield_abi::call::MAX_MESSAGE;
use p4shield_switch::{CallPort, MAX_CALLS, Submitted};

/// Messages that are answered as they are.
pub(super) struct Echo {
    messages: Box<[[u8; MAX_MESSAGE]]>,
    lengths: [usize; MAX_CALLS],
    /// Messages submitted, published and taken: the place of one is its number modulo [`MAX_CALLS`].
    submitted: usize,
    published: usize,
    taken: usize,
}

impl Echo {
    pub(super) fn new() -> Self {
        let messages = vec![[0; MAX_MESSAGE]; MAX_CALLS].into();
        Self { messages, lengths: [0; MAX_CALLS], submitted: 0, published: 0, taken: 0 }
    }
}

impl CallPort for Echo {
    fn submit(&mut self, message: &[u8]) -> Submitted {
        if self.submitted - self.taken == MAX_CALLS || message.len() > MAX_MESSAGE {
            return Submitted::Full;
        }
        let at = self.submitted % MAX_CALLS;
        self.messages[at][..message.len()].copy_from_slice(message);
        self.lengths[at] = message.len();
        self.submitted += 1;
        Submitted::Taken
    }

    fn publish(&mut self) {
        self.published = self.submitted;
    }

    fn take(&mut self, each: &mut dyn FnMut(Option<&[u8]>)) -> bool {
        while self.taken < self.published {
            let at = self.taken % MAX_CALLS;
            each(Some(&self.messages[at][..self.lengths[at]]));
            self.taken += 1;
        }
        true
    }
}
