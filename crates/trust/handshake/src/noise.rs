//! The Noise handshake `XX`, as transactions: a message that is refused changes nothing.
//!
//! `snow` restores its hash and chaining key when it refuses a message, but not the key of its cipher
//! (0.10: `SymmetricState::checkpoint`). A host that changes the last byte of message 3 would make the
//! genuine message unreadable, too. A state that may be damaged is therefore built again: it follows from
//! the static key, the ephemeral key and the message that was read before.

use snow::{HandshakeState, TransportState};

use crate::binding::{Binding, PROTOCOL, Role, joined};
use crate::checks;
use crate::crypto::Primitives;
use crate::error::HandshakeError;
use crate::key::{PublicKey, StaticKey};
use crate::message::{MESSAGE_LIMIT, TAG_SIZE};
use crate::secret::Secret;
use zeroize::Zeroizing;

const PATTERN: &str = "Noise_XX_25519_AESGCM_SHA256";
/// More than messages 1 to 3 need: two keys and two tags.
const ROOM: usize = 128;

/// Returns what both parties mix into the handshake before its first message, which `attempt` numbers.
pub(crate) fn prologue(binding: &Binding, attempt: &[u8]) -> Vec<u8> {
    joined(&[PROTOCOL, attempt, &checks::identity(binding)])
}

/// Returns the error for what cannot fail with this configuration.
fn failed(error: snow::Error) -> HandshakeError {
    HandshakeError::Noise(error.to_string())
}

/// What a state is built from.
struct Origin {
    role: Role,
    key: StaticKey,
    ephemeral: Secret,
    prologue: Vec<u8>,
    /// Responder: message 1.
    first: Vec<u8>,
}

impl Origin {
    /// Builds the state of a party that waits for its first answer, and the message that it sent.
    fn build(&self) -> Result<(HandshakeState, Vec<u8>), snow::Error> {
        let primitives = Primitives { curve: self.key.curve(), ephemeral: self.ephemeral.clone() };
        let builder = snow::Builder::with_resolver(PATTERN.parse()?, Box::new(primitives))
            .local_private_key(self.key.expose())?
            .prologue(&self.prologue)?;
        let mut state = match self.role {
            Role::Initiator => builder.build_initiator()?,
            Role::Responder => {
                let mut state = builder.build_responder()?;
                state.read_message(&self.first, &mut [])?;
                state
            }
        };
        let sent = write(&mut state)?;
        Ok((state, sent))
    }
}

/// Writes a message without a payload.
fn write(state: &mut HandshakeState) -> Result<Vec<u8>, snow::Error> {
    let mut out = [0; ROOM];
    let len = state.write_message(&[], &mut out)?;
    Ok(out[..len].to_vec())
}

/// A handshake between a party's first message and the one that it waits for.
pub(crate) struct Noise {
    origin: Origin,
    state: HandshakeState,
}

impl Noise {
    /// Begins as initiator. Returns message 1.
    pub(crate) fn begin(
        key: StaticKey,
        ephemeral: Secret,
        prologue: Vec<u8>,
    ) -> Result<(Self, Vec<u8>), HandshakeError> {
        let origin = Origin { role: Role::Initiator, key, ephemeral, prologue, first: Vec::new() };
        let (state, sent) = origin.build().map_err(failed)?;
        Ok((Self { origin, state }, sent))
    }

    /// Answers message 1 as responder. Returns message 2; none if message 1 is invalid.
    pub(crate) fn answer(
        key: StaticKey,
        ephemeral: Secret,
        prologue: Vec<u8>,
        first: &[u8],
    ) -> Option<(Self, Vec<u8>)> {
        let origin = Origin { role: Role::Responder, key, ephemeral, prologue, first: first.to_vec() };
        let (state, sent) = origin.build().ok()?;
        Some((Self { origin, state }, sent))
    }

    /// Reads the message that is due: 2 or 3. Returns the peer's static key, which authenticated, or none if
    /// the message does not authenticate; then nothing has changed.
    pub(crate) fn read(&mut self, message: &[u8]) -> Option<PublicKey> {
        let peer = match self.state.read_message(message, &mut []) {
            Ok(_) => self.state.get_remote_static().and_then(|key| key.first_chunk().copied()),
            Err(_) => None,
        };
        if peer.is_none() {
            // Without a static key of the peer the state is as before: the message failed before `snow`
            // changed a cipher that it does not set anew.
            if self.state.get_remote_static().is_some() {
                self.rewind();
            }
        }
        peer.map(PublicKey)
    }

