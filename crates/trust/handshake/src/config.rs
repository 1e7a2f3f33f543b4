//! Configuration of a party.

use std::sync::Arc;

use crate::binding::Binding;
use crate::evidence::{Judge, Prover};
use crate::key::StaticKey;
use crate::session::SessionLimits;
use crate::trust::Trust;

/// The caller's clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of a clock that is never set.
    pub steady_ms: u64,
    /// Seconds since 1970, for certificates only.
    pub unix_s: u64,
}

/// Limits of one handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest handshake, in milliseconds. A responder counts from message 1.
    pub total_ms: u64,
    /// Time after which the initiator repeats its last message, in milliseconds.
    pub resend_ms: u64,
    /// Most repetitions of one message.
    pub resends: u32,
    /// Most messages that are examined and found forged. Later ones are ignored unexamined.
    pub forgeries: u32,
}

impl Default for Limits {
    /// 10 s; a repetition every 250 ms, up to 40; and 1000 forgeries, which cost a fifth of a second.
    fn default() -> Self {
        Self { total_ms: 10_000, resend_ms: 250, resends: 40, forgeries: 1000 }
    }
}

/// Configuration of a party.
#[derive(Clone)]
pub struct Config {
    pub(crate) binding: Binding,
    pub(crate) key: StaticKey,
    pub(crate) trust: Trust,
    pub(crate) prover: Option<Arc<dyn Prover>>,
    pub(crate) judge: Option<Arc<dyn Judge>>,
    pub(crate) lowest_epoch: u64,
    pub(crate) limits: Limits,
    pub(crate) session_limits: SessionLimits,
}

impl Config {
    /// A party for `binding` with this static key, which demands `trust` of its peer.
    #[must_use]
    pub fn new(binding: Binding, key: StaticKey, trust: Trust) -> Self {
        Self {
            binding,
            key,
            trust,
            prover: None,
            judge: None,
            lowest_epoch: 0,
            limits: Limits::default(),
            session_limits: SessionLimits::default(),
        }
    }

    /// Presents evidence.
    #[must_use]
    pub fn with_prover(self, prover: Arc<dyn Prover>) -> Self {
        Self { prover: Some(prover), ..self }
    }

    /// Judges the peer's evidence. Without a judge, evidence counts as none.
    #[must_use]
    pub fn with_judge(self, judge: Arc<dyn Judge>) -> Self {
        Self { judge: Some(judge), ..self }
    }

    /// Proposes the lowest epoch that the session may have: above every epoch that this party has used or
    /// accepted. The session gets the higher proposal of both parties.
    #[must_use]
    pub fn with_lowest_epoch(self, lowest_epoch: u64) -> Self {
        Self { lowest_epoch, ..self }
    }

    /// Sets the limits of the handshake.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Sets the limits of the session.
    #[must_use]
    pub fn with_session_limits(self, session_limits: SessionLimits) -> Self {
        Self { session_limits, ..self }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("binding", &self.binding)
            .field("key", &self.key.public())
            .field("trust", &self.trust)
            .finish_non_exhaustive()
    }
}
