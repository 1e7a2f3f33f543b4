//! Messages on a stream: a TCP or vsock connection between a workstation and a P4 VM.
//!
//! Each message is preceded by its length, a little-endian `u32` from 1 to [`MESSAGE_LIMIT`].

use crate::message::MESSAGE_LIMIT;

const LENGTH_SIZE: usize = 4;

/// A stream contains no messages. The connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the peer announces a message of {len} bytes (1 to {MESSAGE_LIMIT}): it does not speak this protocol"
)]
pub struct StreamError {
    /// The length that it announces.
    pub len: u32,
}

/// Returns `message` with its length in front.
///
/// # Errors
///
/// If it is empty or too long.
pub fn frame(message: &[u8]) -> Result<Vec<u8>, StreamError> {
    let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
    check(len)?;
    Ok([&len.to_le_bytes(), message].concat())
}

fn check(len: u32) -> Result<usize, StreamError> {
    match len as usize {
        1..=MESSAGE_LIMIT => Ok(len as usize),
        _ => Err(StreamError { len }),
    }
}

/// Cuts a stream into messages. Holds the bytes of one message at most.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The message so far, with its length in front.
    held: Vec<u8>,
    error: Option<StreamError>,
}

impl Decoder {
    /// A decoder at the beginning of a stream.
    #[must_use]
    pub const fn new() -> Self {
        Self { held: Vec::new(), error: None }
    }

    /// Takes bytes from the front of `from`, until a message is complete, which it returns, or `from` is
    /// empty.
    ///
    /// # Errors
    ///
    /// If a length is out of range; from then on, always.
    pub fn next(&mut self, from: &mut &[u8]) -> Result<Option<Vec<u8>>, StreamError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.take(LENGTH_SIZE, from);
        let Some(len) = self.held.first_chunk::<LENGTH_SIZE>() else { return Ok(None) };
        let len = check(u32::from_le_bytes(*len)).inspect_err(|error| self.error = Some(*error))?;
        self.take(LENGTH_SIZE + len, from);
        if self.held.len() < LENGTH_SIZE + len {
            return Ok(None);
        }
        let message = self.held[LENGTH_SIZE..].to_vec();
        self.held.clear();
        Ok(Some(message))
    }

    /// Whether the stream may end here: no message is incomplete.
    #[must_use]
    pub fn is_between_messages(&self) -> bool {
        self.held.is_empty() && self.error.is_none()
    }

    /// Takes bytes until `target` are held. Memory grows with the bytes that came, not with the length
    /// that they announce.
    fn take(&mut self, target: usize, from: &mut &[u8]) {
        let wanted = target.saturating_sub(self.held.len()).min(from.len());
        let (taken, rest) = from.split_at(wanted);
        self.held.extend_from_slice(taken);
        *from = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(stream: &[u8], pieces: usize) -> Vec<Vec<u8>> {
        let mut decoder = Decoder::new();
        let mut found = Vec::new();
        for mut piece in stream.chunks(pieces) {
            while let Some(message) = decoder.next(&mut piece).unwrap() {
                found.push(message);
            }
            assert!(piece.is_empty());
        }
        assert!(decoder.is_between_messages());
        found
    }

    #[test]
    fn messages_survive_any_cut_of_the_stream() {
        let messages = vec![vec![1], vec![2; 300], vec![3; MESSAGE_LIMIT], vec![4; 5]];
        let stream: Vec<u8> = messages.iter().flat_map(|m| frame(m).unwrap()).collect();
        for pieces in [1, 2, 3, 5, 7, 1000, stream.len()] {
            assert_eq!(all(&stream, pieces), messages, "pieces of {pieces}");
        }
    }

    #[test]
    fn false_lengths_are_refused_and_stay_so() {
        for len in [0, MESSAGE_LIMIT as u32 + 1, u32::MAX] {
            let mut decoder = Decoder::new();
            let bytes = len.to_le_bytes();
            assert_eq!(decoder.next(&mut bytes.as_slice()), Err(StreamError { len }));
            assert_eq!(decoder.next(&mut frame(b"x").unwrap().as_slice()), Err(StreamError { len }));
            assert!(!decoder.is_between_messages());
        }
        assert!(frame(&[]).is_err());
        assert!(frame(&vec![0; MESSAGE_LIMIT + 1]).is_err());
    }

    #[test]
    fn an_announced_length_allocates_nothing() {
        let mut decoder = Decoder::new();
        let bytes = (MESSAGE_LIMIT as u32).to_le_bytes();
        assert_eq!(decoder.next(&mut bytes.as_slice()), Ok(None));
        assert!(decoder.held.capacity() < 64);
        assert!(!decoder.is_between_messages());
    }
}
