//! Entry points of fuzz targets: arbitrary bytes are a host, a peer that has keys, or a stream.
//!
//! Each function panics if this side breaks a promise. The fuzz targets and the seeded campaigns share them.

use p4shield_abi::bytes::Reader;

use crate::attempt::{Seeds, Step};
use crate::binding::{Binding, NameDigest, Role, Subject};
use crate::config::{Config, Now};
use crate::error::Awaited;
use crate::initiator::Initiator;
use crate::key::StaticKey;
use crate::message::{Message, number};
use crate::noise::{Channel, Noise, prologue};
use crate::responder::Responder;
use crate::secret::Secret;
use crate::session::Session;
use crate::stream::{Decoder, frame};
use crate::trust::Trust;

const BINDING: Binding = Binding {
    tenant: NameDigest([1; 32]),
    subject: Subject::Vm(NameDigest([2; 32])),
    configuration: [3; 32],
};

fn config(key: u8) -> Config {
    Config::new(BINDING, StaticKey::from_secret(Secret::from_bytes([key; 32])), Trust::unverified())
}

const fn at(steady_ms: u64) -> Now {
    Now { steady_ms, unix_s: 0 }
}

/// Keeps the session of a step, and returns what it sends.
fn take(step: Step, session: &mut Option<Session>) -> Option<Vec<u8>> {
    match step {
        Step::Wait => None,
        Step::Send(sent) => Some(sent),
        Step::Done { session: done, send } => {
            assert!(session.replace(*done).is_none(), "one session");
            send
        }
        Step::Failed { send, .. } => send,
    }
}

/// A host between two honest parties: it relays, changes, cuts and invents messages.
///
/// # Panics
/// If the parties do not agree, or one hangs.
pub fn host(script: &[u8]) {
    let mut script = Reader::new(script);
    let (i, first) =
        Initiator::seeded(config(1), Seeds::repeatable(1), at(0)).expect("a fixed configuration");
    let (mut i, mut r) = (i, Responder::seeded(config(2), Seeds::repeatable(2)));
    let (mut of_i, mut of_r) = (None, None);
    let mut sent = vec![first];
    let mut now = 0;
    loop {
        let [op, which, position] = script.array();
        if !script.ok() {
            break;
        }
        let mut message = sent[usize::from(which) % sent.len()].clone();
        let place = usize::from(position) % message.len();
        match op >> 1 & 7 {
            0..=2 => {}
            3 => message[place] ^= script.array::<1>()[0],
            4 => message.truncate(place),
            5 => message.extend(script.array::<4>()),
            6 => message[place..].iter_mut().for_each(|byte| *byte = script.array::<1>()[0]),
            _ => now += 50,
        }
        let answers = if op & 1 == 0 {
            [take(i.handle(&message, at(now)), &mut of_i), take(i.poll(at(now)), &mut of_i)]
        } else {
            [take(r.handle(&message, at(now)), &mut of_r), take(r.poll(at(now)), &mut of_r)]
        };
        sent.extend(answers.into_iter().flatten());
        sent.truncate(64);
    }
    take(i.poll(at(now + 20_000)), &mut of_i);
    take(r.poll(at(now + 20_000)), &mut of_r);
    assert_eq!(i.awaits(), Awaited::Nothing);
    assert!(matches!(r.awaits(), Awaited::Nothing | Awaited::Beginning));
    if let Some(a) = of_i {
        let b = of_r.expect("the responder finishes first");
        assert_eq!((a.transcript(), a.epoch()), (b.transcript(), b.epoch()));
        assert_eq!(a.records_key().expose(), b.records_key().expose());
    }
}

/// The party that a hostile peer talks to.
enum Party {
    Initiator(Box<Initiator>),
    Responder(Box<Responder>),
}

impl Party {
    fn handle(&mut self, number: u8, attempt: [u8; 16], body: &[u8]) -> Step {
        let message = Message { number, attempt, body }.encode();
        match self {
            Self::Initiator(party) => party.handle(&message, at(0)),
            Self::Responder(party) => party.handle(&message, at(0)),
        }
    }

