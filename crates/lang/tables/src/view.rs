//! The types of what `p4shield program counters`, `registers` and `tables` show, one JSON object;
//! docs/reference/program-state.md describes it.
//!
//! A value of a key or parameter is hexadecimal with all digits of its width, since it may have more bits
//! than a number of JSON.

use serde::{Deserialize, Serialize};

/// The kinds of objects that a command shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// Counters, also those in the entries of tables.
    #[default]
    Counters,
    /// Registers, meters, and arrays without a description.
    Registers,
    /// Tables, value sets, and other maps without a description.
    Tables,
}

/// A request to show the state of a VM's programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inspection {
    /// The kind of objects.
    pub what: What,
    /// The VM's name.
    pub vm: String,
    /// The tenant's name; `None`: the one that has a VM of this name.
    #[serde(default)]
    pub tenant: Option<String>,
    /// `ingress` or `egress`; `None`: both.
    #[serde(default)]
    pub direction: Option<String>,
    /// The name of the object to show, in full or its last parts; `None`: all.
    #[serde(default)]
    pub name: Option<String>,
    /// The most rows of each object; further ones are counted. `None`: a page of rows, with a number to
    /// continue with.
    #[serde(default)]
    pub limit: Option<u32>,
    /// The number to continue with: `next` of the object in the answer before.
    #[serde(default)]
    pub from: u32,
    /// Includes the elements of large arrays that are zero.
    #[serde(default)]
    pub zeros: bool,
}

/// The state of a VM's programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramView {
    /// The tenant's name.
    pub tenant: String,
    /// The VM's name.
    pub vm: String,
    /// The directions with a program.
    pub directions: Vec<DirectionView>,
}

/// The state of one program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionView {
    /// `ingress` or `egress`.
    pub direction: String,
    /// SHA-256 digest of the program, hexadecimal.
    pub program: String,
    /// Reason why something is shown in another way than the program's author would expect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The objects that were requested.
    pub objects: Vec<ObjectView>,
}

/// The kinds of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// An array of counters.
    Counter,
    /// A counter in each entry of a table.
    DirectCounter,
    /// An array of registers.
    Register,
    /// An array of meters.
    Meter,
    /// A meter in each entry of a table.
    DirectMeter,
    /// A table.
    Table,
    /// A parser value set.
    ValueSet,
    /// A map without a description.
    #[default]
    Map,
}

impl ObjectKind {
    /// Returns its name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::DirectCounter => "direct counter",
            Self::Register => "register",
            Self::Meter => "meter",
            Self::DirectMeter => "direct meter",
            Self::Table => "table",
            Self::ValueSet => "value set",
            Self::Map => "map",
        }
    }
}

/// A counter, register, meter, table or map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectView {
    /// Its name in P4; the symbol of a map without a description.
    pub name: String,
    /// Its kind.
    pub kind: ObjectKind,
    /// The symbol of its map; `None`: its entries are code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<String>,
    /// `packets`, `bytes` or `packets and bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Its name among the metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Width of a register in bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Elements, or the most entries.
    pub size: u32,
    /// Its keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyView>,
    /// The default action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_action: Option<ActionView>,
    /// Entries or elements.
    pub rows: Vec<Row>,
    /// Further rows.
    pub more: u64,
    /// The number to continue with, if the page ends before the last row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
}

/// A key of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyView {
    /// Its name.
    pub name: String,
    /// `exact`, `lpm`, `ternary`, `range` or `optional`.
    #[serde(rename = "match")]
    pub kind: String,
    /// Width in bits.
    pub width: u32,
}

/// One entry or element.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The index of an element.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The values that the entry matches, by the table's keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<MatchView>,
    /// Its priority; the greatest wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Its action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<ActionView>,
    /// Packets counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Bytes counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The value of a register.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Number>,
    /// The state of a meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meter: Option<MeterView>,
    /// Key and value of an entry without a description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<RawEntry>,
}

/// The values that one key of an entry matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchView {
    /// One value.
    Exact(String),
    /// All values with a prefix: a value and the bits of it that count.
    Prefix(String, u32),
    /// All values that equal a value in the bits of a mask.
    Ternary(String, String),
    /// All values from one to another.
    Range(String, String),
    /// Every value.
    Any,
}

impl std::fmt::Display for MatchView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(value) => f.write_str(value),
            Self::Prefix(value, len) => write!(f, "{value}/{len}"),
            Self::Ternary(value, mask) => write!(f, "{value} &&& {mask}"),
            Self::Range(low, high) => write!(f, "{low}..{high}"),
            Self::Any => f.write_str("_"),
        }
    }
}

/// An action and its parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionView {
    /// Its name.
    pub name: String,
    /// Its parameters: names and values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<(String, String)>,
}

/// The value of a register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Number {
    /// A number of up to 64 bits that is not negative.
    Unsigned(u64),
    /// A negative number of up to 64 bits.
    Negative(i64),
    /// A wider number, hexadecimal.
    Wide(String),
}

/// Rates and state of a meter; docs/reference/program-state.md has the units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeterView {
    /// Committed rate.
    pub committed_rate: u64,
    /// Committed burst.
    pub committed_burst: u64,
    /// Peak rate.
    pub peak_rate: u64,
    /// Peak burst.
    pub peak_burst: u64,
}

/// Bytes of an entry, hexadecimal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawEntry {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
}
