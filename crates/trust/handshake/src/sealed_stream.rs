//! Messages under a session's keys, on a stream.
//!
//! AES-256-GCM with one key for each direction. The nonce is the message's number, with a bit that marks the
//! last one: a host that changes, repeats, reorders or cuts messages is noticed, also at the end.

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};

use crate::message::{MESSAGE_LIMIT, TAG_SIZE};
use crate::secret::Secret;

/// Most bytes of the contents of one message.
pub const CONTENTS_LIMIT: usize = MESSAGE_LIMIT - TAG_SIZE;

/// Reason why a sealed stream is refused, or cannot go on. The connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealedStreamError {
    /// A message does not authenticate as the next one.
    #[error("a message on the stream does not authenticate: the host changed, repeated or left out one")]
    Forged,
    /// A message came after the last one, or is to be sealed after it.
    #[error("the stream has ended, and another message follows")]
    Ended,
    /// The contents do not fit into a message.
    #[error("{len} bytes do not fit into a message of {CONTENTS_LIMIT}")]
    TooLong {
        /// Their length.
        len: usize,
    },
}

fn nonce(number: u64, is_last: bool) -> Nonce<aes_gcm::aead::consts::U12> {
    let mut nonce = [0; 12];
    nonce[0] = u8::from(is_last);
    nonce[4..].copy_from_slice(&number.to_le_bytes());
    nonce.into()
}

/// A key with the number of its next message; none after the last one.
struct Direction {
    cipher: Aes256Gcm,
    next: Option<u64>,
}

impl Direction {
    fn new(key: &Secret) -> Self {
        Self { cipher: Aes256Gcm::new(key.expose().into()), next: Some(0) }
    }

    /// Takes the number of a message.
    fn advance(&mut self, number: u64, is_last: bool) {
        self.next = if is_last { None } else { number.checked_add(1) };
    }
}

/// Seals messages of one direction. A session has one for each party.
pub struct StreamSealer(Direction);

impl StreamSealer {
    pub(crate) fn new(key: &Secret) -> Self {
        Self(Direction::new(key))
    }

    /// Seals the next message. None follows the last one.
    ///
    /// # Errors
    ///
    /// If the contents are too long, or follow the last message.
    pub fn seal(&mut self, contents: &[u8], is_last: bool) -> Result<Vec<u8>, SealedStreamError> {
        if contents.len() > CONTENTS_LIMIT {
            return Err(SealedStreamError::TooLong { len: contents.len() });
        }
        let number = self.0.next.ok_or(SealedStreamError::Ended)?;
        let mut out = Vec::with_capacity(contents.len() + TAG_SIZE);
        out.extend_from_slice(contents);
        let nonce = nonce(number, is_last);
        let tag = self.0.cipher.encrypt_inout_detached(&nonce, &[], out.as_mut_slice().into());
        out.extend_from_slice(&tag.expect("a message is far below GCM's 64 GiB"));
        self.0.advance(number, is_last);
        Ok(out)
    }

    /// Returns how many messages were sealed; none after the last one.
    #[must_use]
    pub const fn sealed(&self) -> Option<u64> {
        self.0.next
    }
}

/// Opens messages of one direction. A session has one for each party.
pub struct StreamOpener(Direction);

impl StreamOpener {
    pub(crate) fn new(key: &Secret) -> Self {
        Self(Direction::new(key))
    }

    /// Opens the next message. Returns its contents, and whether it is the last one.
    ///
    /// # Errors
    ///
    /// If it is not the next message of the peer. Nothing else opens then, because a stream loses nothing.
    pub fn open(&mut self, sealed: &[u8]) -> Result<(Vec<u8>, bool), SealedStreamError> {
        let number = self.0.next.take().ok_or(SealedStreamError::Ended)?;
        let (text, tag) = sealed.split_last_chunk::<TAG_SIZE>().ok_or(SealedStreamError::Forged)?;
        let tag = Tag::from(*tag);
        for is_last in [false, true] {
            let mut plain = text.to_vec();
            let nonce = nonce(number, is_last);
            let buffer = plain.as_mut_slice().into();
            if self.0.cipher.decrypt_inout_detached(&nonce, &[], buffer, &tag).is_ok() {
                self.0.advance(number, is_last);
                return Ok((plain, is_last));
            }
        }
        Err(SealedStreamError::Forged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> (StreamSealer, StreamOpener) {
        let key = Secret::from_bytes([7; 32]);
        (StreamSealer::new(&key), StreamOpener::new(&key))
    }

    #[test]
    fn a_sealed_stream_opens_in_order_up_to_its_end() {
        let (mut sealer, mut opener) = ends();
        for n in 0..10_u8 {
            let sealed = sealer.seal(&[n], false).unwrap();
            assert_eq!(opener.open(&sealed), Ok((vec![n], false)));
        }
        assert_eq!(sealer.sealed(), Some(10));
        let long = vec![1; CONTENTS_LIMIT + 1];
        assert_eq!(sealer.seal(&long, false), Err(SealedStreamError::TooLong { len: CONTENTS_LIMIT + 1 }));
        let last = sealer.seal(&long[1..], true).unwrap();
        assert_eq!(last.len(), MESSAGE_LIMIT);
        assert_eq!(opener.open(&last), Ok((long[1..].to_vec(), true)));
        assert_eq!(sealer.seal(b"more", false), Err(SealedStreamError::Ended));
        assert_eq!(opener.open(&last), Err(SealedStreamError::Ended));
    }

    /// Each case gets three messages as the host relays them, and ends in a refusal or without an end.
    #[test]
    fn a_changed_or_cut_sealed_stream_is_noticed() {
        let (mut sealer, _) = ends();
        let sealed =
            [(b"one", false), (b"two", false), (b"end", true)].map(|(m, l)| sealer.seal(m, l).unwrap());
        let relayed = |order: &[usize]| {
            let mut opener = ends().1;
            order.iter().map(|n| opener.open(&sealed[*n]).map(|(_, is_last)| is_last)).collect::<Vec<_>>()
        };
        assert_eq!(relayed(&[0, 1, 2]), [Ok(false), Ok(false), Ok(true)]);
        assert_eq!(relayed(&[0, 1]), [Ok(false), Ok(false)], "the end is missing");
        for order in [[1, 0, 2], [0, 0, 1], [0, 2, 1], [2, 0, 1]] {
            let results = relayed(&order);
            assert!(results.contains(&Err(SealedStreamError::Forged)), "{order:?}: {results:?}");
            let refused = results.iter().position(Result::is_err).unwrap();
            assert!(results[refused..].iter().all(Result::is_err), "nothing opens after a refusal");
        }
        for n in 0..sealed[0].len() {
            let mut changed = sealed[0].clone();
            changed[n] ^= 1;
            assert_eq!(ends().1.open(&changed), Err(SealedStreamError::Forged), "byte {n}");
            assert_eq!(ends().1.open(&sealed[0][..n]), Err(SealedStreamError::Forged), "cut at {n}");
        }
        let mut other = StreamOpener::new(&Secret::from_bytes([8; 32]));
        assert_eq!(other.open(&sealed[0]), Err(SealedStreamError::Forged));
    }
}
