//! Messages between program and control plane: digests, and the headers of packets to and from a controller.
//!
//! Names, and the numbers that are shown, come from a tenant's object and its program.

use crate::decode::{little, name as shown};
use crate::entry::{EntryTextError, Named, place};
use crate::model::EntryError;
use crate::source::Described;
use crate::value::value;
use num_bigint::BigUint;
use p4shield_abi::channel::MAX_HEADER_BYTES;
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

/// Divides a packet to the controller into the fields of its header, and the rest.
///
/// # Errors
/// The packet is shorter than the header.
pub fn decode_header<'p>(
    header: &MessageSchema,
    packet: &'p [u8],
) -> Result<(Values, &'p [u8]), HeaderError> {
    let (bits, bytes) = sizes(header)?;
    let (head, rest) =
        packet.split_at_checked(bytes).ok_or(HeaderError::Short { bytes: packet.len(), needed: bytes })?;
    let mut left = BigUint::from_bytes_be(head) >> (8 * bytes as u64 - bits);
    let mut values = Values::new();
    for field in header.fields.iter().rev() {
        let above = &left >> field.width;
        let own = &left - (&above << field.width);
        values.push((shown(&field.name), little(&padded(&own, field.width), field.width)));
        left = above;
    }
    values.reverse();
    Ok((values, rest))
}

/// Encodes the header of a packet from the controller. Fields that are not given are 0.
///
/// # Errors
/// A name is unknown or given twice, or a value is none, or does not fit its field.
pub fn encode_header(header: &MessageSchema, given: &[Named]) -> Result<Vec<u8>, HeaderError> {
    let (bits, bytes) = sizes(header)?;
    let names = header.fields.iter().map(|f| f.name.as_str());
    let placed = place(&header.name, "field", given, names)?;
    let mut all = BigUint::default();
    for (field, text) in header.fields.iter().zip(placed) {
        let FieldSchema { name, width } = field;
        let text = text.unwrap_or_else(|| "0".to_owned());
        let number = value(name, *width, &text).map_err(EntryTextError::from)?;
        if number.bits() > u64::from(*width) {
            let (name, width) = (name.clone(), *width);
            return Err(EntryTextError::from(EntryError::TooWide { name, width }).into());
        }
        all = (all << *width) | number;
    }
    let encoded = (all << (8 * bytes as u64 - bits)).to_bytes_be();
    let zeros = bytes.saturating_sub(encoded.len());
    let encoded = if bytes == 0 { Vec::new() } else { encoded };
    Ok(std::iter::repeat_n(0, zeros).chain(encoded).collect())
}

/// The reason why a packet has no such header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The fields that are given do not fit the header.
    #[error(transparent)]
    Fields(#[from] EntryTextError),
    /// The packet is shorter than its header.
    #[error("a packet of {bytes} bytes has no header of {needed} bytes")]
    Short {
        /// Bytes of the packet.
        bytes: usize,
        /// Bytes of the header.
        needed: usize,
    },
    /// The header is longer than any packet.
    #[error("the header {0} is longer than any packet")]
    Long(String),
}

/// Returns bits and bytes of a header.
fn sizes(header: &MessageSchema) -> Result<(u64, usize), HeaderError> {
    let bits: u64 = header.fields.iter().map(|f| u64::from(f.width)).sum();
    if bits > 8 * u64::from(MAX_HEADER_BYTES) {
        return Err(HeaderError::Long(shown(&header.name)));
    }
    Ok((bits, bits.div_ceil(8) as usize))
}

/// Returns a number as little-endian bytes of its width.
fn padded(number: &BigUint, width: u32) -> Vec<u8> {
    let mut bytes = number.to_bytes_le();
    bytes.resize(width.max(1).div_ceil(8) as usize, 0);
    bytes
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

    fn header(widths: &[(&str, u32)]) -> MessageSchema {
        let field = |(name, width): &(&str, u32)| FieldSchema { name: (*name).into(), width: *width };
        let fields = widths.iter().map(field).collect();
        MessageSchema { kind: MessageKind::PacketOut, name: "packet_out".into(), fields }
    }

    fn encoded(header: &MessageSchema, fields: &[&str]) -> Result<Vec<u8>, HeaderError> {
        encode_header(header, &fields.iter().map(|f| Named::parse(f)).collect::<Vec<_>>())
    }

    #[test]
    fn headers_have_their_fields_in_network_order() {
        let header = header(&[("port", 9), ("class", 7), ("address", 32)]);
        let bytes = encoded(&header, &["port=511", "address=10.0.0.1"]).unwrap();
        assert_eq!(bytes, [0xff, 0x80, 10, 0, 0, 1]);
        let packet = [&bytes[..], &[9, 9]].concat();
        let (values, rest) = decode_header(&header, &packet).unwrap();
        let value = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(values, [value("port", "0x1ff"), value("class", "0x00"), value("address", "0x0a000001")]);
        assert_eq!(rest, [9, 9]);
        assert_eq!(encoded(&header, &["1", "2", "3"]).unwrap(), [0, 0x82, 0, 0, 0, 3]);
    }

    #[test]
    fn fields_that_do_not_fit_a_header_are_refused() {
        let header = header(&[("port", 9), ("class", 7)]);
        for (field, why) in [
            ("port=512", "the value of port does not fit 9 bits"),
            ("size=1", "unknown field `size`"),
            ("port=x", "`x` is no value"),
        ] {
            let error = encoded(&header, &[field]).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert_eq!(decode_header(&header, &[1]), Err(HeaderError::Short { bytes: 1, needed: 2 }));
    }

    #[test]
    fn a_header_of_any_widths_neither_panics_nor_allocates_much() {
        let none = header(&[]);
        assert_eq!(encoded(&none, &[]).unwrap(), Vec::<u8>::new());
        assert_eq!(decode_header(&none, &[1]).unwrap(), (Values::new(), &[1][..]));
        let odd = header(&[("a", 0), ("b", 3)]);
        let bytes = encoded(&odd, &["b=5"]).unwrap();
        assert_eq!(bytes, [0b1010_0000]);
        assert_eq!(decode_header(&odd, &bytes).unwrap().0[1].1, "0x5");
        let long = header(&[("a", u32::MAX), ("b", u32::MAX)]);
        assert!(matches!(encoded(&long, &[]), Err(HeaderError::Long(_))));
    }
}
