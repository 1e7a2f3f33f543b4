//! Schema: names and types of a program's counters, registers, meters and tables.
//!
//! An object of the compiler carries one in [`crate::object::SCHEMA_SECTION`]; no program needs it to run.
//! Tools read it to show maps as the author wrote them. The bytes come from a tenant: [`Schema::decode`]
//! accepts any, and its memory is bounded by a small multiple of their number.
//!
//! Encoding: a `u32` [`SCHEMA_VERSION`], then the fields of [`Schema`] in their order. Numbers are
//! little-endian `u32`. A list, a text and a byte string begin with their length; an option begins with a
//! length of 0 or 1; an enumeration is its number.

use alloc::string::String;
use alloc::vec::Vec;

/// Version of the encoding.
pub const SCHEMA_VERSION: u32 = 1;
/// Most bytes of a schema.
pub const MAX_SCHEMA_BYTES: usize = 1 << 20;
/// Action number of an entry that refers to a group of a selector; the group's number (`u32`) follows.
pub const GROUP_ACTION: u32 = u32::MAX;

/// What a counter counts or a meter measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Unit {
    /// Packets.
    Packets = 0,
    /// Bytes.
    Bytes = 1,
    /// Both.
    Both = 2,
}

/// The elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Element {
    /// An unsigned number, little-endian.
    Register = 0,
    /// A number in two's complement, little-endian.
    SignedRegister = 1,
    /// Packets (or added amounts), then, in elements of 16 bytes, bytes.
    Counter = 2,
    /// A [`crate::meter::MeterCell`].
    Meter = 3,
}

/// How a key of a table matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum KeyKind {
    /// One value.
    Exact = 0,
    /// A prefix.
    Lpm = 1,
    /// A value and a mask.
    Ternary = 2,
    /// All values between two.
    Range = 3,
    /// One value or any.
    Optional = 4,
}

impl KeyKind {
    /// Returns its name in P4.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Lpm => "lpm",
            Self::Ternary => "ternary",
            Self::Range => "range",
            Self::Optional => "optional",
        }
    }

    /// Returns the kind with a name in P4.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Exact, Self::Lpm, Self::Ternary, Self::Range, Self::Optional]
            .into_iter()
            .find(|k| k.name() == name)
    }
}

/// Names and types of a program's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// Registers, counters and meters.
    pub arrays: Vec<ArraySchema>,
    /// Tables and parser value sets.
    pub tables: Vec<TableSchema>,
    /// Symbols of maps that belong to the generated code.
    pub internal: Vec<String>,
}

/// A register, counter or meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArraySchema {
    /// Full name.
    pub name: String,
    /// Symbol of its map.
    pub map: String,
    /// Its elements.
    pub element: Element,
    /// What they count or measure.
    pub unit: Unit,
    /// Width of an element in bits.
    pub width: u32,
    /// Name among the metrics, if the program marks it with `@metric`.
    pub metric: Option<String>,
}

/// A table, or a value set, which has no actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSchema {
    /// Full name.
    pub name: String,
    /// Symbol of the map of its entries; `None` if they are code.
    pub map: Option<String>,
    /// Symbol of the map of its default action; `None` if that never changes.
    pub default_map: Option<String>,
    /// Keys, in the order of the program.
    pub keys: Vec<KeySchema>,
    /// Bytes of a packet's key.
    pub key_size: u32,
    /// Actions; the index is the action's number in values.
    pub actions: Vec<ActionSchema>,
    /// Counter in each entry.
    pub counter: Option<DirectSchema>,
    /// Meter in each entry.
    pub meter: Option<DirectSchema>,
    /// Default action at load, as a value.
    pub default_action: Option<Vec<u8>>,
    /// Entries that are code: each a classifier's rule over the key ([`crate::map::TYPE_CLASSIFIER`]), and a
    /// value.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A counter or meter in each entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectSchema {
    /// Full name.
    pub name: String,
    /// What it counts or measures.
    pub unit: Unit,
    /// Offset in a value, in bytes.
    pub offset: u32,
    /// Name among the metrics, if the program marks it with `@metric`.
    pub metric: Option<String>,
}

