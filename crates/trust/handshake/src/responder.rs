//! The party that answers: a P4 VM.

use crate::attempt::{Attempt, AttemptId, Exchange, Seeds, Step};
use crate::binding::Role;
use crate::checks;
use crate::config::{Config, Now};
use crate::error::{Awaited, HandshakeError, Ignored};
use crate::message::{ATTEMPT_SIZE, Introduction, Message, confirmation, number};
use crate::noise::{Noise, prologue};
use crate::schedule::Schedule;
use crate::secret::Secret;
use crate::session::Session;

/// What a responder has said in message 4.
struct Introduced {
    exchange: Exchange,
    own: Introduction,
}

enum State {
    /// No message came yet; the seed of the ephemeral key.
    Listening(Secret),
    /// Sent message 2.
    Answered(Box<Noise>),
    /// Sent message 4.
    Introduced(Box<Introduced>),
    /// Sent message 6.
    Agreed,
    /// Failed, or the initiator uses the session.
    Over,
}

/// The party that answers a handshake. Each is for one attempt: after [`Step::Failed`], or the first use of
/// the session, the caller makes another one for the next attempt.
///
/// After [`Step::Done`] the initiator may not have message 6 yet. The caller keeps the responder, which
/// repeats the message, and older keys until it calls [`Responder::used`]. Without that the handshake fails
/// in the end, and the session is void.
pub struct Responder {
    attempt: Attempt,
    state: State,
}

impl Responder {
    /// A responder that waits for an initiator.
    ///
    /// # Errors
    ///
    /// If the system returns no random bytes.
    pub fn new(config: Config) -> Result<Self, HandshakeError> {
        Ok(Self::seeded(config, Seeds::draw()?))
    }

    pub(crate) fn seeded(config: Config, seeds: Seeds) -> Self {
        let Seeds { ephemeral, random, .. } = seeds;
        let schedule = Schedule::new(config.limits, 0);
        let id = AttemptId([0; ATTEMPT_SIZE]);
        let attempt = Attempt { role: Role::Responder, config, random, id, schedule };
        Self { attempt, state: State::Listening(ephemeral) }
    }

    /// Returns the number of the attempt, for logs; none before its first message.
    #[must_use]
    pub fn id(&self) -> Option<AttemptId> {
        (!matches!(self.state, State::Listening(_))).then_some(self.attempt.id)
    }

    /// Returns what this party waits for.
    #[must_use]
    pub const fn awaits(&self) -> Awaited {
        match self.state {
            State::Listening(_) => Awaited::Beginning,
            State::Answered(_) => Awaited::Identity,
            State::Introduced(_) => Awaited::Evidence,
            State::Agreed => Awaited::Use,
            State::Over => Awaited::Nothing,
        }
    }

    /// Ends the handshake after [`Step::Done`]: something authenticated under the session's keys.
    pub fn used(&mut self) {
        if matches!(self.state, State::Agreed) {
            self.state = State::Over;
        }
    }

    /// Returns how many messages were ignored, and why the last one.
    #[must_use]
    pub const fn ignored(&self) -> (u64, Option<Ignored>) {
        self.attempt.schedule.ignored()
    }

    /// Returns when [`Self::poll`] has something to do, by the steady clock.
    #[must_use]
    pub fn poll_at_ms(&self) -> u64 {
        match self.state {
            State::Listening(_) | State::Over => u64::MAX,
            _ => self.attempt.schedule.next_ms(false),
        }
    }

    /// Ends the handshake after its time limit. Before message 1 there is none.
    pub fn poll(&mut self, now: Now) -> Step {
        if matches!(self.state, State::Listening(_) | State::Over) {
            return Step::Wait;
        }
        if !self.attempt.schedule.is_over(now.steady_ms) {
            return Step::Wait;
        }
        let error = self.attempt.timed_out(self.awaits());
        self.state = State::Over;
        Step::Failed { error, send: None }
    }

    /// Handles a message. Any bytes are valid input.
    pub fn handle(&mut self, bytes: &[u8], now: Now) -> Step {
        if matches!(self.state, State::Listening(_)) {
            return self.begin(bytes, now);
        }
        if self.attempt.schedule.is_over(now.steady_ms) {
            return self.poll(now);
        }
        if let Some(sent) = self.attempt.schedule.answer_again(bytes) {
            return Step::Send(sent);
        }
        let message = match self.attempt.admit(bytes) {
            Ok(message) => message,
            Err(reason) => return self.attempt.ignore(reason),
        };
        let (next, step) = match (std::mem::replace(&mut self.state, State::Over), message.number) {
            (State::Answered(noise), number::IDENTITY) => self.identified(noise, &message, bytes, now),
            (State::Introduced(introduced), number::INITIATOR_EVIDENCE) => {
                self.introduced(introduced, &message, bytes, now)
            }
            (State::Introduced(mut introduced), number::REFUSAL) => {
                let refused = Attempt::refused(&mut introduced.exchange, &message);
                self.attempt.unless_refused(refused, State::Introduced(introduced), State::Over)
            }
            (state, other) => (state, self.attempt.ignore(Ignored::NotDue(other))),
        };
        self.state = next;
        step
    }

