//! The party that begins: a user VM's agent, or a workstation.

use crate::attempt::{Attempt, AttemptId, Exchange, Seeds, Step};
use crate::binding::Role;
use crate::checks;
use crate::config::{Config, Now};
use crate::error::{Awaited, HandshakeError, Ignored};
use crate::message::{Introduction, Message, confirmation, number};
use crate::noise::{Noise, prologue};
use crate::schedule::Schedule;
use crate::session::{Agreement, Session};

/// What an initiator has agreed on, but not had confirmed.
struct Unconfirmed {
    exchange: Exchange,
    agreement: Agreement,
    session: Box<Session>,
}

enum State {
    /// Sent message 1.
    Begun(Box<Noise>),
    /// Sent message 3.
    Identified(Box<Exchange>),
    /// Sent message 5.
    Introduced(Box<Unconfirmed>),
    Over,
}

/// The party that begins a handshake. Each is for one attempt.
pub struct Initiator {
    attempt: Attempt,
    state: State,
}

impl Initiator {
    /// Begins a handshake. Returns the message to send.
    ///
    /// # Errors
    ///
    /// If the system returns no random bytes.
    pub fn start(config: Config, now: Now) -> Result<(Self, Vec<u8>), HandshakeError> {
        Self::seeded(config, Seeds::draw()?, now)
    }

    pub(crate) fn seeded(config: Config, seeds: Seeds, now: Now) -> Result<(Self, Vec<u8>), HandshakeError> {
        let Seeds { attempt: id, ephemeral, random } = seeds;
        let prologue = prologue(&config.binding, &id.0);
        let (noise, body) = Noise::begin(config.key.clone(), ephemeral, prologue)?;
        let schedule = Schedule::new(config.limits, now.steady_ms);
        let mut attempt = Attempt { role: Role::Initiator, config, random, id, schedule };
        let sent = attempt.message(number::BEGINNING, &body);
        attempt.schedule.sent(&sent, &[], now.steady_ms);
        Ok((Self { attempt, state: State::Begun(Box::new(noise)) }, sent))
    }

    /// Returns the number of this attempt, for logs.
    #[must_use]
    pub const fn id(&self) -> AttemptId {
        self.attempt.id
    }

    /// Returns what this party waits for.
    #[must_use]
    pub const fn awaits(&self) -> Awaited {
        match self.state {
            State::Begun(_) => Awaited::Answer,
            State::Identified(_) => Awaited::Evidence,
            State::Introduced(_) => Awaited::Confirmation,
            State::Over => Awaited::Nothing,
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
            State::Over => u64::MAX,
            _ => self.attempt.schedule.next_ms(true),
        }
    }

    /// Ends with the session that the responder has not confirmed.
    #[cfg(test)]
    pub(crate) fn unconfirmed(&mut self) -> Option<Box<Session>> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Introduced(agreed) => Some(agreed.session),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Repeats a message that was lost, and ends the handshake after its time limit.
    pub fn poll(&mut self, now: Now) -> Step {
        if matches!(self.state, State::Over) {
            return Step::Wait;
        }
        if self.attempt.schedule.is_over(now.steady_ms) {
            let error = self.attempt.timed_out(self.awaits());
            self.state = State::Over;
            return Step::Failed { error, send: None };
        }
        self.attempt.schedule.due(now.steady_ms).map_or(Step::Wait, Step::Send)
    }

    /// Handles a message. Any bytes are valid input.
    pub fn handle(&mut self, bytes: &[u8], now: Now) -> Step {
        if matches!(self.state, State::Over) || self.attempt.schedule.is_over(now.steady_ms) {
            return self.poll(now);
        }
        let message = match self.attempt.admit(bytes) {
            Ok(message) => message,
            Err(reason) => return self.attempt.ignore(reason),
        };
        let (next, step) = match (std::mem::replace(&mut self.state, State::Over), message.number) {
            (State::Begun(noise), number::ANSWER) => self.answered(noise, &message, bytes, now),
            (State::Identified(exchange), number::RESPONDER_EVIDENCE) => {
                self.introduced(exchange, &message, bytes, now)
            }
            (State::Introduced(agreed), number::CONFIRMATION) => self.confirmed(agreed, &message),
            (State::Identified(mut exchange), number::REFUSAL) => {
                let refused = Attempt::refused(&mut exchange, &message);
                self.attempt.unless_refused(refused, State::Identified(exchange), State::Over)
            }
            (State::Introduced(mut agreed), number::REFUSAL) => {
                let refused = Attempt::refused(&mut agreed.exchange, &message);
                self.attempt.unless_refused(refused, State::Introduced(agreed), State::Over)
            }
            (state, other) => (state, self.attempt.ignore(Ignored::NotDue(other))),
        };
        self.state = next;
        step
    }