/// A key of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySchema {
    /// Name.
    pub name: String,
    /// How it matches.
    pub kind: KeyKind,
    /// Width in bits.
    pub width: u32,
    /// Offset in a key, in bytes; the value is in network byte order.
    pub offset: u32,
}

/// An action of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionSchema {
    /// Full name.
    pub name: String,
    /// Parameters that an entry supplies.
    pub params: Vec<ParamSchema>,
}

/// A parameter of an action that an entry supplies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamSchema {
    /// Name.
    pub name: String,
    /// Width in bits.
    pub width: u32,
    /// Offset in a value, in bytes; the number is little-endian.
    pub offset: u32,
}

/// Reason why bytes are no schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaError {
    /// The encoding has another version.
    Version(u32),
    /// The bytes are cut, too long or contradictory.
    Damaged,
}

impl core::fmt::Display for SchemaError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Version(v) => {
                write!(f, "its schema has version {v}, and this P4 Shield reads {SCHEMA_VERSION}")
            }
            Self::Damaged => f.write_str("its schema is damaged"),
        }
    }
}

impl core::error::Error for SchemaError {}

impl Schema {
    /// Encodes the schema.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        SCHEMA_VERSION.put(&mut out);
        self.arrays.put(&mut out);
        self.tables.put(&mut out);
        self.internal.put(&mut out);
        out
    }

    /// Decodes a schema.
    ///
    /// # Errors
    /// The bytes are no schema of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, SchemaError> {
        let mut rest = bytes;
        let version = u32::take(&mut rest).ok_or(SchemaError::Damaged)?;
        if version != SCHEMA_VERSION {
            return Err(SchemaError::Version(version));
        }
        if bytes.len() > MAX_SCHEMA_BYTES {
            return Err(SchemaError::Damaged);
        }
        let mut decode = || {
            Some(Self {
                arrays: Part::take(&mut rest)?,
                tables: Part::take(&mut rest)?,
                internal: Part::take(&mut rest)?,
            })
        };
        decode().filter(|_| rest.is_empty()).ok_or(SchemaError::Damaged)
    }
}

/// A part of the encoding. Each takes at least four bytes, which bounds the elements of a list.
trait Part: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(rest: &mut &[u8]) -> Option<Self>;
}

impl Part for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        let (head, tail) = rest.split_first_chunk()?;
        *rest = tail;
        Some(Self::from_le_bytes(*head))
    }
}

/// A string of bytes. `Vec<u8>` itself would be a list.
fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    (bytes.len() as u32).put(out);
    out.extend_from_slice(bytes);
}

fn take_bytes(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let len = u32::take(rest)? as usize;
    let (head, tail) = rest.split_at_checked(len)?;
    *rest = tail;
    Some(head.into())
}

impl Part for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self.as_bytes(), out);
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        Self::from_utf8(take_bytes(rest)?).ok()
    }
}

impl Part for (Vec<u8>, Vec<u8>) {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(&self.0, out);
        put_bytes(&self.1, out);
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        Some((take_bytes(rest)?, take_bytes(rest)?))
    }
}

impl<T: Part> Part for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        self.iter().for_each(|part| part.put(out));
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        let count = u32::take(rest)?;
        (0..count).map(|_| T::take(rest)).collect()
    }
}

impl<T: Part> Part for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        u32::from(self.is_some()).put(out);
        self.iter().for_each(|part| part.put(out));
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        match u32::take(rest)? {
            0 => Some(None),
            1 => T::take(rest).map(Some),
            _ => None,
        }
    }
}

/// Encodes an enumeration as its number.
macro_rules! numbered {
    ($ty:ty: $($variant:ident),+) => {
        impl Part for $ty {
            fn put(&self, out: &mut Vec<u8>) {
                (*self as u32).put(out);
            }

            fn take(rest: &mut &[u8]) -> Option<Self> {
                let number = u32::take(rest)?;
                [$(Self::$variant),+].into_iter().find(|v| *v as u32 == number)
            }
        }
    };
}

