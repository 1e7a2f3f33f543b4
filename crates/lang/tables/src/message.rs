//! Messages between program and control plane: digests, and the headers of packets to and from a controller.
//!
//! Names, and the numbers that are shown, come from a tenant's object and its program.

use crate::decode::{little, name as shown};
use crate::source::Described;
use p4shield_abi::digest::{DIGEST_HEAD, DIGEST_MAP, MAX_DIGESTS};
use p4shield_abi::map::{MapDefinition, TYPE_ARRAY};
use p4shield_abi::schema::{FieldSchema, MessageKind, MessageSchema};
use serde::{Deserialize, Serialize};

/// Names and values of a message's fields; values are hexadecimal, with the digits of their width.
pub type Values = Vec<(String, String)>;

/// A digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestView {
    /// Its number in the order in which the program sent them, from 0.
    pub number: u64,
    /// The name of what it carries.
    pub name: String,
    /// Its fields.
    pub values: Values,
}

/// A kind of message: a digest or a header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageView {
    /// Its name.
    pub name: String,
    /// Names of its fields, and their widths in bits.
    pub fields: Vec<(String, u32)>,
}

/// Returns the messages of a kind that a program has.
pub fn messages(described: &Described, kind: MessageKind) -> impl Iterator<Item = &MessageSchema> {
    let schema = described.schema.as_ref().and_then(|s| s.as_ref().ok());
    schema.into_iter().flat_map(|s| &s.messages).filter(move |m| m.kind == kind)
}

/// Returns a kind of message, for people.
#[must_use]
pub fn view(message: &MessageSchema) -> MessageView {
    let field = |f: &FieldSchema| (shown(&f.name), f.width);
    MessageView { name: shown(&message.name), fields: message.fields.iter().map(field).collect() }
}

/// The map of a program's digests.
#[derive(Clone, Copy, Debug)]
pub struct DigestMap<'a> {
    /// Its definition.
    pub definition: &'a MapDefinition,
    described: &'a Described,
}

impl<'a> DigestMap<'a> {
    /// Finds the map; `None` if the program sends no digests.
    #[must_use]
    pub fn find(described: &'a Described) -> Option<Self> {
        let (_, definition) = described.maps.iter().find(|(symbol, _)| symbol == DIGEST_MAP)?;
        let fits = definition.map_type == TYPE_ARRAY
            && definition.max_entries == 1 + MAX_DIGESTS
            && definition.value_size >= DIGEST_HEAD;
        fits.then_some(Self { definition, described })
    }

    /// Returns the index of the element that has or had a digest.
    #[must_use]
    pub const fn index(number: u64) -> u32 {
        1 + (number % MAX_DIGESTS as u64) as u32
    }

    /// Returns the digest in an element; `None` if it is another one than that of this number, or if the
    /// program does not describe it.
    #[must_use]
    pub fn digest(&self, number: u64, element: &[u8]) -> Option<DigestView> {
        let word = |at: usize| Some(u64::from_le_bytes(element.get(at..at + 8)?.try_into().ok()?));
        if word(0)? != number.checked_add(1)? {
            return None;
        }
        let mut all = messages(self.described, MessageKind::Digest);
        let message = all.nth(usize::try_from(word(8)?).ok()?)?;
        let mut rest = &element[DIGEST_HEAD as usize..];
        let mut values = Values::new();
        for field in &message.fields {
            let (own, left) = rest.split_at_checked(8 * field.width.div_ceil(64) as usize)?;
            rest = left;
            values.push((shown(&field.name), little(own, field.width)));
        }
        Some(DigestView { number, name: shown(&message.name), values })
    }
}

/// Returns the number of digests so far, from the first element of their map.
#[must_use]
pub fn sent(element: &[u8]) -> u64 {
    element.first_chunk().copied().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_abi::schema::Schema;

    fn described(fields: &[(&str, u32)], value_size: u32) -> Described {
        let field = |(name, width): &(&str, u32)| FieldSchema { name: (*name).into(), width: *width };
        let message = MessageSchema {
            kind: MessageKind::Digest,
            name: "learn".into(),
            fields: fields.iter().map(field).collect(),
        };
        let definition = MapDefinition {
            map_type: TYPE_ARRAY,
            key_size: 4,
            value_size,
            max_entries: 1 + MAX_DIGESTS,
            flags: 0,
        };
        Described {
            schema: Some(Ok(Schema { messages: vec![message], ..Schema::default() })),
            maps: vec![(DIGEST_MAP.into(), definition)],
            ..Described::default()
        }
    }

    fn element(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn a_digest_shows_its_fields_in_their_width() {
        let program = described(&[("mac", 48), ("wide", 72), ("port", 9)], 48);
        let map = DigestMap::find(&program).unwrap();
        let digest = map.digest(1024, &element(&[1025, 0, 0xabc, 1, 2, 0x1ff])).unwrap();
        assert_eq!((digest.number, digest.name.as_str()), (1024, "learn"));
        let values: Vec<_> =
            digest.values.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(values, [("mac", "0x000000000abc"), ("wide", "0x020000000000000001"), ("port", "0x1ff")]);
        assert_eq!(DigestMap::index(1024), 1);
    }

    #[test]
    fn an_element_of_another_digest_is_none() {
        let program = described(&[("port", 9)], 24);
        let map = DigestMap::find(&program).unwrap();
        let of = |number, words: &[u64]| map.digest(number, &element(words)).is_some();
        assert!(of(0, &[1, 0, 5]));
        // Overwritten, never sent, of no description, cut.
        assert!(!of(0, &[1025, 0, 5]) && !of(0, &[0, 0, 0]) && !of(0, &[1, 1, 5]) && !of(0, &[1, 0]));
        assert!(!of(u64::MAX, &[0, 0, 5]));
    }

    #[test]
    fn a_map_of_another_shape_holds_no_digests() {
        assert!(DigestMap::find(&described(&[], 8)).is_none());
        assert!(DigestMap::find(&Described::default()).is_none());
    }
}
