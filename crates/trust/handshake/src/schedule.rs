//! Time limits and repetitions of one handshake.

use crate::config::Limits;
use crate::error::Ignored;

/// The progress of one handshake in time.
#[derive(Debug)]
pub(crate) struct Schedule {
    limits: Limits,
    ends_ms: u64,
    /// The message sent last, and the peer's message that it answers.
    sent: Vec<u8>,
    answered: Vec<u8>,
    resends: u32,
    resend_ms: u64,
    forgeries: u32,
    ignored: u64,
    last: Option<Ignored>,
}

impl Schedule {
    /// A schedule that begins now.
    pub(crate) const fn new(limits: Limits, now_ms: u64) -> Self {
        Self {
            limits,
            ends_ms: now_ms.saturating_add(limits.total_ms),
            sent: Vec::new(),
            answered: Vec::new(),
            resends: 0,
            resend_ms: u64::MAX,
            forgeries: 0,
            ignored: 0,
            last: None,
        }
    }

    /// Notes that `sent` goes out in answer to `answered`.
    pub(crate) fn sent(&mut self, sent: &[u8], answered: &[u8], now_ms: u64) {
        sent.clone_into(&mut self.sent);
        answered.clone_into(&mut self.answered);
        self.resends = 0;
        self.resend_ms = now_ms.saturating_add(self.limits.resend_ms);
    }

    /// Whether the time limit has passed.
    pub(crate) const fn is_over(&self, now_ms: u64) -> bool {
        now_ms >= self.ends_ms
    }

    /// Returns the message sent last if it is time to repeat it.
    pub(crate) fn due(&mut self, now_ms: u64) -> Option<Vec<u8>> {
        if now_ms < self.resend_ms || self.sent.is_empty() {
            return None;
        }
        self.resend_ms = now_ms.saturating_add(self.limits.resend_ms);
        self.repeat()
    }

    /// Returns the message sent last if `received` is the one that it answered: it was lost.
    pub(crate) fn answer_again(&mut self, received: &[u8]) -> Option<Vec<u8>> {
        if self.answered.is_empty() || self.answered != received {
            return None;
        }
        self.repeat()
    }

    fn repeat(&mut self) -> Option<Vec<u8>> {
        if self.resends >= self.limits.resends {
            return None;
        }
        self.resends += 1;
        Some(self.sent.clone())
    }

    /// Returns when [`Self::is_over`] or [`Self::due`] changes next.
    pub(crate) fn next_ms(&self, repeats: bool) -> u64 {
        let repeats = repeats && self.resends < self.limits.resends;
        if repeats { self.ends_ms.min(self.resend_ms) } else { self.ends_ms }
    }

    /// Whether another message may be examined.
    pub(crate) const fn examines(&self) -> bool {
        self.forgeries < self.limits.forgeries
    }

    /// Counts a message that was ignored.
    pub(crate) fn ignore(&mut self, reason: Ignored) {
        if matches!(reason, Ignored::Forged | Ignored::WrongKey) {
            self.forgeries = self.forgeries.saturating_add(1);
        }
        self.ignored = self.ignored.saturating_add(1);
        self.last = Some(reason);
    }

    pub(crate) const fn ignored(&self) -> (u64, Option<Ignored>) {
        (self.ignored, self.last)
    }
}