    /// Handles a message of Noise, which this party accepts. Returns the answer's body.
    fn exchange(&mut self, number: u8, attempt: [u8; 16], body: &[u8]) -> Vec<u8> {
        let Step::Send(sent) = self.handle(number, attempt, body) else { unreachable!("Noise is honest") };
        Message::parse(&sent).expect("of this protocol").body.to_vec()
    }
}

/// A party, and the keys that a hostile peer has with it.
fn acquainted(role: Role, attempt: [u8; 16]) -> (Party, Channel) {
    let key = StaticKey::from_secret(Secret::from_bytes([7; 32]));
    let prologue = prologue(&BINDING, &attempt);
    let ephemeral = Secret::from_bytes([8; 32]);
    match role {
        Role::Initiator => {
            let seeds = Seeds::repeatable(3);
            let (party, first) = Initiator::seeded(config(1), seeds, at(0)).expect("a fixed configuration");
            let first = Message::parse(&first).expect("of this protocol").body;
            let (mut noise, second) = Noise::answer(key, ephemeral, prologue, first).expect("it is honest");
            let mut party = Party::Initiator(Box::new(party));
            noise.read(&party.exchange(number::ANSWER, attempt, &second)).expect("it is honest");
            (party, noise.finish().expect("it is finished").0)
        }
        Role::Responder => {
            let party = Responder::seeded(config(2), Seeds::repeatable(4));
            let mut party = Party::Responder(Box::new(party));
            let (mut noise, first) = Noise::begin(key, ephemeral, prologue).expect("the keys are valid");
            noise.read(&party.exchange(number::BEGINNING, attempt, &first)).expect("it is honest");
            let (mut channel, third) = noise.finish().expect("it is finished");
            let fourth = party.exchange(number::IDENTITY, attempt, &third.expect("an initiator sends it"));
            channel.open(&fourth).expect("it is honest");
            (party, channel)
        }
    }
}

/// A peer that has keys, and says anything under them.
///
/// # Panics
/// If the party has a session without the peer's confirmation.
pub fn peer(script: &[u8]) {
    let mut script = Reader::new(script);
    let [op] = script.array();
    let attempt = Seeds::repeatable(3).attempt.0;
    let role = if op & 1 == 0 { Role::Initiator } else { Role::Responder };
    let (mut party, mut channel) = acquainted(role, attempt);
    let mut session = None;
    loop {
        let [number, len] = script.array();
        if !script.ok() {
            break;
        }
        // Mostly what a message of this number begins with.
        let number = number % 8;
        let mut plain: Vec<u8> = (0..len).map(|_| script.array::<1>()[0]).collect();
        if len & 1 == 0 {
            plain.splice(..plain.len().min(2), [number, len >> 1 & 1]);
        }
        let sealed = channel.seal(&plain).expect("it fits");
        take(party.handle(number, attempt, &sealed), &mut session);
        if let Some(session) = &session {
            // Only a well-formed introduction to a responder makes one: the confirmation to an initiator
            // contains a secret that this peer does not compute.
            assert!(session.role() == Role::Responder && !session.standing().is_verified());
        }
    }
}

/// Any bytes as a stream, in pieces of any length.
///
/// # Panics
/// If a message is not what its frame contains.
pub fn stream(bytes: &[u8]) {
    let Some((pieces, bytes)) = bytes.split_first() else { return };
    let mut decoder = Decoder::new();
    let mut read = Vec::new();
    'stream: for mut piece in bytes.chunks(usize::from(*pieces).max(1)) {
        loop {
            match decoder.next(&mut piece) {
                Ok(Some(message)) => read.extend(frame(&message).expect("a message fits into a frame")),
                Ok(None) => break,
                Err(_) => break 'stream,
            }
        }
        assert!(piece.is_empty(), "the decoder takes all");
    }
    assert!(bytes.starts_with(&read));
}
