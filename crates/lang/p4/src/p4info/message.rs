//! Protocol buffer messages as values, encoded as text and as bytes from one description.
//!
//! Encoding: <https://protobuf.dev/programming-guides/encoding/>, text format:
//! <https://protobuf.dev/reference/protobuf/textformat-spec/>. Fields with default values are
//! omitted, as proto3 specifies.

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FieldValue {
    Number(u64),
    Signed(i64),
    Bool(bool),
    Text(String),
    Bytes(Vec<u8>),
    /// Name and number.
    Enum(&'static str, u64),
    Message(Message),
}

impl FieldValue {
    /// Returns a number, bool or enum as a varint encodes it; 0 for other values.
    const fn bits(&self) -> u64 {
        match self {
            Self::Number(n) | Self::Enum(_, n) => *n,
            Self::Signed(n) => n.cast_unsigned(),
            Self::Bool(b) => *b as u64,
            Self::Text(_) | Self::Bytes(_) | Self::Message(_) => 0,
        }
    }
}

/// A message: fields with their numbers and names, in the order in which they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message(Vec<(u32, &'static str, FieldValue)>);

const VARINT: u64 = 0;
const LENGTH_DELIMITED: u64 = 2;

impl Message {
    /// Adds a field unless its value is the default. An empty message is written.
    pub(super) fn with(self, number: u32, name: &'static str, value: FieldValue) -> Self {
        let default = match &value {
            FieldValue::Text(t) => t.is_empty(),
            FieldValue::Bytes(b) => b.is_empty(),
            FieldValue::Message(_) => false,
            scalar => scalar.bits() == 0,
        };
        if default { self } else { self.present(number, name, value) }
    }

    /// Adds a field even if its value is the default: a field of a `oneof`, or an `optional` field.
    pub(super) fn present(mut self, number: u32, name: &'static str, value: FieldValue) -> Self {
        self.0.push((number, name, value));
        self
    }

    pub(super) fn number(self, number: u32, name: &'static str, value: impl Into<u64>) -> Self {
        self.with(number, name, FieldValue::Number(value.into()))
    }

    pub(super) fn text(self, number: u32, name: &'static str, value: &str) -> Self {
        self.with(number, name, FieldValue::Text(value.to_owned()))
    }

    pub(super) fn message(self, number: u32, name: &'static str, value: Self) -> Self {
        self.with(number, name, FieldValue::Message(value))
    }

    /// Adds one field per message.
    pub(super) fn repeated<I: IntoIterator<Item = Self>>(
        self,
        number: u32,
        name: &'static str,
        of: I,
    ) -> Self {
        of.into_iter().fold(self, |m, v| m.message(number, name, v))
    }

    /// Adds one field per number.
    pub(super) fn numbers<I: IntoIterator<Item = u32>>(self, number: u32, name: &'static str, of: I) -> Self {
        of.into_iter().fold(self, |m, v| m.number(number, name, v))
    }

    /// A message with only a name.
    pub(super) fn named(name: &str) -> Self {
        Self::default().text(1, "name", name)
    }

    /// Encodes as bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, _, value) in &self.0 {
            match value {
                FieldValue::Text(t) => delimited(*number, t.as_bytes(), &mut out),
                FieldValue::Bytes(b) => delimited(*number, b, &mut out),
                FieldValue::Message(m) => delimited(*number, &m.encode(), &mut out),
                scalar => {
                    varint(u64::from(*number) << 3 | VARINT, &mut out);
                    varint(scalar.bits(), &mut out);
                }
            }
        }
        out
    }

    /// Prints as text.
    pub(super) fn print(&self, indent: usize, out: &mut String) {
        let margin = " ".repeat(indent);
        for (_, name, value) in &self.0 {
            let value = match value {
                FieldValue::Message(m) => {
                    out.push_str(&format!("{margin}{name} {{\n"));
                    m.print(indent + 2, out);
                    out.push_str(&format!("{margin}}}\n"));
                    continue;
                }
                FieldValue::Number(n) => n.to_string(),
                FieldValue::Signed(n) => n.to_string(),
                FieldValue::Bool(b) => b.to_string(),
                FieldValue::Enum(name, _) => (*name).to_owned(),
                FieldValue::Text(t) => quoted(t.as_bytes()),
                FieldValue::Bytes(b) => quoted(b),
            };
            out.push_str(&format!("{margin}{name}: {value}\n"));
        }
    }
}

fn varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn delimited(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | LENGTH_DELIMITED, out);
    varint(bytes.len() as u64, out);
    out.extend(bytes);
}

fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from('"');
    for b in bytes {
        match b {
            b'"' | b'\\' => out.extend(['\\', char::from(*b)]),
            b'\n' => out.push_str("\\n"),
            0x20..=0x7e => out.push(char::from(*b)),
            other => out.push_str(&format!("\\{other:03o}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the encoding's documentation.
    #[test]
    fn bytes_are_as_documented() {
        let inner = Message::default().number(1, "a", 150u32);
        assert_eq!(inner.encode(), [0x08, 0x96, 0x01]);
        assert_eq!(Message::default().text(2, "b", "testing").encode(), b"\x12\x07testing");
        assert_eq!(Message::default().message(3, "c", inner).encode(), [0x1a, 3, 0x08, 0x96, 0x01]);
        assert!(Message::default().number(1, "a", 0u32).encode().is_empty());
    }

    #[test]
    fn text_is_quoted() {
        let mut out = String::new();
        Message::default().with(1, "v", FieldValue::Bytes(vec![0, b'"', 0x41, 255])).print(0, &mut out);
        assert_eq!(out, "v: \"\\000\\\"A\\377\"\n");
    }
}
