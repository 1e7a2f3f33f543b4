//! A program that runs: its description, and the entries of its maps.

use p4shield_abi::map::MapDefinition;
use p4shield_abi::schema::{Schema, SchemaError};

/// A program, as the P4 VM or switch that runs it describes it.
#[derive(Debug, Default)]
pub struct Described {
    /// SHA-256 digest of the program.
    pub program: [u8; 32],
    /// Symbols and definitions of its maps.
    pub maps: Vec<(String, MapDefinition)>,
    /// The names and types, if the objects have any; or the reason why they cannot be read.
    pub schema: Option<Result<Schema, SchemaError>>,
}

/// How much of a map to read.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The slot to begin with.
    pub from: u32,
    /// The most rows; further ones are counted. `None`: a page.
    pub limit: Option<usize>,
    /// The most bytes of rows.
    pub bytes: usize,
    /// Includes an array's elements that are zero.
    pub zeros: bool,
}

/// The rows that were read of a map.
#[derive(Debug, Default)]
pub struct Rows {
    /// Key and value of each entry, of the sizes in the map's definition.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// Further entries.
    pub more: u64,
    /// The slot to continue with, if the page ends before the last entry.
    pub next: Option<u32>,
}

/// Reads the maps of a program that runs.
pub trait ReadMap {
    /// Reads entries of a map, which is an index into [`Described::maps`].
    ///
    /// # Errors
    /// The P4 VM or switch does not answer, runs another program by now, or gives an answer that no program
    /// gives.
    fn read(&mut self, described: &Described, map: usize, extent: Extent) -> Result<Rows, String>;
}
