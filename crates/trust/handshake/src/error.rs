//! Why a handshake ended, and why a message was ignored.

use crate::evidence::{JudgeError, ProverError};
use crate::key::PublicKey;

/// What a party waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Awaited {
    /// Responder: message 1, the beginning.
    Beginning,
    /// Initiator: message 2, the responder's keys.
    Answer,
    /// Responder: message 3, the initiator's static key.
    Identity,
    /// Initiator: message 4. Responder: message 5. The peer's evidence.
    Evidence,
    /// Initiator: message 6, the responder's confirmation.
    Confirmation,
    /// Responder: the first use of the session, which shows that message 6 arrived.
    Use,
    /// The handshake is over.
    Nothing,
}

impl std::fmt::Display for Awaited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Beginning => "the beginning of a handshake",
            Self::Answer => "the P4 VM's answer",
            Self::Identity => "the initiator's key",
            Self::Evidence => "the peer's evidence",
            Self::Confirmation => "the P4 VM's confirmation",
            Self::Use => "the initiator's first use of the session",
            Self::Nothing => "nothing",
        })
    }
}

/// Reason why a message was ignored. Only its count and the last reason are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ignored {
    /// It is no message of this protocol.
    #[error("it is no message of a handshake")]
    Malformed,
    /// The peer, or the host, speaks another version.
    #[error("it has version {0} of the protocol: update the older side")]
    Version(u8),
    /// It belongs to another attempt: an old one, or another peer's.
    #[error("it belongs to another handshake")]
    OtherAttempt,
    /// It is not the one that is due: repeated, out of order, or this party's own.
    #[error("it is message {0}, which is not due")]
    NotDue(u8),
    /// It does not authenticate.
    #[error(
        "it does not authenticate: the host changed it, or the peer has another tenant, VM or configuration"
    )]
    Forged,
    /// It authenticates with another key than the pinned one.
    #[error("its sender has another key than the pinned one")]
    WrongKey,
    /// So many forged messages came before it that it was not examined.
    #[error("too many forged messages came before it")]
    Flood,
}

/// Reason why a peer refused, as it says under the keys of the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalReason {
    /// It refused the evidence.
    Evidence,
    /// It demands evidence and got none that attests.
    NotAttested,
    /// It does not allow unverified parties.
    Unverified,
    /// It expects another static key.
    Key,
    /// It has no evidence to present.
    NoEvidence,
    /// It does not understand a message.
    Malformed,
    /// It does not accept the epoch that this party proposes.
    Epoch,
    /// Another reason, of a later version.
    Other(u8),
}

impl RefusalReason {
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Evidence => 1,
            Self::NotAttested => 2,
            Self::Unverified => 3,
            Self::Key => 4,
            Self::NoEvidence => 5,
            Self::Malformed => 6,
            Self::Epoch => 7,
            Self::Other(number) => number,
        }
    }

    pub(crate) const fn of(number: u8) -> Self {
        match number {
            1 => Self::Evidence,
            2 => Self::NotAttested,
            3 => Self::Unverified,
            4 => Self::Key,
            5 => Self::NoEvidence,
            6 => Self::Malformed,
            7 => Self::Epoch,
            other => Self::Other(other),
        }
    }
}

impl std::fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Evidence => f.write_str("it refuses this party's evidence; see the peer's log"),
            Self::NotAttested => f.write_str("it demands evidence, and this party has none that attests it"),
            Self::Unverified => f.write_str("it does not allow unverified parties"),
            Self::Key => f.write_str("it expects another static key of this party"),
            Self::NoEvidence => f.write_str("it cannot collect evidence; see the peer's log"),
            Self::Malformed => f.write_str("it does not understand a message of this party"),
            Self::Epoch => {
                f.write_str("its clock is far behind this party's epochs; set the clocks of both machines")
            }
            Self::Other(number) => write!(f, "reason {number} of a later version"),
        }
    }
}

/// Reason why a handshake ended without a session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The time limit passed.
    #[error(
        "the handshake timed out while it waited for {waiting_for}{}",
        .last.map_or_else(
            || ": the peer is not running, or the host keeps its messages".to_owned(),
            |last| format!("; {ignored} messages were ignored, the last one because {last}"),
        )
    )]
    TimedOut {
        /// What this party waited for.
        waiting_for: Awaited,
        /// Messages that were ignored.
        ignored: u64,
        /// Reason why the last one was ignored.
        last: Option<Ignored>,
    },
    /// The judge refused the peer's evidence.
    #[error("the peer's evidence is refused: {0}")]
    EvidenceRefused(JudgeError),
    /// Evidence is required, and the peer has none that attests it.
    #[error("the peer is not attested, and this party's configuration demands it")]
    NotAttested,
    /// The peer is neither attested nor has it a pinned key.
    #[error(
        "the peer is neither attested nor is its key pinned, which {} does not allow",
        if *.by_peer { "the peer" } else { "this party's configuration" }
    )]
    Unverified {
        /// The peer does not allow it; otherwise this party does not.
        by_peer: bool,
    },
    /// The peer has another static key than the pinned one.
    #[error("the peer has key {found} instead of the pinned key {expected}")]
    WrongKey {
        /// The pinned key.
        expected: PublicKey,
        /// The peer's key.
        found: PublicKey,
    },
    /// The peer refused.
    #[error("the peer refused: {0}")]
    RefusedByPeer(RefusalReason),
    /// This party could not collect its own evidence.
    #[error("cannot collect evidence of this party: {0}")]
    Prover(ProverError),
    /// This party's evidence does not fit into a message.
    #[error("this party's evidence has {len} bytes, more than the {limit} that fit into a message")]
    EvidenceTooLong {
        /// Its length.
        len: usize,
        /// Most bytes.
        limit: usize,
    },
    /// The peer, who authenticated, sent contents that no version of the protocol has.
    #[error("the peer's {0} is malformed; update the older side")]
    Malformed(&'static str),
    /// This party proposes an epoch above all that a session can have.
    #[error("this party has no epoch left for a session; set its clock and restart it")]
    EpochsExhausted,
    /// The peer proposes an epoch that is far ahead of this party's clock.
    #[error(
        "the peer proposes epoch {proposed}, and this party's clock allows {limit} at most; set the clocks \
         of both machines, or the peer wants to use the epochs up"
    )]
    EpochAhead {
        /// What the peer proposes.
        proposed: u64,
        /// Highest epoch that is accepted.
        limit: u64,
    },
    /// The peer confirmed other keys.
    #[error("the peer confirmed other keys than this party has")]
    Unconfirmed,
    /// The system returned no random bytes.
    #[error("the system returned no random bytes for a handshake: {0}")]
    Random(getrandom::Error),
    /// `snow` failed where it cannot with this configuration.
    #[error("the Noise library failed: {0}")]
    Noise(String),
}

impl HandshakeError {
    /// Returns the reason that this party reports to the peer, if any.
    pub(crate) const fn reason(&self) -> Option<RefusalReason> {
        match self {
            Self::EvidenceRefused(_) => Some(RefusalReason::Evidence),
            Self::NotAttested => Some(RefusalReason::NotAttested),
            Self::Unverified { .. } => Some(RefusalReason::Unverified),
            Self::WrongKey { .. } => Some(RefusalReason::Key),
            Self::Prover(_) | Self::EvidenceTooLong { .. } => Some(RefusalReason::NoEvidence),
            Self::EpochAhead { .. } => Some(RefusalReason::Epoch),
            Self::Malformed(_) | Self::EpochsExhausted => Some(RefusalReason::Malformed),
            _ => None,
        }
    }
}