    /// Message 1: an attempt begins. Sends message 2.
    fn begin(&mut self, bytes: &[u8], now: Now) -> Step {
        let State::Listening(ephemeral) = &self.state else { return Step::Wait };
        let message = match Message::parse(bytes) {
            Ok(message) if message.number == number::BEGINNING => message,
            Ok(message) => return self.attempt.ignore(Ignored::NotDue(message.number)),
            Err(reason) => return self.attempt.ignore(reason),
        };
        let Config { binding, key, limits, .. } = &self.attempt.config;
        let prologue = prologue(binding, &message.attempt);
        let answer = Noise::answer(key.clone(), ephemeral.clone(), prologue, message.body);
        let Some((noise, body)) = answer else {
            return self.attempt.ignore(Ignored::Malformed);
        };
        self.attempt.schedule = Schedule::new(*limits, now.steady_ms);
        self.attempt.id = AttemptId(message.attempt);
        self.state = State::Answered(Box::new(noise));
        let sent = self.attempt.message(number::ANSWER, &body);
        self.attempt.send(sent, bytes, now)
    }

    /// Message 3: the initiator's static key. Sends message 4.
    fn identified(
        &mut self,
        mut noise: Box<Noise>,
        message: &Message<'_>,
        bytes: &[u8],
        now: Now,
    ) -> (State, Step) {
        let Some(peer) = noise.read(message.body) else {
            return (State::Answered(noise), self.attempt.ignore(Ignored::Forged));
        };
        let mut exchange = match noise.finish() {
            Ok((channel, _)) => Exchange { channel, peer },
            Err(error) => return (State::Over, Step::Failed { error, send: None }),
        };
        match self.introduce(&mut exchange) {
            Ok((sent, own)) => {
                let introduced = Box::new(Introduced { exchange, own });
                (State::Introduced(introduced), self.attempt.send(sent, bytes, now))
            }
            Err(error) => (State::Over, self.attempt.fail(error, &mut exchange.channel, bytes, now)),
        }
    }

    fn introduce(&self, exchange: &mut Exchange) -> Result<(Vec<u8>, Introduction), HandshakeError> {
        // Only the sender of message 1 can have sent message 3: another key is that sender's own.
        checks::key(&self.attempt.config.trust, exchange.peer)?;
        let own = self.attempt.introduce(&exchange.channel)?;
        let body = exchange.channel.seal(&own.encode(number::RESPONDER_EVIDENCE))?;
        Ok((self.attempt.message(number::RESPONDER_EVIDENCE, &body), own))
    }

    /// Message 5: the initiator's evidence. Sends message 6, and releases the session.
    fn introduced(
        &mut self,
        mut introduced: Box<Introduced>,
        message: &Message<'_>,
        bytes: &[u8],
        now: Now,
    ) -> (State, Step) {
        let peer = match Attempt::introduction(&mut introduced.exchange, message) {
            Ok(Some(peer)) => peer,
            Ok(None) => return (State::Introduced(introduced), self.attempt.ignore(Ignored::Forged)),
            Err(error) => {
                let channel = &mut introduced.exchange.channel;
                return (State::Over, self.attempt.fail(error, channel, bytes, now));
            }
        };
        match self.conclude(&mut introduced, &peer, now) {
            Ok((sent, session)) => {
                self.attempt.schedule.sent(&sent, bytes, now.steady_ms);
                (State::Agreed, Step::Done { session, send: Some(sent) })
            }
            Err(error) => {
                let channel = &mut introduced.exchange.channel;
                (State::Over, self.attempt.fail(error, channel, bytes, now))
            }
        }
    }

    fn conclude(
        &self,
        introduced: &mut Introduced,
        peer: &Introduction,
        now: Now,
    ) -> Result<(Vec<u8>, Box<Session>), HandshakeError> {
        let Introduced { exchange, own } = introduced;
        let standing = self.attempt.judge(exchange, peer, now)?;
        let agreement = self.attempt.agree(&exchange.channel, own, peer, now)?;
        let body = exchange.channel.seal(&confirmation(&agreement.confirmation()))?;
        let session = self.attempt.session(&agreement, exchange.peer, standing, now);
        Ok((self.attempt.message(number::CONFIRMATION, &body), session))
    }
}

impl std::fmt::Debug for Responder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Responder").field("awaits", &self.awaits()).finish_non_exhaustive()
    }
}
