//! Bytes of messages.
//!
//! Every message begins with a header in clear: `P4H`, the version, the message's number, and the number of
//! the attempt. The rest of messages 1 to 3 is Noise's; the rest of the others is sealed by Noise and begins
//! with the message's number again. Integers are little-endian.
//!
//! | sealed contents of | bytes |
//! |---|---|
//! | 4 and 5, introductions | number, flags (bit 0: allows unverified parties), lowest epoch (8), random bytes (32), evidence |
//! | 6, confirmation | number, confirmation (32) |
//! | 7, refusal | number, reason |

use p4shield_abi::bytes::Reader;
use p4shield_abi::handshake_page::MESSAGE_ROOM;
use zeroize::Zeroizing;

use crate::error::{Ignored, RefusalReason};
use crate::secret::{KEY_SIZE, Secret};

/// Most bytes of a message: what a slot of a handshake page holds.
pub const MESSAGE_LIMIT: usize = MESSAGE_ROOM;

const MAGIC: &[u8; 3] = b"P4H";
const VERSION: u8 = 1;
pub(crate) const ATTEMPT_SIZE: usize = 16;
pub(crate) const HEADER_SIZE: usize = 3 + 1 + 1 + ATTEMPT_SIZE;
pub(crate) const TAG_SIZE: usize = 16;
const INTRODUCTION_SIZE: usize = 1 + 1 + 8 + KEY_SIZE;

/// Most bytes of evidence.
pub const EVIDENCE_LIMIT: usize = MESSAGE_LIMIT - HEADER_SIZE - TAG_SIZE - INTRODUCTION_SIZE;

/// Numbers of messages.
pub(crate) mod number {
    pub(crate) const BEGINNING: u8 = 1;
    pub(crate) const ANSWER: u8 = 2;
    pub(crate) const IDENTITY: u8 = 3;
    pub(crate) const RESPONDER_EVIDENCE: u8 = 4;
    pub(crate) const INITIATOR_EVIDENCE: u8 = 5;
    pub(crate) const CONFIRMATION: u8 = 6;
    pub(crate) const REFUSAL: u8 = 7;
}

const ALLOWS_UNVERIFIED: u8 = 1;

/// A message with its header read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) number: u8,
    pub(crate) attempt: [u8; ATTEMPT_SIZE],
    pub(crate) body: &'a [u8],
}

impl<'a> Message<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, Ignored> {
        let mut r = Reader::new(bytes);
        let (magic, version, number, attempt) = (r.array(), r.array::<1>(), r.array::<1>(), r.array());
        if !r.ok() || magic != *MAGIC || bytes.len() > MESSAGE_LIMIT {
            return Err(Ignored::Malformed);
        }
        if version != [VERSION] {
            return Err(Ignored::Version(version[0]));
        }
        Ok(Self { number: number[0], attempt, body: &bytes[HEADER_SIZE..] })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_SIZE + self.body.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[VERSION, self.number]);
        out.extend_from_slice(&self.attempt);
        out.extend_from_slice(self.body);
        out
    }
}

/// Contents of messages 4 and 5.
#[derive(Clone, Debug)]
pub(crate) struct Introduction {
    pub(crate) allows_unverified: bool,
    pub(crate) lowest_epoch: u64,
    pub(crate) random: Secret,
    pub(crate) evidence: Vec<u8>,
}