numbered!(Unit: Packets, Bytes, Both);
numbered!(Element: Register, SignedRegister, Counter, Meter);
numbered!(KeyKind: Exact, Lpm, Ternary, Range, Optional);

/// Encodes the fields of a structure in this order.
macro_rules! fields {
    ($ty:ty: $($field:ident),+) => {
        impl Part for $ty {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)+
            }

            fn take(rest: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: Part::take(rest)?),+ })
            }
        }
    };
}

fields!(ArraySchema: name, map, element, unit, width, metric);
fields!(DirectSchema: name, unit, offset, metric);
fields!(KeySchema: name, kind, width, offset);
fields!(ActionSchema: name, params);
fields!(ParamSchema: name, width, offset);

impl Part for TableSchema {
    fn put(&self, out: &mut Vec<u8>) {
        self.name.put(out);
        self.map.put(out);
        self.default_map.put(out);
        self.keys.put(out);
        self.key_size.put(out);
        self.actions.put(out);
        self.counter.put(out);
        self.meter.put(out);
        u32::from(self.default_action.is_some()).put(out);
        self.default_action.iter().for_each(|value| put_bytes(value, out));
        self.entries.put(out);
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        Some(Self {
            name: Part::take(rest)?,
            map: Part::take(rest)?,
            default_map: Part::take(rest)?,
            keys: Part::take(rest)?,
            key_size: Part::take(rest)?,
            actions: Part::take(rest)?,
            counter: Part::take(rest)?,
            meter: Part::take(rest)?,
            default_action: match u32::take(rest)? {
                0 => None,
                1 => Some(take_bytes(rest)?),
                _ => return None,
            },
            entries: Part::take(rest)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn sample() -> Schema {
        let counter =
            DirectSchema { name: "c".into(), unit: Unit::Both, offset: 8, metric: Some("m".into()) };
        let key = KeySchema { name: "hdr.ip.dst".into(), kind: KeyKind::Lpm, width: 32, offset: 4 };
        let param = ParamSchema { name: "port".into(), width: 9, offset: 4 };
        let table = TableSchema {
            name: "pipe.t".into(),
            map: Some("pipe_t".into()),
            default_map: None,
            keys: vec![key],
            key_size: 8,
            actions: vec![ActionSchema { name: "forward".into(), params: vec![param] }],
            counter: Some(counter),
            meter: None,
            default_action: Some(vec![0; 8]),
            entries: vec![(vec![1; 20], vec![2; 8])],
        };
        let array = ArraySchema {
            name: "r".into(),
            map: "r".into(),
            element: Element::SignedRegister,
            unit: Unit::Packets,
            width: 48,
            metric: None,
        };
        Schema { arrays: vec![array], tables: vec![table], internal: vec!["extern_arguments".into()] }
    }

    #[test]
    fn a_schema_reads_back() {
        for schema in [sample(), Schema::default()] {
            assert_eq!(Schema::decode(&schema.encode()), Ok(schema));
        }
    }

    #[test]
    fn cut_and_extended_schemas_are_refused() {
        let mut bytes = sample().encode();
        for n in 0..bytes.len() {
            assert_eq!(Schema::decode(&bytes[..n]), Err(SchemaError::Damaged), "the first {n} bytes");
        }
        bytes.push(0);
        assert_eq!(Schema::decode(&bytes), Err(SchemaError::Damaged));
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = sample().encode();
        bytes[0] = 7;
        assert_eq!(Schema::decode(&bytes), Err(SchemaError::Version(7)));
    }

    #[test]
    fn a_count_that_lies_allocates_nothing() {
        let bytes = [1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(Schema::decode(&bytes), Err(SchemaError::Damaged));
    }

    #[test]
    fn flipped_bytes_are_refused_or_another_schema() {
        let bytes = sample().encode();
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                if let Ok(schema) = Schema::decode(&damaged) {
                    assert_eq!(schema.encode(), damaged);
                }
            }
        }
    }
}
