//! Splits a stream of bytes into JSON objects.
//!
//! JSON-RPC over a stream has no frames: one object follows another. The splitter finds the end of an object
//! by counting brackets outside strings; the parser then checks whether it is JSON.

/// Longest message in bytes. A monitored interface takes about a kilobyte, so a message has room for about
/// 30,000.
pub(crate) const MAX_MESSAGE: usize = 32 << 20;

/// Reason why a stream cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SplitError {
    /// The next bytes are no object.
    #[error("a message starts with byte {0:#04x} instead of an object")]
    NoObject(u8),
    /// An object exceeds the limit.
    #[error("a message is longer than {MAX_MESSAGE} bytes")]
    TooLong,
}

/// Received bytes, and how far they have been scanned.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    bytes: Vec<u8>,
    /// Start of the current message.
    start: usize,
    /// The first byte that has not been scanned.
    at: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Splitter {
    /// Adds received bytes. The caller must take all messages of [`Self::next`] first, so that the buffer
    /// stays bounded.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.at -= self.start;
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete message.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, SplitError> {
        while let Some(&byte) = self.bytes.get(self.at) {
            self.at += 1;
            if self.depth == 0 {
                match byte {
                    b'{' => {
                        self.start = self.at - 1;
                        self.depth = 1;
                    }
                    b' ' | b'\t' | b'\r' | b'\n' => self.start = self.at,
                    _ => return Err(SplitError::NoObject(byte)),
                }
                continue;
            }
            self.step(byte);
            if self.depth == 0 {
                let message = self.start..self.at;
                self.start = self.at;
                return Ok(self.bytes.get(message));
            }
            if self.at - self.start >= MAX_MESSAGE {
                return Err(SplitError::TooLong);
            }
        }
        Ok(None)
    }

    /// Scans one byte inside an object.
    fn step(&mut self, byte: u8) {
        match (self.in_string, byte) {
            (true, _) if self.escaped => self.escaped = false,
            (true, b'\\') => self.escaped = true,
            (_, b'"') => self.in_string = !self.in_string,
            (true, _) => {}
            (false, b'{' | b'[') => self.depth += 1,
            (false, b'}' | b']') => self.depth -= 1,
            (false, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(splitter: &mut Splitter) -> Vec<String> {
        let mut messages = Vec::new();
        while let Some(m) = splitter.next().unwrap() {
            messages.push(String::from_utf8_lossy(m).into_owned());
        }
        messages
    }

    #[test]
    fn messages_are_complete_however_they_arrive() {
        let text = r#" {"a":"}\"{\\"}{"b":[{},[1,{"c":"]"}]]}
{}"#;
        let expected = [r#"{"a":"}\"{\\"}"#, r#"{"b":[{},[1,{"c":"]"}]]}"#, "{}"];
        for piece in 1..=text.len() {
            let mut splitter = Splitter::default();
            let mut messages = Vec::new();
            for part in text.as_bytes().chunks(piece) {
                splitter.feed(part);
                messages.extend(all(&mut splitter));
            }
            assert_eq!(messages, expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn a_message_that_is_no_object_is_an_error() {
        for text in ["[1]", "7", "}", "{} x"] {
            let mut splitter = Splitter::default();
            splitter.feed(text.as_bytes());
            let error =
                std::iter::repeat_with(|| splitter.next().map(|m| m.is_some())).find(|r| *r != Ok(true));
            assert!(matches!(error, Some(Err(SplitError::NoObject(_)))), "{text}: {error:?}");
        }
    }

    #[test]
    fn an_endless_message_is_an_error() {
        let mut splitter = Splitter::default();
        splitter.feed(b"{\"a\":\"");
        let chunk = vec![b'x'; 1 << 20];
        let ended = (0..40).find_map(|_| {
            splitter.feed(&chunk);
            splitter.next().err()
        });
        assert_eq!(ended, Some(SplitError::TooLong));
        assert!(splitter.bytes.len() <= MAX_MESSAGE + chunk.len());
    }
}
