//! What both state machines share.

use zeroize::Zeroizing;

use crate::binding::Role;
use crate::checks;
use crate::config::{Config, Now};
use crate::error::{Awaited, HandshakeError, Ignored};
use crate::evidence::Standing;
use crate::key::PublicKey;
use crate::message::{ATTEMPT_SIZE, EVIDENCE_LIMIT, Introduction, Message, number, refusal, refusal_of};
use crate::noise::Channel;
use crate::schedule::Schedule;
use crate::secret::Secret;
use crate::session::{Agreement, MAX_LEAD_NS, Session};

/// Number of an attempt, which the initiator chooses at random. It separates the messages of attempts; their
/// security does not depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttemptId(pub [u8; ATTEMPT_SIZE]);

impl std::fmt::Display for AttemptId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for AttemptId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AttemptId({self})")
    }
}

/// What the caller has to do.
#[derive(Debug)]
pub enum Step {
    /// Nothing.
    Wait,
    /// Send this message.
    Send(Vec<u8>),
    /// Use the session, and send this message, if there is one.
    Done {
        /// The session.
        session: Box<Session>,
        /// The message.
        send: Option<Vec<u8>>,
    },
    /// Report the error, and send this message, if there is one. Begin a new handshake later. After
    /// [`Step::Done`], drop the session: the initiator never used it.
    Failed {
        /// The error.
        error: HandshakeError,
        /// A refusal for the peer.
        send: Option<Vec<u8>>,
    },
}

/// Random bytes of one party in one handshake.
#[derive(Clone, Debug)]
pub(crate) struct Seeds {
    pub(crate) attempt: AttemptId,
    pub(crate) ephemeral: Secret,
    pub(crate) random: Secret,
}

impl Seeds {
    /// Draws random bytes from the system.
    pub(crate) fn draw() -> Result<Self, HandshakeError> {
        let secret = || Secret::random().map_err(HandshakeError::Random);
        let mut attempt = [0; ATTEMPT_SIZE];
        getrandom::fill(&mut attempt).map_err(HandshakeError::Random)?;
        Ok(Self { attempt: AttemptId(attempt), ephemeral: secret()?, random: secret()? })
    }

    /// Derives repeatable bytes, for tests and fuzz targets.
    pub(crate) fn repeatable(seed: u64) -> Self {
        let bytes = |label: u8| {
            use sha2::Digest;
            let digest = sha2::Sha256::digest([&[label], seed.to_le_bytes().as_slice()].concat());
            Secret::from_bytes(digest.into())
        };
        let attempt = bytes(0).expose().first_chunk().copied().unwrap_or_default();
        Self { attempt: AttemptId(attempt), ephemeral: bytes(1), random: bytes(2) }
    }
}

/// The exchange of evidence, after Noise.
pub(crate) struct Exchange {
    pub(crate) channel: Channel,
    pub(crate) peer: PublicKey,
}

/// A party in one handshake.
pub(crate) struct Attempt {
    pub(crate) role: Role,
    pub(crate) config: Config,
    pub(crate) random: Secret,
    pub(crate) id: AttemptId,
    pub(crate) schedule: Schedule,
}

impl Attempt {
    /// Builds a message of this attempt.
    pub(crate) fn message(&self, number: u8, body: &[u8]) -> Vec<u8> {
        Message { number, attempt: self.id.0, body }.encode()
    }

    /// Returns the step that sends `sent` in answer to `answered`.
    pub(crate) fn send(&mut self, sent: Vec<u8>, answered: &[u8], now: Now) -> Step {
        self.schedule.sent(&sent, answered, now.steady_ms);
        Step::Send(sent)
    }

    /// Ignores a message.
    pub(crate) fn ignore(&mut self, reason: Ignored) -> Step {
        self.schedule.ignore(reason);
        Step::Wait
    }

