//! Programs in messages: their places, their descriptions, and parts of their maps.

use p4shield_abi::Direction;
use p4shield_abi::map::MapDefinition;
use serde::{Deserialize, Serialize};

/// The most maps of a program.
pub const MAX_MAPS: usize = 1024;
/// The most bytes of a map's name in a description; longer ones are cut.
pub const MAX_MAP_NAME: usize = 512;
/// The most bytes of entries, and of a part of a description, in one reply.
pub const MAX_PART: usize = 96 << 10;

/// Entries of a table: key and value of each.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// A user VM's direction: what a program belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProgramSlot {
    /// Index of the VM within its tenant.
    pub vm: u16,
    /// [`Direction`] as a number.
    pub direction: u8,
}

impl ProgramSlot {
    /// The place of a direction.
    #[must_use]
    pub const fn new(vm: u16, direction: Direction) -> Self {
        Self { vm, direction: direction as u8 }
    }
}

/// What [`crate::Request::ReadMap`] reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapQuery {
    /// The program's place.
    pub slot: ProgramSlot,
    /// Its digest: another program there is not read.
    pub program: [u8; 32],
    /// The map's index in the program's description.
    pub map: u32,
    /// The slot to begin with.
    pub from: u32,
    /// The most entries to send; further ones are counted.
    pub rows: u32,
    /// Whether to send an array's elements that are zero.
    pub zeros: bool,
}

/// Part of a map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapPart {
    /// Entries; the key of an array's element is its index.
    pub entries: Entries,
    /// Further entries that were visited and are not sent.
    pub more: u32,
    /// The slot to continue with; `None` after the last one.
    pub next: Option<u32>,
}

/// Part of the description of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramDescription {
    /// SHA-256 digest of the linked program.
    pub program: [u8; 32],
    /// All maps of the program.
    pub map_count: u32,
    /// Maps from the requested number on.
    pub maps: Vec<MapDescription>,
    /// Bytes of the schema; `None`: the program's objects have none.
    pub schema_len: Option<u32>,
    /// Bytes of the schema from the requested offset on: `p4shield_abi::schema::Schema`.
    pub schema: Vec<u8>,
}

/// A map of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapDescription {
    /// Its symbol.
    pub name: String,
    /// The fields of its [`MapDefinition`], in their order.
    pub definition: [u32; 5],
}

impl MapDescription {
    /// Describes a map.
    #[must_use]
    pub fn new(name: &str, d: &MapDefinition) -> Self {
        let cut = name.floor_char_boundary(MAX_MAP_NAME);
        let definition = [d.map_type, d.key_size, d.value_size, d.max_entries, d.flags];
        Self { name: name[..cut].to_owned(), definition }
    }

    /// Returns the map's definition, unchecked.
    #[must_use]
    pub const fn definition(&self) -> MapDefinition {
        let [map_type, key_size, value_size, max_entries, flags] = self.definition;
        MapDefinition { map_type, key_size, value_size, max_entries, flags }
    }
}
