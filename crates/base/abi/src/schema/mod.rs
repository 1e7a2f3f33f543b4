//! Schema: names and types of a program's counters, registers, meters and tables.
//!
//! An object of the compiler carries one in [`crate::object::SCHEMA_SECTION`]; no program needs it to run.
//! Tools read it to show maps as the author wrote them. The bytes come from a tenant: [`Schema::decode`]
//! accepts any, and its memory is bounded by a small multiple of their number.
//!
//! Encoding: a `u32` [`SCHEMA_VERSION`], then the fields of [`Schema`] in their order. Numbers are
//! little-endian `u32`. A list, a text and a byte string begin with their length; an option begins with a
//! length of 0 or 1; an enumeration is its number.

mod encoding;

use alloc::string::String;
use alloc::vec::Vec;
use encoding::Part;

/// Version of the encoding.
pub const SCHEMA_VERSION: u32 = 3;
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

/// The architecture that a program is written for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Architecture {
    /// `ubpf_model`: parser, pipeline and deparser.
    #[default]
    Ubpf = 0,
    /// `ebpf_model`: parser and filter.
    Ebpf = 1,
    /// `v1model`: the reference switch's pipeline.
    V1model = 2,
}

impl Architecture {
    /// Returns its name, as in the file that declares it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ubpf => "ubpf_model",
            Self::Ebpf => "ebpf_model",
            Self::V1model => "v1model",
        }
    }
}

/// Names and types of a program's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// The architecture of the program.
    pub architecture: Architecture,
    /// Registers, counters and meters.
    pub arrays: Vec<ArraySchema>,
    /// Tables and parser value sets.
    pub tables: Vec<TableSchema>,
    /// Messages between program and control plane.
    pub messages: Vec<MessageSchema>,
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

/// The kind of a message between program and control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MessageKind {
    /// A digest ([`crate::digest`]).
    Digest = 0,
    /// The header of a packet to the controller: its fields in network order, without padding.
    PacketIn = 1,
    /// The header of a packet from the controller, likewise.
    PacketOut = 2,
}

/// A message between program and control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageSchema {
    /// Its kind.
    pub kind: MessageKind,
    /// Name: that of the struct that a digest carries, or the header's.
    pub name: String,
    /// Its fields, in their order.
    pub fields: Vec<FieldSchema>,
}

/// A field of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSchema {
    /// Name.
    pub name: String,
    /// Width in bits.
    pub width: u32,
}

/// A table, or a value set, which has no actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSchema {
    /// Full name.
    pub name: String,
    /// Symbol of the map of its entries; `None` if they are code.
    pub map: Option<String>,
    /// True if no entry is added or deleted: the program declares them constant, or they are code.
    pub constant: bool,
    /// Symbol of the map of its default action; `None` if that never changes.
    pub default_map: Option<String>,
    /// Maps of a selector's groups, if entries may refer to groups.
    pub groups: Option<GroupSchema>,
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

/// The maps of an action selector's groups, for one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSchema {
    /// Symbol of the map by group (`u32`): its number of members (`u32`, then four zero bytes).
    pub groups: String,
    /// Symbol of the map by group and index within it (`u32` each): an action and its data, as in the
    /// table's own values.
    pub members: String,
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
    /// True if no entry may have it: it is for the default action only.
    pub default_only: bool,
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
        self.architecture.put(&mut out);
        self.arrays.put(&mut out);
        self.tables.put(&mut out);
        self.messages.put(&mut out);
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
                architecture: Part::take(&mut rest)?,
                arrays: Part::take(&mut rest)?,
                tables: Part::take(&mut rest)?,
                messages: Part::take(&mut rest)?,
                internal: Part::take(&mut rest)?,
            })
        };
        decode().filter(|_| rest.is_empty()).ok_or(SchemaError::Damaged)
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
            constant: true,
            default_map: None,
            groups: Some(GroupSchema { groups: "g".into(), members: "m".into() }),
            keys: vec![key],
            key_size: 8,
            actions: vec![ActionSchema { name: "forward".into(), params: vec![param], default_only: true }],
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
        Schema {
            architecture: Architecture::V1model,
            arrays: vec![array],
            tables: vec![table],
            messages: vec![MessageSchema {
                kind: MessageKind::PacketIn,
                name: "packet_in".into(),
                fields: vec![FieldSchema { name: "ingress_port".into(), width: 9 }],
            }],
            internal: vec!["extern_arguments".into()],
        }
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
        let bytes = [[3, 0, 0, 0], [0; 4], [0xff; 4]].concat();
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