    /// Returns to the state before [`Self::read`].
    pub(crate) fn rewind(&mut self) {
        if let Ok((state, _)) = self.origin.build() {
            self.state = state;
        }
    }

    /// Ends the handshake. The initiator gets message 3 to send.
    pub(crate) fn finish(mut self) -> Result<(Channel, Option<Vec<u8>>), HandshakeError> {
        let sent = match self.origin.role {
            Role::Initiator => Some(write(&mut self.state).map_err(failed)?),
            Role::Responder => None,
        };
        let hash = self.state.get_handshake_hash().first_chunk().copied();
        let hash = hash.ok_or_else(|| HandshakeError::Noise("no handshake hash".to_owned()))?;
        let transport = self.state.into_transport_mode().map_err(failed)?;
        Ok((Channel { transport, hash }, sent))
    }
}

/// The keys of a finished Noise handshake.
pub(crate) struct Channel {
    transport: TransportState,
    hash: [u8; 32],
}

impl Channel {
    /// Returns the handshake hash: the name of this exchange, which no other exchange has.
    pub(crate) const fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// Seals the contents of a message.
    pub(crate) fn seal(&mut self, plain: &[u8]) -> Result<Vec<u8>, HandshakeError> {
        let mut out = vec![0; plain.len() + TAG_SIZE];
        let len = self.transport.write_message(plain, &mut out).map_err(failed)?;
        out.truncate(len);
        Ok(out)
    }

    /// Opens the contents of the peer's next message; none if they do not authenticate. Then nothing has
    /// changed.
    pub(crate) fn open(&mut self, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let len = sealed.len().checked_sub(TAG_SIZE).filter(|len| *len <= MESSAGE_LIMIT)?;
        let mut plain = Zeroizing::new(vec![0; len]);
        self.transport.read_message(sealed, &mut plain).ok()?;
        Some(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::Curve;

    fn begun() -> (Noise, Vec<u8>, Noise, Vec<u8>) {
        let key = |n| StaticKey::on(Curve::X25519, Secret::from_bytes([n; 32]));
        let seed = |n| Secret::from_bytes([n; 32]);
        let (i, first) = Noise::begin(key(1), seed(2), b"prologue".to_vec()).unwrap();
        let (r, second) = Noise::answer(key(3), seed(4), b"prologue".to_vec(), &first).unwrap();
        (i, first, r, second)
    }

    #[test]
    fn a_refused_message_changes_nothing() {
        let (mut i, _, mut r, second) = begun();
        for n in 0..second.len() {
            let mut changed = second.clone();
            changed[n] ^= 1;
            assert!(i.read(&changed).is_none(), "byte {n}");
            assert!(i.read(&second[..n]).is_none(), "cut at {n}");
        }
        assert!(i.read(&second).is_some());
        let (a, third) = i.finish().unwrap();
        let third = third.unwrap();
        for n in 0..third.len() {
            let mut changed = third.clone();
            changed[n] ^= 1;
            assert!(r.read(&changed).is_none(), "byte {n}");
            assert!(r.read(&third[..n]).is_none(), "cut at {n}");
        }
        assert!(r.read(&third).is_some());
        let (b, _) = r.finish().unwrap();
        assert_eq!(a.hash(), b.hash());
    }

    /// The reason for building the state again. If this fails, a later `snow` restores its cipher, too.
    #[test]
    fn snow_alone_loses_the_genuine_message() {
        let (mut i, _, mut r, second) = begun();
        i.read(&second).unwrap();
        let third = i.finish().unwrap().1.unwrap();
        let mut changed = third.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert!(r.state.read_message(&changed, &mut []).is_err());
        assert!(r.state.read_message(&third, &mut []).is_err(), "the genuine message is unreadable");
        r.rewind();
        assert!(r.read(&third).is_some());
    }

    #[test]
    fn a_rebuilt_state_sends_the_same_messages() {
        let (i, first, r, second) = begun();
        assert_eq!(i.origin.build().unwrap().1, first);
        assert_eq!(r.origin.build().unwrap().1, second);
    }

    #[test]
    fn payloads_and_points_of_small_order_are_refused() {
        let key = || StaticKey::on(Curve::X25519, Secret::from_bytes([1; 32]));
        let seed = || Secret::from_bytes([2; 32]);
        let (_, first, ..) = begun();
        for message in [[first.as_slice(), b"x"].concat(), vec![0; 32], first[..31].to_vec(), Vec::new()] {
            assert!(Noise::answer(key(), seed(), Vec::new(), &message).is_none());
        }
    }
}
