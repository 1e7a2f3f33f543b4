//! Cuts a stream of bytes into JSON objects.
//!
//! JSON-RPC over a stream has no frames: one object follows the other. Where an object ends is found by counting
//! brackets outside strings; whether it is JSON at all is for the parser to say.

/// Longest message, in bytes. A monitored interface takes about a kilobyte, so this is room for some 30,000 of them.
pub(crate) const MAX_MESSAGE: usize = 32 << 20;

/// Why a stream cannot be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    /// What comes next is no object.
    #[error("a message begins with byte {0:#04x} and not with an object")]
    NoObject(u8),
    /// An object does not end.
    #[error("a message has more than {MAX_MESSAGE} bytes")]
    TooLong,
}

/// Bytes that came, and how far they have been looked at.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    bytes: Vec<u8>,
    /// Where the message that is being looked at begins.
    start: usize,
    /// The first byte not looked at.
    at: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Splitter {
    /// Adds what came. Take all that [`Self::next`] has before adding more, else what waits is not bounded.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.at -= self.start;
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message that is complete.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, Broken> {
        while let Some(&byte) = self.bytes.get(self.at) {
            self.at += 1;
            if self.depth == 0 {
                match byte {
                    b'{' => {
                        self.start = self.at - 1;
                        self.depth = 1;
                    }
                    b' ' | b'\t' | b'\r' | b'\n' => self.start = self.at,
                    _ => return Err(Broken::NoObject(byte)),
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
                return Err(Broken::TooLong);
            }
        }
        Ok(None)
    }

    /// Looks at one byte inside an object.
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
    fn messages_come_out_whole_however_they_are_cut() {
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
    fn what_is_no_object_breaks_the_stream() {
        for text in ["[1]", "7", "}", "{} x"] {
            let mut splitter = Splitter::default();
            splitter.feed(text.as_bytes());
            let broken =
                std::iter::repeat_with(|| splitter.next().map(|m| m.is_some())).find(|r| *r != Ok(true));
            assert!(matches!(broken, Some(Err(Broken::NoObject(_)))), "{text}: {broken:?}");
        }
    }

    #[test]
    fn a_message_without_end_is_cut_off() {
        let mut splitter = Splitter::default();
        splitter.feed(b"{\"a\":\"");
        let chunk = vec![b'x'; 1 << 20];
        let ended = (0..40).find_map(|_| {
            splitter.feed(&chunk);
            splitter.next().err()
        });
        assert_eq!(ended, Some(Broken::TooLong));
        assert!(splitter.bytes.len() <= MAX_MESSAGE + chunk.len());
    }
}