    /// Reads the header of a message of this attempt, and checks that it may be examined.
    pub(crate) fn admit<'a>(&self, bytes: &'a [u8]) -> Result<Message<'a>, Ignored> {
        let message = Message::parse(bytes)?;
        if message.attempt != self.id.0 {
            return Err(Ignored::OtherAttempt);
        }
        if self.schedule.examines() { Ok(message) } else { Err(Ignored::Flood) }
    }

    /// Returns the error of a handshake whose time is over.
    pub(crate) const fn timed_out(&self, waiting_for: Awaited) -> HandshakeError {
        let (ignored, last) = self.schedule.ignored();
        HandshakeError::TimedOut { waiting_for, ignored, last }
    }

    /// Collects this party's introduction.
    pub(crate) fn introduce(&self, channel: &Channel) -> Result<Introduction, HandshakeError> {
        let Config { binding, key, prover, trust, lowest_epoch, .. } = &self.config;
        let evidence = match prover {
            Some(prover) => {
                let data = checks::report_data(binding, self.role, channel.hash(), &key.public());
                prover.evidence(&data).map_err(HandshakeError::Prover)?
            }
            None => Vec::new(),
        };
        if evidence.len() > EVIDENCE_LIMIT {
            return Err(HandshakeError::EvidenceTooLong { len: evidence.len(), limit: EVIDENCE_LIMIT });
        }
        let (allows_unverified, lowest_epoch) = (trust.allows_unverified(), *lowest_epoch);
        Ok(Introduction { allows_unverified, lowest_epoch, random: self.random.clone(), evidence })
    }

    /// Judges the peer's introduction.
    pub(crate) fn judge(
        &self,
        exchange: &Exchange,
        peer: &Introduction,
        now: Now,
    ) -> Result<Standing, HandshakeError> {
        let Config { binding, judge, trust, .. } = &self.config;
        let (hash, sender) = (exchange.channel.hash(), self.role.peer());
        let data = checks::report_data(binding, sender, hash, &exchange.peer);
        let judgement = checks::judgement(judge.as_ref(), &peer.evidence, &data, now.unix_s)?;
        checks::standing(trust, judgement, peer.allows_unverified)
    }

    /// Opens the introduction of the peer in `message`. `Ok(None)`: it does not authenticate.
    pub(crate) fn introduction(
        exchange: &mut Exchange,
        message: &Message<'_>,
    ) -> Result<Option<Introduction>, HandshakeError> {
        let Some(plain) = exchange.channel.open(message.body) else { return Ok(None) };
        let introduction = Introduction::decode(message.number, &plain);
        introduction.map(Some).ok_or(HandshakeError::Malformed("introduction"))
    }

    /// Computes the agreement from both introductions.
    ///
    /// A peer's proposal is bounded by the clock, also if the peer is verified: what was agreed is proposed
    /// ever after, and a proposal above all epochs would be the last.
    pub(crate) fn agree(
        &self,
        channel: &Channel,
        own: &Introduction,
        peer: &Introduction,
        now: Now,
    ) -> Result<Agreement, HandshakeError> {
        let clock = now.unix_s.saturating_mul(1_000_000_000);
        let limit = own.lowest_epoch.max(clock.saturating_add(MAX_LEAD_NS));
        if peer.lowest_epoch > limit {
            return Err(HandshakeError::EpochAhead { proposed: peer.lowest_epoch, limit });
        }
        let (initiator, responder) = match self.role {
            Role::Initiator => (own, peer),
            Role::Responder => (peer, own),
        };
        Agreement::new(channel.hash(), initiator, responder).ok_or(HandshakeError::EpochsExhausted)
    }

    /// Makes the session.
    pub(crate) fn session(
        &self,
        agreement: &Agreement,
        peer: PublicKey,
        standing: Standing,
        now: Now,
    ) -> Box<Session> {
        let Config { binding, session_limits, .. } = &self.config;
        let peer = (peer, standing);
        Box::new(agreement.session(self.role, *binding, peer, now.steady_ms, *session_limits))
    }

    /// Ends with `error`, and reports it to the peer, with whom `channel` has keys, if it concerns the peer.
    pub(crate) fn fail(
        &mut self,
        error: HandshakeError,
        channel: &mut Channel,
        answered: &[u8],
        now: Now,
    ) -> Step {
        let sealed = error.reason().and_then(|reason| channel.seal(&refusal(reason)).ok());
        let send = sealed.map(|body| self.message(number::REFUSAL, &body));
        if let Some(send) = &send {
            self.schedule.sent(send, answered, now.steady_ms);
        }
        Step::Failed { error, send }
    }

    /// Ends after the peer's refusal. Without one, a host forged it, and the state stays.
    pub(crate) fn unless_refused<S>(
        &mut self,
        refused: Option<HandshakeError>,
        state: S,
        over: S,
    ) -> (S, Step) {
        match refused {
            Some(error) => (over, Step::Failed { error, send: None }),
            None => (state, self.ignore(Ignored::Forged)),
        }
    }

    /// Opens a refusal of the peer. None if it does not authenticate.
    pub(crate) fn refused(exchange: &mut Exchange, message: &Message<'_>) -> Option<HandshakeError> {
        let plain: Zeroizing<Vec<u8>> = exchange.channel.open(message.body)?;
        let reason = refusal_of(&plain);
        Some(reason.map_or(HandshakeError::Malformed("refusal"), HandshakeError::RefusedByPeer))
    }
}