impl Introduction {
    pub(crate) fn encode(&self, number: u8) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(INTRODUCTION_SIZE + self.evidence.len()));
        out.extend_from_slice(&[number, if self.allows_unverified { ALLOWS_UNVERIFIED } else { 0 }]);
        out.extend_from_slice(&self.lowest_epoch.to_le_bytes());
        out.extend_from_slice(self.random.expose());
        out.extend_from_slice(&self.evidence);
        out
    }

    pub(crate) fn decode(number: u8, bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let ([found, flags], lowest_epoch, random) = (r.array::<2>(), r.u64(), r.array());
        let is_known = r.ok() && found == number && flags & !ALLOWS_UNVERIFIED == 0;
        is_known.then(|| Self {
            allows_unverified: flags & ALLOWS_UNVERIFIED != 0,
            lowest_epoch,
            random: Secret::from_bytes(random),
            evidence: bytes[INTRODUCTION_SIZE..].to_vec(),
        })
    }

    /// Returns what the transcript contains of it: everything but the random bytes.
    pub(crate) fn public_part(&self) -> Vec<u8> {
        let mut out = vec![u8::from(self.allows_unverified)];
        out.extend_from_slice(&self.lowest_epoch.to_le_bytes());
        out.extend_from_slice(&self.evidence);
        out
    }
}

/// Returns the contents of message 6.
pub(crate) fn confirmation(confirmation: &[u8; 32]) -> Vec<u8> {
    [&[number::CONFIRMATION], confirmation.as_slice()].concat()
}

/// Returns the contents of a refusal.
pub(crate) fn refusal(reason: RefusalReason) -> Vec<u8> {
    vec![number::REFUSAL, reason.number()]
}

/// Reads the contents of a refusal.
pub(crate) fn refusal_of(bytes: &[u8]) -> Option<RefusalReason> {
    match bytes {
        [number::REFUSAL, reason] => Some(RefusalReason::of(*reason)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_back_and_nothing_else_does() {
        let message = Message { number: 3, attempt: [7; ATTEMPT_SIZE], body: b"body" };
        let bytes = message.encode();
        assert_eq!(Message::parse(&bytes), Ok(message));
        for cut in 0..HEADER_SIZE {
            assert_eq!(Message::parse(&bytes[..cut]), Err(Ignored::Malformed));
        }
        let mut other = bytes.clone();
        other[3] = 2;
        assert_eq!(Message::parse(&other), Err(Ignored::Version(2)));
        assert_eq!(Message::parse(&vec![b'P'; MESSAGE_LIMIT + 1]), Err(Ignored::Malformed));
        let body = vec![0; MESSAGE_LIMIT + 1 - HEADER_SIZE];
        assert_eq!(Message::parse(&Message { body: &body, ..message }.encode()), Err(Ignored::Malformed));
    }

    #[test]
    fn introductions_read_back_under_their_own_number() {
        let evidence = vec![9; EVIDENCE_LIMIT];
        let random = Secret::from_bytes([5; 32]);
        let written = Introduction { allows_unverified: true, lowest_epoch: 77, random, evidence };
        let bytes = written.encode(number::RESPONDER_EVIDENCE);
        let read = Introduction::decode(number::RESPONDER_EVIDENCE, &bytes).unwrap();
        assert_eq!(read.encode(number::RESPONDER_EVIDENCE), bytes);
        assert!(Introduction::decode(number::INITIATOR_EVIDENCE, &bytes).is_none());
        for cut in 0..INTRODUCTION_SIZE {
            assert!(Introduction::decode(number::RESPONDER_EVIDENCE, &bytes[..cut]).is_none());
        }
        let mut flagged = bytes.clone();
        flagged[1] = 2;
        assert!(Introduction::decode(number::RESPONDER_EVIDENCE, &flagged).is_none(), "unknown flags");
        assert_eq!(bytes.len() + HEADER_SIZE + TAG_SIZE, MESSAGE_LIMIT);
    }

    #[test]
    fn refusals_read_back() {
        for n in 0..=u8::MAX {
            let reason = RefusalReason::of(n);
            assert_eq!(reason.number(), n);
            assert_eq!(refusal_of(&refusal(reason)), Some(reason));
            assert!(!reason.to_string().is_empty());
        }
        assert_eq!(refusal_of(&[number::REFUSAL]), None);
        assert_eq!(refusal_of(&[number::CONFIRMATION, 1]), None);
    }
}