    /// Message 2: the responder's keys. Sends message 3.
    fn answered(
        &mut self,
        mut noise: Box<Noise>,
        message: &Message<'_>,
        bytes: &[u8],
        now: Now,
    ) -> (State, Step) {
        let Some(peer) = noise.read(message.body) else {
            return (State::Begun(noise), self.attempt.ignore(Ignored::Forged));
        };
        let Attempt { config, .. } = &self.attempt;
        if checks::key(&config.trust, peer).is_err() {
            // The host can answer first, with a key of its own. The responder's answer may follow.
            noise.rewind();
            return (State::Begun(noise), self.attempt.ignore(Ignored::WrongKey));
        }
        match noise.finish() {
            Ok((channel, body)) => {
                let sent = self.attempt.message(number::IDENTITY, &body.unwrap_or_default());
                let state = State::Identified(Box::new(Exchange { channel, peer }));
                (state, self.attempt.send(sent, bytes, now))
            }
            Err(error) => (State::Over, Step::Failed { error, send: None }),
        }
    }

    /// Message 4: the responder's evidence. Sends message 5.
    fn introduced(
        &mut self,
        mut exchange: Box<Exchange>,
        message: &Message<'_>,
        bytes: &[u8],
        now: Now,
    ) -> (State, Step) {
        let introduction = match Attempt::introduction(&mut exchange, message) {
            Ok(Some(introduction)) => introduction,
            Ok(None) => return (State::Identified(exchange), self.attempt.ignore(Ignored::Forged)),
            Err(error) => {
                return (State::Over, self.attempt.fail(error, &mut exchange.channel, bytes, now));
            }
        };
        match self.conclude(&mut exchange, &introduction, now) {
            Err(error) => (State::Over, self.attempt.fail(error, &mut exchange.channel, bytes, now)),
            Ok((sent, agreement, session)) => {
                let agreed = Unconfirmed { exchange: *exchange, agreement, session };
                (State::Introduced(Box::new(agreed)), self.attempt.send(sent, bytes, now))
            }
        }
    }

    fn conclude(
        &self,
        exchange: &mut Exchange,
        peer: &Introduction,
        now: Now,
    ) -> Result<(Vec<u8>, Agreement, Box<Session>), HandshakeError> {
        let standing = self.attempt.judge(exchange, peer, now)?;
        let own = self.attempt.introduce(&exchange.channel)?;
        let agreement = self.attempt.agree(&exchange.channel, &own, peer, now)?;
        let session = self.attempt.session(&agreement, exchange.peer, standing, now);
        let body = exchange.channel.seal(&own.encode(number::INITIATOR_EVIDENCE))?;
        Ok((self.attempt.message(number::INITIATOR_EVIDENCE, &body), agreement, session))
    }

    /// Message 6: the responder has judged this party's evidence, and has the same keys.
    fn confirmed(&mut self, mut agreed: Box<Unconfirmed>, message: &Message<'_>) -> (State, Step) {
        let Some(plain) = agreed.exchange.channel.open(message.body) else {
            return (State::Introduced(agreed), self.attempt.ignore(Ignored::Forged));
        };
        // The channel has authenticated it: this comparison needs no constant time.
        if plain[..] != confirmation(&agreed.agreement.confirmation())[..] {
            return (State::Over, Step::Failed { error: HandshakeError::Unconfirmed, send: None });
        }
        (State::Over, Step::Done { session: agreed.session, send: None })
    }
}

impl std::fmt::Debug for Initiator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Initiator")
            .field("id", &self.attempt.id)
            .field("awaits", &self.awaits())
            .finish_non_exhaustive()
    }
}
